// Law 1 between machines: one Adam step from equal inputs has equal bits on the CPU and on a GPU, over every kind of
// float: zeros, subnormals, huge values, infinities and NaN.

#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/nn/clip_grad.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

using optim::AdamOptions;
using optim::FusedAdam;

// Any bit pattern under `mask`.
Tensor any_bits(std::int64_t count, std::mt19937& random, std::uint32_t mask) {
  Tensor x = Tensor::empty({count});
  for (float& value : x.span<float>()) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & mask);
  return x;
}

TEST(CrossDevice, OneAdamStepHasEqualBitsForTenMillionElements) {
  FUSEGRAD_REQUIRE_CUDA();
  constexpr std::int64_t kCount = 12'000'000;
  std::mt19937 random(1);
  for (const bool amsgrad : {false, true}) {
    const AdamOptions o{.lr = 0.01, .weight_decay = 0.1, .amsgrad = amsgrad};
    const Tensor p = any_bits(kCount, random, 0xffffffffu);
    const Tensor g = any_bits(kCount, random, 0xffffffffu);
    StateDict state;
    {
      const Tensor shaped = zeros({kCount}, {.requires_grad = true});
      FusedAdam source({shaped}, o);
      state = source.state_dict();
    }
    state.tensors["state.0.exp_avg"] = any_bits(kCount, random, 0xffffffffu);
    state.tensors["state.0.exp_avg_sq"] = any_bits(kCount, random, 0x7fffffffu);
    if (amsgrad) state.tensors["state.0.max_exp_avg_sq"] = any_bits(kCount, random, 0x7fffffffu);
    state.tensors["state.0.step"] = full({}, 4);
    state.numbers["state.0.step"] = 4;

    const Tensor here = clone(p).requires_grad_();
    const Tensor there = to(p, kCUDA).requires_grad_();
    FusedAdam on_cpu({here}, o);
    FusedAdam on_gpu({there}, o);
    on_cpu.load_state_dict(state);
    on_gpu.load_state_dict(state);
    const float scale[] = {1.0f / 1000.0f};
    const Tensor inverse = tensor(std::span<const float>(scale), {});
    const Tensor clip = full({}, 0.7, {.dtype = DType::f64});
    here.set_grad(g);
    there.set_grad(to(g, kCUDA));
    on_cpu.step({.inverse_scale = inverse, .found_inf = {}, .clip_coefficient = clip});
    on_gpu.step({.inverse_scale = to(inverse, kCUDA), .found_inf = {}, .clip_coefficient = to(clip, kCUDA)});
    EXPECT_TRUE(same_bits(here, to(there.detach(), kCPU)));
    const StateDict a = on_cpu.state_dict();
    const StateDict b = on_gpu.state_dict();
    for (const auto& [key, value] : a.tensors) EXPECT_TRUE(same_bits(value, to(b.tensors.at(key), kCPU))) << key;
  }
}

TEST(CrossDevice, AThousandScaledAndClippedStepsHaveEqualBits) {
  FUSEGRAD_REQUIRE_CUDA();
  std::mt19937 random(2);
  const std::vector<Shape> shapes{{0}, {1}, {3}, {17}, {1000}, {65537}};
  for (const DType grad : {DType::f32, DType::bf16}) {
    Twins twins(shapes, random, DType::f32, kCPU);
    std::vector<Tensor> moved;
    for (const Tensor& p : twins.unfused) moved.push_back(to(p.detach(), kCUDA).requires_grad_());
    FusedAdam on_cpu(twins.fused, {.lr = 0.01});
    FusedAdam on_gpu(moved, {.lr = 0.01});
    amp::GradScaler here({.init_scale = 1000, .growth_interval = 5});
    amp::GradScaler there({.init_scale = 1000, .growth_interval = 5});
    for (int step = 0; step < 1000; ++step) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const bool left_out = shapes[i].numel() > 500 && step % 40 != 0;
        Tensor g = left_out ? Tensor() : wild(shapes[i], random, grad, kCPU);
        if (!left_out && i == 2 && step % 11 == 3) g = full(shapes[i], INFINITY, {.dtype = grad});
        twins.fused[i].set_grad(g);
        moved[i].set_grad(g.defined() ? to(g, kCUDA) : g);
      }
      (void)here.scale(ones({}));
      (void)there.scale(ones({}, {.device = kCUDA}));
      here.step(on_cpu, {.max_norm = 0.5});
      there.step(on_gpu, {.max_norm = 0.5});
      here.update();
      there.update();
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_TRUE(same_bits(twins.fused[i], to(moved[i].detach(), kCPU))) << i;
    }
    EXPECT_EQ(here.state_dict().numbers, there.state_dict().numbers);
  }
}

TEST(CrossDevice, NormsHaveEqualBits) {
  FUSEGRAD_REQUIRE_CUDA();
  std::mt19937 random(3);
  for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)}) {
    for (const std::int64_t count : {1, 5, 1023, 1025, 16384, 16385, 100000, 3000001}) {
      const Tensor x = zeros({count}, {.requires_grad = true});
      const Tensor y = zeros({count}, {.device = kCUDA, .requires_grad = true});
      const Tensor g = wild({count}, random, DType::f32, kCPU, 20);
      x.set_grad(clone(g));
      y.set_grad(to(g, kCUDA));
      const Tensor here = nn::clip_grad_norm_({x}, 1.0, {.norm_type = p});
      const Tensor there = nn::clip_grad_norm_({y}, 1.0, {.norm_type = p});
      EXPECT_TRUE(same_bits(here, to(there, kCPU))) << p << ", " << count;
      EXPECT_TRUE(same_bits(x.grad(), to(y.grad(), kCPU))) << p << ", " << count;
    }
  }
}

}  // namespace
}  // namespace fusegrad
