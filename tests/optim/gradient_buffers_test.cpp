// Optimizer::use_gradient_buffers: where gradients lie, in which dtype, and that training does not notice.

#include <cmath>
#include <functional>
#include <memory>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/optim/sgd.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

using optim::FusedAdam;
using optim::GradientBufferOptions;

// Two layers with sizes that leave gaps, fed with one fixed batch.
struct Net {
  nn::Linear first;
  nn::Linear second;
  Tensor x;
  Tensor target;

  explicit Net(Device device) : first(5, 33, {.device = device}), second(33, 7, {.device = device}) {
    CpuGenerator generator(1);
    const NoGrad guard;
    for (const Tensor& p : parameters()) copy_(p, randn(p.shape(), generator) * 0.3);
    x = to(randn({8, 5}, generator), device);
    target = to(randn({8, 7}, generator), device);
  }
  std::vector<Tensor> parameters() { return {first.weight(), first.bias(), second.weight(), second.bias()}; }
  Tensor loss(std::optional<DType> low = {}) {
    const amp::Autocast region(
        {.device = x.device().type, .dtype = low.value_or(DType::f16), .enabled = low.has_value()});
    return mse_loss(second(gelu(first(x))), target);
  }
};

// Steps with FusedAdam, scaler and clipping, two micro-batches each; `between` runs before the step.
struct Training {
  Net net;
  FusedAdam optimizer;
  amp::GradScaler scaler{{.init_scale = 1024}};

  explicit Training(Device device) : net(device), optimizer(net.parameters(), {.lr = 0.01}) {}
  void train(
      int steps, std::optional<DType> low, int micro_batches, const std::function<void()>& between = [] {}) {
    for (int step = 0; step < steps; ++step) {
      for (int i = 0; i < micro_batches; ++i) scaler.scale(net.loss(low)).backward();
      between();
      scaler.step(optimizer, {.max_norm = 0.5});
      scaler.update();
      optimizer.zero_grad();
    }
  }
  void expect_same(Training& other, const std::string& where) {
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(same_bits(optimizer.parameters()[i], other.optimizer.parameters()[i])) << where << ", " << i;
    }
    expect_same_state(optimizer.state_dict(), other.optimizer.state_dict(), where);
  }
};

class GradientBuffersTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(GradientBuffersTest);

std::uintptr_t address(const Tensor& x) { return reinterpret_cast<std::uintptr_t>(x.raw()); }

double total(const Tensor& x) {
  double sum = 0;
  for (const double value : x.to_vector<double>()) sum += value;
  return sum;
}

TEST_P(GradientBuffersTest, AFlatBufferHoldsAllGradientsInOrder) {
  Net net(device());
  FusedAdam optimizer(net.parameters());
  EXPECT_FALSE(optimizer.flat_gradients().defined());
  optimizer.use_gradient_buffers({.flat = true});
  const Tensor flat = optimizer.flat_gradients();
  ASSERT_EQ(flat.shape(), (Shape{(768 + 256 + 1024 + 256) / 4}));
  for (int step = 0; step < 3; ++step) {
    net.loss().backward();
    net.loss().backward();
    std::uintptr_t want = address(flat);
    double sum = 0;
    for (const Tensor& p : optimizer.parameters()) {
      EXPECT_EQ(address(p.grad()), want);
      EXPECT_EQ(want % 256, 0U);
      want += (p.grad().bytes() + 255) / 256 * 256;
      sum += total(p.grad());
    }
    EXPECT_EQ(want, address(flat) + flat.bytes());
    EXPECT_NEAR(total(flat), sum, 1e-6) << "gaps are zero";
    const std::vector<float> all = flat.to_vector<float>();
    for (std::size_t i = 165; i < 192; ++i) EXPECT_EQ(all[i], 0.0f);
    optimizer.zero_grad();
    EXPECT_TRUE(optimizer.gradients().empty());
    EXPECT_TRUE(optimizer.flat_gradients().is_same(flat));
  }
}

TEST_P(GradientBuffersTest, FlatTrainingHasTheBitsOfOrdinaryTraining) {
  for (const std::optional<DType> low : {std::optional<DType>(), {DType::f16}, {DType::bf16}}) {
    Training ordinary(device());
    Training flat(device());
    flat.optimizer.use_gradient_buffers({.flat = true});
    ordinary.train(6, low, 2);
    flat.train(6, low, 2);
    flat.expect_same(ordinary, low ? std::string(name(*low)) : "f32");
    EXPECT_TRUE(flat.optimizer.flat_gradients().defined());
  }
}

