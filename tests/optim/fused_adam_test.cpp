// Law 1: one formula, every launch. The fused optimizers have the bits of the unfused ones.

#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/nn/clip_grad.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

using optim::Adam;
using optim::AdamOptions;
using optim::AdamParamGroup;
using optim::AdamW;
using optim::AdamWOptions;
using optim::FusedAdam;
using optim::FusedAdamW;

const std::vector<Shape> kShapes{{0}, {1}, {3}, {17}, {1000}, {65537}, {0, 5}, {2, 3, 4}, {}};
const std::vector<Shape> kSmallShapes{{0}, {1}, {3}, {17}, {10, 10}};

class FusedAdamTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(FusedAdamTest);

TEST_P(FusedAdamTest, EqualsUnfusedBitForBitForEveryOption) {
  std::mt19937 random(1);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    for (int options = 0; options < 16; ++options) {
      const bool amsgrad = (options & 1) != 0;
      const bool maximize = (options & 2) != 0;
      const double decay = (options & 4) != 0 ? 0.1 : 0.0;
      const bool decoupled = (options & 8) != 0;
      Twins twins(kShapes, random, dtype, device());
      std::unique_ptr<optim::Optimizer> fused;
      std::unique_ptr<optim::Optimizer> unfused;
      if (decoupled) {
        const AdamWOptions o{.lr = 0.01, .weight_decay = decay, .amsgrad = amsgrad, .maximize = maximize};
        fused = std::make_unique<FusedAdamW>(twins.fused, o);
        unfused = std::make_unique<AdamW>(twins.unfused, o);
      } else {
        const AdamOptions o{.lr = 0.01, .weight_decay = decay, .amsgrad = amsgrad, .maximize = maximize};
        fused = std::make_unique<FusedAdam>(twins.fused, o);
        unfused = std::make_unique<Adam>(twins.unfused, o);
      }
      for (int step = 0; step < 4; ++step) {
        for (std::size_t i = 0; i < kShapes.size(); ++i) {
          const bool left_out = (static_cast<std::size_t>(step) + i) % 5 == 0;  // parameters without a gradient
          twins.set_grad(i, left_out ? Tensor() : wild(kShapes[i], random, dtype, device()));
        }
        fused->step();
        unfused->step();
      }
      const std::string where = cat(name(dtype), ", options ", options);
      twins.expect_same(where);
      expect_same_state(fused->state_dict(), unfused->state_dict(), where);
    }
  }
}

TEST_P(FusedAdamTest, EqualsUnfusedForMixedGradientDtypes) {
  std::mt19937 random(2);
  for (const auto& [param, grad] : std::vector<std::pair<DType, DType>>{{DType::f32, DType::f16},
                                                                        {DType::f32, DType::bf16},
                                                                        {DType::f16, DType::f32},
                                                                        {DType::bf16, DType::f32},
                                                                        {DType::f64, DType::f32}}) {
    Twins twins(kShapes, random, param, device());
    FusedAdam fused(twins.fused, {.lr = 0.1});
    Adam unfused(twins.unfused, {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < kShapes.size(); ++i) twins.set_grad(i, wild(kShapes[i], random, grad, device(), 4));
      fused.step();
      unfused.step();
    }
    twins.expect_same(cat(name(param), " with ", name(grad)));
  }
}

TEST_P(FusedAdamTest, UnalignedGradientsGiveTheSameBits) {
  std::mt19937 random(3);
  const std::vector<Shape> shapes{{1000}, {4099}, {16384 + 5}};
  Twins twins(shapes, random, DType::f32, device());
  FusedAdam fused(twins.fused);
  Adam unfused(twins.unfused);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Tensor buffer = wild({shapes[i].numel() + 3}, random, DType::f32, device());
    twins.fused[i].set_grad(buffer.alias(shapes[i], static_cast<std::int64_t>(i) + 1));
    twins.unfused[i].set_grad(clone(buffer.alias(shapes[i], static_cast<std::int64_t>(i) + 1)));
  }
  fused.step();
  unfused.step();
  twins.expect_same("unaligned");
}

