// The optimizer phase under mixed precision: from scaled gradients to updated parameters, moments and f16 weight
// copies, and the moved scale. Times come from events on the stream; several phases are queued between two of them, as
// in training. Beside every time stand the bytes that the phase must move and the share of the copy ceiling, which is
// measured in the same process. The PyTorch side is bench/peers/optimizer_phase.py.

#include <algorithm>
#include <functional>

#include <benchmark/benchmark.h>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/autograd/cast_policy.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/bench/copy_ceiling.h>
#include <fusegrad/bench/parameter_sets.h>
#include <fusegrad/kernels/fused_adam.h>
#include <fusegrad/optim/adam.h>
#include <fusegrad/runtime/graph.h>
#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/stream.h>

namespace {

using namespace fusegrad;
using bench::copy_ceiling;
using Set = bench::ParameterSet;

std::vector<Set> gpu_sets() {
  return {{"10x10+10", {100, 10}, 200},
          {"1000x1000", std::vector<std::int64_t>(1000, 1000), 100},
          {"1000x65536", std::vector<std::int64_t>(1000, 65536), 10},
          {"16_Mi", {16 << 20}, 20},
          {"gpt2", bench::gpt2_sizes(), 5},
          {"1_Gi", {1 << 30}, 2}};
}

enum class Run { adam, scaler, clip, clip_separate, clip_f16_gradients, clip_graph, one_launch, two_launches };
enum class Timing { single, queued };

std::string_view name(Run run) {
  switch (run) {
    case Run::adam:
      return "adam";  // the bare step
    case Run::scaler:
      return "scaler";  // step_and_update, weight copies
    case Run::clip:
      return "clip";  // the same with clipping by norm
    case Run::clip_separate:
      return "clip, step then update";
    case Run::clip_f16_gradients:
      return "clip, f16 gradients";
    case Run::clip_graph:
      return "clip, captured";
    case Run::one_launch:
      return "clip, captured, one launch";
    case Run::two_launches:
      return "clip, captured, two launches";
  }
  return "";
}

double bytes_of(Run run) {
  switch (run) {
    case Run::adam:
      return 28;
    case Run::clip_f16_gradients:
      return 30;
    default:
      return 34;
  }
}

/// Parameters with gradients of a scaled loss and, for mixed precision, f16 copies.
std::vector<Tensor> make_parameters(const Set& set, Run run, Device device) {
  std::vector<Tensor> parameters;
  const DType dtype = run == Run::clip_f16_gradients ? DType::f16 : DType::f32;
  const amp::Autocast region({.device = device.type, .dtype = DType::f16, .enabled = run != Run::adam});
  for (const std::int64_t size : set.sizes) {
    Tensor parameter = full({size}, 0.5, {.device = device});
    parameter.requires_grad_();
    parameter.set_grad(full({size}, 0.125, {.dtype = dtype, .device = device}));
    (void)lowered(parameter);
    parameters.push_back(parameter);
  }
  return parameters;
}

void optimizer_phase(benchmark::State& state, const Set& set, Run run, Timing timing, Device device, double ceiling) {
  const int phases = timing == Timing::single ? 1 : set.phases;
  std::int64_t numel = 0;
  for (const std::int64_t size : set.sizes) numel += size;
  double median = 0;
  {
    const std::vector<Tensor> parameters = make_parameters(set, run, device);
    optim::FusedAdam optimizer(parameters, {.lr = 1e-3});
    amp::GradScaler scaler;
    (void)scaler.scale(zeros({}, {.device = device}));
    const optim::GradientClip clip{.max_norm = run == Run::scaler ? 0.0 : 1.0};
    std::function<void()> phase = [&] { scaler.step_and_update(optimizer, clip); };
    if (run == Run::one_launch) optimizer.set_launch(kernels::AdamLaunch::one);
    if (run == Run::two_launches) optimizer.set_launch(kernels::AdamLaunch::two);
    if (run == Run::adam) phase = [&] { optimizer.step(); };
    if (run == Run::clip_separate) {
      phase = [&] {
        scaler.step(optimizer, clip);
        scaler.update();
      };
    }
    for (int i = 0; i < 3; ++i) phase();
    if (run == Run::clip_graph || run == Run::one_launch || run == Run::two_launches) {
      phase = [graph = Graph::capture(device, phase)] { graph.replay(); };
    }
    synchronize(device);
    std::vector<double> seconds;
    Event begin(device);
    Event end(device);
    for (auto _ : state) {
      begin.record();
      for (int i = 0; i < phases; ++i) phase();
      end.record();
      end.synchronize();
      seconds.push_back(begin.elapsed_ms(end) / 1000 / phases);
      state.SetIterationTime(seconds.back());
    }
    std::sort(seconds.begin(), seconds.end());
    median = seconds[seconds.size() / 2];
  }
  empty_cache(device);
  const double bytes = bytes_of(run) * static_cast<double>(numel);
  state.counters["median_us"] = median * 1e6;
  state.counters["bytes"] = bytes;
  state.counters["GB/s"] = bytes / median / 1e9;
  if (ceiling > 0) state.counters["of_copy"] = bytes / median / 1e9 / ceiling;
}

void add(const Set& set, Run run, Timing timing, Device device, double ceiling) {
  const std::string label = cat("optimizer_phase/", device.is_cpu() ? "cpu/" : "cuda/", set.name, "/", name(run),
                                timing == Timing::queued ? ", queued" : "");
  benchmark::RegisterBenchmark(label.c_str(),
                               [=](benchmark::State& s) { optimizer_phase(s, set, run, timing, device, ceiling); })
      ->UseManualTime()
      ->Iterations(timing == Timing::single && set.phases > 2 ? 101 : 15)
      ->Unit(benchmark::kMicrosecond);
}

void register_all() {
  for (const Run run : {Run::adam, Run::scaler, Run::clip}) {
    add({"10_Mi", {10 << 20}, 1}, run, Timing::single, kCPU, 0);
  }
  if (!cuda_is_available()) return;
  const double ceiling = copy_ceiling(kCUDA);
  benchmark::AddCustomContext("copy_gb_per_s", cat(ceiling));
  for (const Set& set : gpu_sets()) {
    for (const Run run :
         {Run::adam, Run::scaler, Run::clip, Run::clip_separate, Run::clip_f16_gradients, Run::clip_graph}) {
      for (const Timing timing : {Timing::single, Timing::queued}) add(set, run, timing, kCUDA, ceiling);
    }
  }
  // Where one launch stops being faster than two.
  for (const std::int64_t count : {1, 8, 32, 128, 512, 1024, 2048, 4096, 8192}) {
    const Set set{cat(count, "x1000"), std::vector<std::int64_t>(static_cast<std::size_t>(count), 1000), 50};
    for (const Run run : {Run::one_launch, Run::two_launches}) add(set, run, Timing::queued, kCUDA, ceiling);
  }
  // Twice 2^31 elements: 77 GB. Nothing may count in 32 bits.
  add({"2x2_Gi", {std::int64_t{1} << 31, std::int64_t{1} << 31}, 1}, Run::clip, Timing::single, kCUDA, ceiling);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