TEST_P(GradientBuffersTest, FlatTrainingHasTheBitsOfOrdinaryTrainingWithoutAScaler) {
  Net a(device());
  Net b(device());
  optim::SGD ordinary(a.parameters(), {.lr = 0.1});
  optim::SGD flat(b.parameters(), {.lr = 0.1});
  flat.use_gradient_buffers({.flat = true});
  for (int step = 0; step < 4; ++step) {
    ordinary.zero_grad();
    flat.zero_grad();
    a.loss().backward();
    b.loss().backward();
    ordinary.step();
    flat.step();
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(ordinary.parameters()[i], flat.parameters()[i]));
}

TEST_P(GradientBuffersTest, EveryOperationFindsItsPlace) {
  std::mt19937 random(1);
  const auto loss = [](const Tensor& w, const Tensor& b) {
    return sum(square(matmul(w, w)) * b) + sum(linear(w, w, b)) + sum(w + w) + sum(view(w, {16}));
  };
  const Tensor w = wild({4, 4}, random, DType::f32, device(), 1).requires_grad_();
  const Tensor b = wild({4}, random, DType::f32, device(), 1).requires_grad_();
  const Tensor w_twin = clone(w.detach()).requires_grad_();
  const Tensor b_twin = clone(b.detach()).requires_grad_();
  FusedAdam optimizer({w, b});
  optimizer.use_gradient_buffers({.flat = true});
  const Tensor flat = optimizer.flat_gradients();
  for (int step = 0; step < 3; ++step) {
    loss(w, b).backward();
    loss(w_twin, b_twin).backward();
    matmul(w, w).backward(ones({4, 4}, {.device = device()}));
    matmul(w_twin, w_twin).backward(ones({4, 4}, {.device = device()}));
    EXPECT_TRUE(same_bits(w.grad(), w_twin.grad()));
    EXPECT_TRUE(same_bits(b.grad(), b_twin.grad()));
    EXPECT_EQ(w.grad().raw(), flat.raw());
    fill_(w.grad(), NAN);
    optimizer.zero_grad();
    w_twin.set_grad({});
    b_twin.set_grad({});
    matmul(w, w).backward(ones({4, 4}, {.device = device()}));  // first thing after zero_grad
    matmul(w_twin, w_twin).backward(ones({4, 4}, {.device = device()}));
    EXPECT_TRUE(same_bits(w.grad(), w_twin.grad()));
    optimizer.zero_grad();
    w_twin.set_grad({});
  }
}

TEST_P(GradientBuffersTest, WritingToAFlatBufferIsNoticedByBackward) {
  Net net(device());
  FusedAdam optimizer(net.parameters());
  optimizer.use_gradient_buffers({.flat = true});
  const std::uint64_t before = optimizer.flat_gradients().version();
  net.loss().backward();
  EXPECT_GT(optimizer.flat_gradients().version(), before);
}

TEST_P(GradientBuffersTest, GradientsThatExistMoveIn) {
  for (const bool flat : {false, true}) {
    for (const std::optional<DType> dtype : {std::optional<DType>(), {DType::f16}}) {
      Net net(device());
      FusedAdam optimizer(net.parameters());
      net.loss().backward();
      const Tensor held = optimizer.parameters()[0].grad();
      const Tensor before = clone(held);
      optimizer.use_gradient_buffers({.flat = flat, .dtype = dtype});
      const Tensor grad = optimizer.parameters()[0].grad();
      EXPECT_TRUE(same_bits(grad, to(before, dtype.value_or(DType::f32))));
      EXPECT_EQ(grad.raw() == held.raw(), !flat && !dtype);
      optimizer.zero_grad();
      net.loss().backward();
      EXPECT_TRUE(same_bits(held, before)) << "somebody else's handle";
      // And out again, in every dtype.
      const Tensor inside = clone(optimizer.parameters()[0].grad());
      optimizer.use_gradient_buffers();
      EXPECT_FALSE(optimizer.flat_gradients().defined());
      EXPECT_TRUE(same_bits(optimizer.parameters()[0].grad(), to(inside, DType::f32)));
      optimizer.zero_grad();
      net.loss().backward();
      EXPECT_TRUE(same_bits(optimizer.parameters()[0].grad(), before));
    }
  }
}

