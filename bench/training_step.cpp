// One whole training step of the reported model (Linear 10×10, MSE, batch 10, Adam), as a hand-written loop runs it:
// forward, backward, scaler, optimizer. Wall time over many steps with one wait at the end, so that a GPU's queue is
// full as it is in training. The PyTorch side is bench/peers/training_step.py.

#include <benchmark/benchmark.h>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/optim/adam.h>
#include <fusegrad/runtime/stream.h>

namespace {

using namespace fusegrad;

enum class Kind { unfused, fused };

std::unique_ptr<optim::Optimizer> make_optimizer(Kind kind, const std::vector<Tensor>& parameters) {
  if (kind == Kind::fused) return std::make_unique<optim::FusedAdam>(parameters);
  return std::make_unique<optim::Adam>(parameters);
}

void training_step(benchmark::State& state, Device device, bool mixed, Kind kind) {
  if (device.is_cuda() && !cuda_is_available()) {
    state.SkipWithError("no CUDA device");
    return;
  }
  nn::Linear model(10, 10);
  model.to(device);
  const Tensor input = to(randn({10, 10}), device);
  const Tensor target = to(randn({10, 10}), device);
  const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(kind, model.parameters());
  amp::GradScaler scaler({.enabled = mixed});
  const auto step = [&] {
    Tensor loss;
    {
      const amp::Autocast region({.device = device.type, .dtype = DType::f16, .enabled = mixed});
      loss = mse_loss(model(input), target);
    }
    optimizer->zero_grad();
    scaler.scale(loss).backward();
    scaler.step(*optimizer);
    scaler.update();
  };
  for (int i = 0; i < 20; ++i) step();
  synchronize(device);
  for (auto _ : state) {
    for (int i = 0; i < 100; ++i) step();
    synchronize(device);
  }
  state.SetItemsProcessed(state.iterations() * 100);
}

void register_all() {
  for (const Device device : {kCPU, kCUDA}) {
    if (device.is_cuda() && !cuda_is_available()) continue;
    for (const bool mixed : {false, true}) {
      for (const Kind kind : {Kind::unfused, Kind::fused}) {
        const std::string name = cat("training_step/", device.is_cpu() ? "cpu" : "cuda", mixed ? "/f16" : "/f32",
                                     kind == Kind::fused ? "/fused" : "/unfused");
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { training_step(state, device, mixed, kind); })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