// A thousand steps through the scaler: random shapes, random gradients, overflows now and then, clipped or not.
void train_twins(Device device, DType grad_dtype, const optim::GradientClip& clip, int steps) {
  std::mt19937 random(4);
  std::vector<Shape> shapes = kSmallShapes;
  shapes.push_back({1000});
  shapes.push_back({65537});
  Twins twins(shapes, random, DType::f32, device);
  // Two groups with options of their own.
  const auto groups = [&](const std::vector<Tensor>& p) {
    return std::vector<AdamParamGroup>{{.params = {p.begin(), p.begin() + 3}, .lr = 0.1},
                                       {.params = {p.begin() + 3, p.end()}, .weight_decay = 0.01, .amsgrad = true}};
  };
  FusedAdam fused(groups(twins.fused));
  Adam unfused(groups(twins.unfused));
  amp::GradScaler fused_scaler({.init_scale = 1000, .growth_interval = 7});
  amp::GradScaler unfused_scaler({.init_scale = 1000, .growth_interval = 7});
  const Tensor loss = ones({}, {.device = device});
  for (int step = 0; step < steps; ++step) {
    // Large tensors only every 50th step, to keep a thousand steps short.
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const bool large = shapes[i].numel() >= 1000;
      twins.set_grad(i, large && step % 50 != 0 ? Tensor() : wild(shapes[i], random, grad_dtype, device, 4));
    }
    if (step % 13 == 5) {  // an overflow, in a random parameter that has elements
      const std::size_t where = 1 + random() % 4;
      const double bad = step % 2 == 0 ? INFINITY : NAN;
      twins.set_grad(where, full(shapes[where], bad, {.dtype = grad_dtype, .device = device}));
    }
    (void)fused_scaler.scale(loss);
    (void)unfused_scaler.scale(loss);
    const bool by_hand = step % 3 == 1 && !clip.wanted();  // unscale_ then step must equal step alone
    if (by_hand) fused_scaler.unscale_(fused);
    fused_scaler.step(fused, clip);
    unfused_scaler.step(unfused, clip);
    EXPECT_EQ(fused_scaler.found_inf(fused), step % 13 == 5);
    EXPECT_EQ(unfused_scaler.found_inf(unfused), step % 13 == 5);
    fused_scaler.update();
    unfused_scaler.update();
    if (step % 100 == 99 || step == steps - 1) {
      const std::string where = cat("step ", step);
      twins.expect_same(where);
      expect_same_state(fused.state_dict(), unfused.state_dict(), where);
      EXPECT_EQ(fused_scaler.state_dict().numbers, unfused_scaler.state_dict().numbers) << where;
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(FusedAdamTest, EqualsUnfusedOverAThousandScaledSteps) { train_twins(device(), DType::f32, {}, 1000); }

TEST_P(FusedAdamTest, EqualsUnfusedOverAThousandScaledStepsWithBf16Gradients) {
  train_twins(device(), DType::bf16, {}, 1000);
}

TEST_P(FusedAdamTest, EqualsUnfusedOverAThousandClippedSteps) {
  train_twins(device(), DType::f32, {.max_norm = 0.5}, 1000);
}

TEST_P(FusedAdamTest, EqualsUnfusedForEveryKindOfClipping) {
  train_twins(device(), DType::f32, {.max_value = 0.01}, 60);
  train_twins(device(), DType::bf16, {.max_norm = 0.3, .max_value = 0.01}, 60);
  train_twins(device(), DType::f32, {.max_norm = 0.5, .norm_type = INFINITY}, 60);
  train_twins(device(), DType::f32, {.max_norm = 0.5, .norm_type = 1}, 60);
}

TEST_P(FusedAdamTest, AFoundInfLeavesEveryBitUnchanged) {
  std::mt19937 random(5);
  for (const bool groups : {false, true}) {
    std::vector<Tensor> params;
    for (const Shape& shape : kSmallShapes) {
      params.push_back(wild(shape, random, DType::f32, device()).requires_grad_());
    }
    std::unique_ptr<optim::Optimizer> optimizers[2];
    if (groups) {
      const std::vector<AdamParamGroup> split{{.params = {params.begin(), params.begin() + 2}, .amsgrad = true},
                                              {.params = {params.begin() + 2, params.end()}}};
      optimizers[0] = std::make_unique<FusedAdam>(split);
      optimizers[1] = std::make_unique<Adam>(split);
    } else {
      optimizers[0] = std::make_unique<FusedAdam>(params);
      optimizers[1] = std::make_unique<Adam>(params);
    }
    for (const auto& optimizer : optimizers) {
      amp::GradScaler scaler;
      const Tensor loss = ones({}, {.device = device()});
      // Low-precision weight copies, as autocast makes them.
      for (const Tensor& p : params) p.record().copy.set(to(p.detach(), DType::f16), p.version());
      const auto run = [&](double poison) {
        for (const Tensor& p : params) p.set_grad(wild(p.shape(), random, DType::f32, device()));
        if (poison != 0) params[3].set_grad(full(params[3].shape(), poison, {.device = device()}));
        (void)scaler.scale(loss);
        scaler.step(*optimizer);
        scaler.update();
      };
      run(0);
      for (const double poison :
           {static_cast<double>(INFINITY), -static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
        std::vector<Tensor> before;
        std::vector<Tensor> copies;
        for (const Tensor& p : params) {
          before.push_back(clone(p.detach()));
          copies.push_back(clone(p.record().copy.value()));
        }
        const StateDict state = optimizer->state_dict();
        StateDict frozen;
        frozen.numbers = state.numbers;
        for (const auto& [key, value] : state.tensors) frozen.tensors[key] = clone(value);
        run(poison);
        EXPECT_TRUE(scaler.found_inf(*optimizer));
        for (std::size_t i = 0; i < params.size(); ++i) {
          EXPECT_TRUE(same_bits(params[i], before[i]));
          EXPECT_TRUE(same_bits(params[i].record().copy.value(), copies[i]));
        }
        expect_same_state(optimizer->state_dict(), frozen, cat(optimizer->name(), ", ", poison));
        run(0);  // and goes on
        EXPECT_FALSE(scaler.found_inf(*optimizer));
      }
    }
  }
}

TEST_P(FusedAdamTest, WritesTheWeightCopyInTheSamePass) {
  std::mt19937 random(6);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor p = wild({1000}, random, DType::f32, device()).requires_grad_();
    p.record().copy.set(to(p.detach(), dtype), p.version());
    FusedAdam optimizer({p}, {.lr = 0.1});
    p.set_grad(wild({1000}, random, DType::f32, device()));
    optimizer.step();
    EXPECT_EQ(p.record().copy.version, p.version());
    EXPECT_TRUE(same_bits(p.record().copy.value(), to(p.detach(), dtype)));
  }
}

TEST_P(FusedAdamTest, HundredsOfParametersWithEmptyOnesAnywhere) {
  std::mt19937 random(7);
  std::vector<Shape> shapes;
  for (int i = 0; i < 400; ++i) shapes.push_back({i % 7 == 0 || i % 36 == 35 ? 0 : 1 + i % 50});
  Twins twins(shapes, random, DType::f32, device());
  FusedAdam fused(twins.fused);
  Adam unfused(twins.unfused);
  for (std::size_t i = 0; i < shapes.size(); ++i) twins.set_grad(i, wild(shapes[i], random, DType::f32, device()));
  fused.step();
  unfused.step();
  twins.expect_same("400 parameters");
  EXPECT_EQ(fused.step_count(0), 1);  // an empty parameter with a gradient steps too
}

}  // namespace
}  // namespace fusegrad