TEST_P(GradientBuffersTest, AGradientSetByHandReplacesTheViewForOneStep) {
  Net net(device());
  FusedAdam optimizer(net.parameters());
  optimizer.use_gradient_buffers({.flat = true});
  const Tensor& p = optimizer.parameters()[1];
  net.loss().backward();
  const void* place = p.grad().raw();
  const Tensor given = ones(p.shape(), {.device = device()});
  p.set_grad(given);
  EXPECT_EQ(p.grad().raw(), given.raw());
  optimizer.step();
  optimizer.zero_grad();
  net.loss().backward();
  EXPECT_EQ(p.grad().raw(), place);
  EXPECT_EQ(total(given), 33.0);
}

TEST_P(GradientBuffersTest, AParameterWithoutAGradientStillHasNone) {
  Net net(device());
  FusedAdam optimizer(net.parameters());
  optimizer.use_gradient_buffers({.flat = true});
  sum(net.first(net.x)).backward();
  EXPECT_EQ(optimizer.gradients().size(), 2U);
  const Tensor before = clone(net.second.weight().detach());
  optimizer.step();
  EXPECT_TRUE(same_bits(net.second.weight(), before));
}

TEST_P(GradientBuffersTest, AModelThatMovesLeavesTheBuffer) {
  Training run(device());
  run.optimizer.use_gradient_buffers({.flat = true});
  run.train(1, {}, 1);
  EXPECT_TRUE(run.optimizer.flat_gradients().defined());
  run.net.first.to(DType::f64);
  EXPECT_FALSE(run.optimizer.flat_gradients().defined());
  run.net.first.to(DType::f32);
  run.train(1, {}, 1);
  for (const Tensor& p : run.optimizer.parameters()) EXPECT_FALSE(p.grad().defined());
  run.optimizer.use_gradient_buffers({.flat = true});
  run.train(1, {}, 1);
  EXPECT_TRUE(run.optimizer.flat_gradients().defined());
  if (!device().is_cuda()) return;
  for (nn::Module* part : {&run.net.first, &run.net.second}) part->to(kCPU);
  EXPECT_FALSE(run.optimizer.flat_gradients().defined());
  sum(run.net.first(to(run.net.x, kCPU))).backward();
  EXPECT_TRUE(run.net.first.weight().grad().device().is_cpu());
}

TEST_P(GradientBuffersTest, SixteenBitGradientsStayAsAutocastComputesThem) {
  for (const DType low : {DType::f16, DType::bf16}) {
    for (const bool flat : {false, true}) {
      Net net(device());
      FusedAdam optimizer(net.parameters());
      optimizer.use_gradient_buffers({.flat = flat, .dtype = low});
      std::vector<const void*> places;
      for (int step = 0; step < 2; ++step) {
        net.loss(low).backward();
        for (std::size_t i = 0; i < 4; ++i) {
          const Tensor grad = optimizer.parameters()[i].grad();
          EXPECT_EQ(grad.dtype(), low);
          if (step == 0) {
            places.push_back(grad.raw());
          } else {
            EXPECT_EQ(grad.raw(), places[i]);
          }
        }
        EXPECT_EQ(optimizer.flat_gradients().defined(), flat);
        optimizer.zero_grad();
      }
      net.loss().backward();  // without autocast they are rounded
      EXPECT_EQ(optimizer.parameters()[0].grad().dtype(), low);
    }
  }
}

TEST_P(GradientBuffersTest, SixteenBitGradientsAreTheF32OnesRoundedOnce) {
  std::mt19937 random(2);
  std::uniform_int_distribution<int> small(-40, 40);
  const auto integers = [&](const Shape& shape) {  // so that f32 holds every sum exactly, in any order
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (double& value : values) value = small(random);
    return tensor(std::span<const double>(values), shape, {.device = device()});
  };
  for (const DType low : {DType::f16, DType::bf16}) {
    const Tensor x = integers({40, 16});
    const Tensor seed = integers({40, 24});
    const Tensor w = integers({24, 16}).requires_grad_();
    const Tensor m = integers({16, 24}).requires_grad_();
    const Tensor b = integers({24}).requires_grad_();
    FusedAdam optimizer({w, m, b});
    std::vector<Tensor> wide;
    for (const std::optional<DType> dtype : {std::optional<DType>(), {low}}) {
      optimizer.use_gradient_buffers({.dtype = dtype});
      for (const bool product : {false, true}) {
        Tensor y;
        {
          const amp::Autocast region({.device = device().type, .dtype = low});
          y = product ? matmul(x, m) : linear(x, w, b);
        }
        y.backward(to(seed, low));
      }
      for (std::size_t i = 0; i < 3; ++i) {
        const Tensor grad = optimizer.parameters()[i].grad();
        if (!dtype) wide.push_back(grad);
        EXPECT_TRUE(same_bits(grad, to(wide[i], dtype.value_or(DType::f32)))) << name(low) << ", " << i;
      }
      optimizer.zero_grad();
    }
  }
}

