// The way from a kernel an operation to the library's optimizer phase. First every rung is checked, bit for bit,
// against the formula; then each is timed over four models, and a table is printed. docs/ladder.md tells what each rung
// does.
//
//   ladder [--check] [--json FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/bench/copy_ceiling.h>
#include <fusegrad/bench/ladder/problem.h>
#include <fusegrad/bench/parameter_sets.h>

namespace fusegrad::ladder {

std::vector<Rung> all_rungs() {
  const auto function = [](void (*phase)(Problem&)) {
    return [phase](std::vector<Tensor> parameters) { return make_runner(std::move(parameters), phase); };
  };
  // Bytes: what each pass reads and writes. Unscale 8, norm 4, clip 8, update 28, copy 6; look 4.
  return {{1, "a kernel an operation", 8 + 4 + 8 + 12 + 12 + 8 + 16 + 6, function(kernel_per_operation)},
          {2, "the update in one kernel", 8 + 4 + 8 + 28 + 6, function(fused_update)},
          {3, "one launch over a table", 8 + 4 + 8 + 28 + 6, function(table)},
          {4, "vectors and small tiles", 8 + 4 + 8 + 28 + 6, function(vectors)},
          {5, "the GPU decides, no unscaling pass", 4 + 8 + 28 + 6, function(device_decides)},
          {6, "unscale and clip in the update", 4 + 28 + 6, function(clip_inside)},
          {7, "weight copy in the update", 4 + 30, function(copy_inside)},
          {8, "one cooperative launch", 4 + 30, function(one_launch)},
          {9, "the library", 4 + 30, make_library}};
}

namespace {

using bench::ParameterSet;

std::vector<Tensor> parameters_of(const ParameterSet& set, Device device) {
  std::vector<Tensor> parameters;
  for (const std::int64_t size : set.sizes) parameters.push_back(full({size}, 0.5, {.device = device}));
  return parameters;
}

std::vector<Tensor> random_gradients(const ParameterSet& set, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 655.36f);  // 0.01 at a scale of 65536
  std::vector<Tensor> gradients;
  for (const std::int64_t size : set.sizes) {
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& value : values) value = normal(random);
    gradients.push_back(tensor(std::span<const float>(values), {size}));
  }
  return gradients;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor left = to(a, kCPU);
  const Tensor right = to(b, kCPU);
  return left.bytes() == right.bytes() && std::memcmp(left.raw(), right.raw(), left.bytes()) == 0;
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return same_bits(x, y); });
}

bool same_bits(const Outcome& a, const Outcome& b) {
  return a.scale == b.scale && same_bits(a.param, b.param) && same_bits(a.exp_avg, b.exp_avg) &&
         same_bits(a.exp_avg_sq, b.exp_avg_sq) && same_bits(a.copy, b.copy);
}

/// Four phases beside the reference; the third meets an inf, so it must change nothing but the scale.
bool check(const Rung& rung) {
  const ParameterSet set{"check", {100, 10, 1, 1000, 3, 16384, 16385, 40000, 1023, 1024, 1025}, 1};
  const std::unique_ptr<Runner> expected = reference(parameters_of(set, kCPU));
  const std::unique_ptr<Runner> runner = rung.make(parameters_of(set, kCUDA));
  std::mt19937 random(7);
  for (int step = 0; step < 4; ++step) {
    std::vector<Tensor> gradients = random_gradients(set, random);
    if (step == 2) gradients[7].data<float>()[12345] = INFINITY;
    expected->set_gradients(gradients);
    for (Tensor& g : gradients) g = to(g, kCUDA);
    runner->set_gradients(gradients);
    expected->phase();
    runner->phase();
    if (!same_bits(expected->outcome(), runner->outcome())) {
      std::printf("rung %d, %s: other bits than the formula's in step %d\n", rung.number, rung.name.data(), step);
      return false;
    }
  }
  return true;
}

/// Microseconds of a phase, a median; several are queued between two events, as in training.
double time_phase(Runner& runner, int phases) {
  for (int i = 0; i < 3; ++i) runner.phase();
  synchronize(kCUDA);
  std::vector<double> times;
  for (int run = 0; run < 11; ++run) {
    Event begin(kCUDA);
    Event end(kCUDA);
    begin.record();
    for (int i = 0; i < phases; ++i) runner.phase();
    end.record();
    end.synchronize();
    times.push_back(begin.elapsed_ms(end) * 1000 / phases);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

nlohmann::json measure(const Rung& rung, const ParameterSet& set) {
  nlohmann::json row;
  {
    std::vector<Tensor> parameters = parameters_of(set, kCUDA);
    std::vector<Tensor> gradients;
    for (const Tensor& p : parameters) gradients.push_back(full(p.shape(), 65.536, {.device = kCUDA}));
    const std::unique_ptr<Runner> runner = rung.make(std::move(parameters));
    runner->set_gradients(gradients);
    gradients.clear();
    row["us"] = time_phase(*runner, set.phases);
    row["launches"] = runner->launches();
  }
  empty_cache(kCUDA);
  return row;
}

int run(bool only_check, const std::string& json_path) {
  if (!cuda_is_available()) {
    std::printf("ladder: no CUDA device here, so there is nothing to measure\n");
    return 0;
  }
  const std::vector<Rung> rungs = all_rungs();
  for (const Rung& rung : rungs) {
    if (!check(rung)) return 1;
  }
  std::printf("all %zu rungs have the bits of the formula, with a skipped step among them\n", rungs.size());
  if (only_check) return 0;

  const std::vector<ParameterSet> sets{{"10x10+10", {100, 10}, 100},
                                       {"1000x1000", std::vector<std::int64_t>(1000, 1000), 5},
                                       {"gpt2", bench::gpt2_sizes(), 5},
                                       {"1_Gi", {1 << 30}, 2}};
  const double ceiling = bench::copy_ceiling(kCUDA);
  nlohmann::json out{{"copy_gb_per_s", ceiling}, {"rungs", nlohmann::json::array()}};
  std::printf("\n%-38s %6s", "microseconds a phase, and launches", "bytes");
  for (const ParameterSet& set : sets) std::printf(" %20s", set.name.c_str());
  std::printf(" %8s\n", "of copy");
  for (const Rung& rung : rungs) {
    nlohmann::json row{{"number", rung.number}, {"name", rung.name}, {"bytes", rung.bytes}};
    std::printf("%d %-36s %6d", rung.number, rung.name.data(), rung.bytes);
    for (const ParameterSet& set : sets) {
      const nlohmann::json one = measure(rung, set);
      std::printf(" %12.1f (%5d)", one["us"].get<double>(), one["launches"].get<int>());
      std::fflush(stdout);
      row["sets"][set.name] = one;
    }
    // Of the bytes there must be, not of those this rung moves: what the reader gets, not what the memory suffers.
    const double share = 34.0 * (1 << 30) / row["sets"]["1_Gi"]["us"].get<double>() / 1e3 / ceiling;
    row["of_copy"] = share;
    std::printf(" %7.1f%%\n", share * 100);
    out["rungs"].push_back(row);
  }
  if (!json_path.empty()) std::ofstream(json_path) << out.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace fusegrad::ladder

int main(int argc, char** argv) {
  CLI::App app{"From a kernel an operation to one pass: the optimizer phase of mixed precision, rung by rung."};
  bool only_check = false;
  std::string json_path;
  app.add_flag("--check", only_check, "compare every rung with the formula, measure nothing");
  app.add_option("--json", json_path, "write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return fusegrad::ladder::run(only_check, json_path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ladder: %s\n", error.what());
    return 1;
  }
}