TEST_P(GradientBuffersTest, SixteenBitTrainingEqualsRoundingByHand) {
  if (device().is_cuda()) GTEST_SKIP() << "cuBLASLt may add up a 16-bit result in another order than an f32 one";
  for (const DType low : {DType::f16, DType::bf16}) {
    for (const bool flat : {false, true}) {
      Training by_hand(device());
      Training kept(device());
      kept.optimizer.use_gradient_buffers({.flat = flat, .dtype = low});
      by_hand.train(6, low, 1, [&] {
        const NoGrad guard;
        for (const Tensor& p : by_hand.optimizer.parameters()) p.set_grad(to(p.grad(), low));
      });
      kept.train(6, low, 1);
      kept.expect_same(by_hand, cat(name(low), flat ? ", flat" : ""));
    }
  }
}

TEST_P(GradientBuffersTest, SixteenBitMicroBatchesAddUpIn16Bits) {
  Net net(device());
  FusedAdam optimizer(net.parameters());
  optimizer.use_gradient_buffers({.dtype = DType::f16});
  net.loss(DType::f16).backward();
  const Tensor once = clone(optimizer.parameters()[0].grad());
  net.loss(DType::f16).backward();
  EXPECT_TRUE(same_bits(optimizer.parameters()[0].grad(), once + once));
}

TEST_P(GradientBuffersTest, TheScalerTakesF16GradientsOnlyInTheOptimizersOwnPass) {
  Training run(device());
  run.optimizer.use_gradient_buffers({.dtype = DType::f16});
  run.scaler.scale(run.net.loss(DType::f16)).backward();
  try {
    run.scaler.unscale_(run.optimizer);
    FAIL() << "no error";
  } catch (const DTypeError& error) {
    EXPECT_NE(std::string(error.what()).find("GradientBufferOptions"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(run.scaler.step(run.optimizer));
}

TEST_P(GradientBuffersTest, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const auto make = [&](DType dtype) { return ones({3}, {.dtype = dtype, .device = device(), .requires_grad = true}); };
  const Tensor single = make(DType::f32);
  const Tensor half = make(DType::f16);
  FusedAdam mixed({single, half});
  single.set_grad(full({3}, 2.0, {.device = device()}));
  const void* before = single.grad().raw();
  EXPECT_THROW(mixed.use_gradient_buffers({.flat = true}), DTypeError);
  EXPECT_THROW(mixed.use_gradient_buffers({.dtype = DType::f16}), DTypeError);
  EXPECT_THROW(mixed.use_gradient_buffers({.dtype = DType::f32}), DTypeError);
  EXPECT_THROW(mixed.use_gradient_buffers({.dtype = DType::i64}), DTypeError);
  EXPECT_EQ(single.grad().raw(), before);
  EXPECT_FALSE(mixed.flat_gradients().defined());
  EXPECT_NO_THROW(mixed.use_gradient_buffers());
  FusedAdam doubles({make(DType::f64)});
  EXPECT_THROW(doubles.use_gradient_buffers({.dtype = DType::bf16}), DTypeError);
  EXPECT_NO_THROW(doubles.use_gradient_buffers({.flat = true}));
  if (!device().is_cuda()) return;
  optim::SGD apart({single, ones({3}, {.requires_grad = true})}, {.lr = 0.1});
  EXPECT_THROW(apart.use_gradient_buffers({.flat = true}), DeviceError);
}

TEST_P(GradientBuffersTest, EmptyAndScalarParametersHavePlacesToo) {
  std::vector<Tensor> params;
  for (const Shape& shape : {Shape{0}, Shape{}, Shape{64}, Shape{0, 3}, Shape{65}}) {
    params.push_back(ones(shape, {.device = device(), .requires_grad = true}));
  }
  FusedAdam optimizer(params);
  optimizer.use_gradient_buffers({.flat = true});
  EXPECT_EQ(optimizer.flat_gradients().numel(), 64 + 64 + 128);
  for (const Tensor& p : params) sum(p * 2.0).backward();
  EXPECT_EQ(total(optimizer.flat_gradients()), 2.0 * (1 + 64 + 65));
  EXPECT_EQ(optimizer.gradients().size(), 5U);
  EXPECT_NO_THROW(optimizer.step());
}

}  // namespace
}  // namespace fusegrad
