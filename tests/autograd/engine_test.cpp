// Backward: what accumulates, what is freed, what is refused.

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/engine.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using Floats = std::vector<float>;

class EngineTest : public DeviceTest {
 protected:
  static Tensor leaf(std::initializer_list<double> values, DType dtype = DType::f32) {
    return tensor(values, {.dtype = dtype, .device = device(), .requires_grad = true});
  }
  static Floats grad(const Tensor& x) { return x.grad().to_vector<float>(); }
};
FUSEGRAD_ON_EVERY_DEVICE(EngineTest);

TEST_P(EngineTest, LeavesAccumulate) {
  const Tensor x = leaf({1, 2});
  sum(x * 3.0).backward();
  EXPECT_EQ(grad(x), (Floats{3, 3}));
  sum(square(x)).backward();
  EXPECT_EQ(grad(x), (Floats{5, 7}));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
}

TEST_P(EngineTest, ALeafUsedTwiceAndADiamondAddUp) {
  const Tensor x = leaf({1, 2});
  sum(x * x + x).backward();
  EXPECT_EQ(grad(x), (Floats{3, 5}));
  const Tensor y = leaf({3});
  const Tensor shared = square(y);
  sum(shared * 2.0 + fusegrad::exp(shared - 9.0)).backward();
  EXPECT_EQ(grad(y), (Floats{18}));
}

TEST_P(EngineTest, LeavesThatReceiveOneGradientDoNotShareItsMemory) {
  const Tensor a = leaf({1, 2});
  const Tensor b = leaf({3, 4});
  sum(a + b).backward();
  {
    const NoGrad guard;
    fill_(a.grad(), 9);
  }
  EXPECT_EQ(grad(b), (Floats{1, 1}));

  const Tensor c = leaf({1, 2});
  const Tensor d = leaf({3, 4});
  sum(view(c, {2, 1}) + view(d, {2, 1})).backward();
  {
    const NoGrad guard;
    fill_(c.grad(), 9);
  }
  EXPECT_EQ(grad(d), (Floats{1, 1}));

  const Tensor e = leaf({1, 2});
  const Tensor given = ones({2}, {.device = device()});
  clone(e).backward(given);
  fill_(given, 7);
  EXPECT_EQ(grad(e), (Floats{1, 1}));
}

TEST_P(EngineTest, ASecondBackwardNeedsRetainGraph) {
  const Tensor x = leaf({2});
  const Tensor once = sum(square(x));
  once.backward();
  EXPECT_THROW(once.backward(), StateError);
  EXPECT_EQ(grad(x), (Floats{4}));
  const Tensor twice = sum(square(x));
  twice.backward({}, {.retain_graph = true});
  twice.backward();
  EXPECT_EQ(grad(x), (Floats{12}));
  EXPECT_THROW(twice.backward(), StateError);
}

TEST_P(EngineTest, NonScalarsNeedAFittingGradient) {
  const Tensor x = leaf({1, 2});
  EXPECT_THROW(square(x).backward(), ShapeError);
  EXPECT_THROW(square(x).backward(ones({3}, {.device = device()})), ShapeError);
  square(x).backward(to(tensor({1, 10}), device()));
  EXPECT_EQ(grad(x), (Floats{2, 40}));
  view(sum(x), {1, 1}).backward();  // one element of any shape is a scalar
  EXPECT_EQ(grad(x), (Floats{3, 41}));
}

TEST_P(EngineTest, ALeafItselfCanBeTheRoot) {
  const Tensor x = leaf({5});
  x.backward();
  EXPECT_EQ(grad(x), (Floats{1}));
}

TEST_P(EngineTest, ATensorWithoutAGraphHasNoBackward) {
  EXPECT_THROW(ones({}, {.device = device()}).backward(), StateError);
  const Tensor x = leaf({1});
  EXPECT_THROW(sum(x.detach()).backward(), StateError);
  const NoGrad guard;
  EXPECT_THROW(sum(x).backward(), StateError);
  EXPECT_THROW(Tensor().backward(), StateError);
}

TEST_P(EngineTest, NoGradAndDetachStopTheRecording) {
  const Tensor x = leaf({3});
  {
    const NoGrad guard;
    EXPECT_FALSE(square(x).requires_grad());
    const EnableGrad inner;
    EXPECT_TRUE(square(x).requires_grad());
  }
  EXPECT_TRUE(grad_enabled());
  sum(x * x.detach()).backward();
  EXPECT_EQ(grad(x), (Floats{3}));
}

TEST_P(EngineTest, ASavedTensorThatWasWrittenToIsRefused) {
  const Tensor x = leaf({1, 2});
  const Tensor y = square(x);
  {
    const NoGrad guard;
    fill_(x, 0);
  }
  try {
    sum(y).backward();
    FAIL() << "no error";
  } catch (const StateError& error) {
    EXPECT_NE(std::string(error.what()).find("square"), std::string::npos) << error.what();
  }
  // A weight changed between forward and backward.
  const Tensor w = tensor({1, 2, 3, 4}, {2, 2}, {.device = device(), .requires_grad = true});
  const Tensor input = tensor({1, 2, 3, 4}, {2, 2}, {.device = device(), .requires_grad = true});
  const Tensor out = linear(input, w);
  {
    const NoGrad guard;
    mul_(w, 2);
  }
  EXPECT_THROW(sum(out).backward(), StateError);
  // A view of it.
  const Tensor base = zeros({4}, {.device = device()});
  const Tensor z = leaf({1, 2}) * rows(base, 0, 2);
  fill_(rows(base, 2, 4), 1);
  EXPECT_THROW(sum(z).backward(), StateError);
}

TEST_P(EngineTest, InPlaceWritesToRecordedTensorsAreRefused) {
  const Tensor x = leaf({1});
  const Tensor y = x * 2.0;
  for (const Tensor& t : {x, y}) {
    EXPECT_THROW(fill_(t, 0), StateError);
    EXPECT_THROW(zero_(t), StateError);
    EXPECT_THROW(mul_(t, 2), StateError);
    EXPECT_THROW(add_(t, t.detach()), StateError);
    EXPECT_THROW(copy_(t, t.detach()), StateError);
    EXPECT_THROW(uniform_(t), StateError);
    EXPECT_THROW(normal_(t), StateError);
  }
  const Tensor plain = zeros({1}, {.device = device()});
  EXPECT_THROW(add_(plain, x), StateError) << "the gradient of x would be lost";
  EXPECT_THROW(copy_(plain, y), StateError);
  EXPECT_EQ(x.to_vector<float>(), (Floats{1}));
  const NoGrad guard;
  const std::uint64_t before = x.version();
  add_(x, ones({1}, {.device = device()}), 2);
  EXPECT_EQ(x.to_vector<float>(), (Floats{3}));
  EXPECT_GT(x.version(), before);
}

TEST_P(EngineTest, ALongChainNeitherOverflowsTheStackNorLeaks) {
  const std::int64_t before = memory_stats(device()).bytes_now;
  {
    constexpr int kNodes = 100'000;
    const Tensor x = leaf({1});
    Tensor y = x;
    for (int i = 0; i < kNodes; ++i) y = y + 1.0;
    sum(y).backward();
    EXPECT_EQ(grad(x), (Floats{1}));
    Tensor dropped = x;  // destroyed without a backward
    for (int i = 0; i < kNodes; ++i) dropped = dropped * 1.0;
  }
  EXPECT_EQ(memory_stats(device()).bytes_now, before);
}

TEST_P(EngineTest, BackwardFreesWhatForwardKept) {
  const Tensor x = ones({1 << 16}, {.device = device(), .requires_grad = true});
  const std::int64_t before = memory_stats(device()).bytes_now;
  Tensor loss;
  {
    const Tensor y = fusegrad::exp(square(x));
    loss = sum(y);
  }
  EXPECT_GT(memory_stats(device()).bytes_now, before + (1 << 18));
  loss.backward();
  x.set_grad({});
  EXPECT_LT(memory_stats(device()).bytes_now, before + 4096);  // the loss itself
}

TEST_P(EngineTest, AGradientHasTheDtypeOfItsLeaf) {
  const Tensor half = leaf({1, 2}, DType::f16);
  const Tensor full_precision = leaf({3, 4});
  const Tensor y = half * full_precision;
  EXPECT_EQ(y.dtype(), DType::f32);
  sum(y).backward();
  EXPECT_EQ(half.grad().dtype(), DType::f16);
  EXPECT_EQ(full_precision.grad().dtype(), DType::f32);
  EXPECT_EQ(grad(half), (Floats{3, 4}));
  const Tensor brain = leaf({1}, DType::bf16);
  EXPECT_EQ((rows(half, 0, 1) + brain).dtype(), DType::f32) << "f16 with bf16 meets in f32";
}

TEST_P(EngineTest, OperandsOfTwoDevicesAreRefused) {
  if (!device().is_cuda()) GTEST_SKIP() << "needs a second device";
  const Tensor here = ones({2});
  const Tensor there = ones({2}, {.device = device()});
  EXPECT_THROW(here + there, DeviceError);
  EXPECT_THROW(mse_loss(here, there), DeviceError);
  EXPECT_THROW(matmul(view(here, {1, 2}), view(there, {2, 1})), DeviceError);
  EXPECT_THROW(here.set_grad(there), DeviceError);
  const Tensor x = ones({2}, {.requires_grad = true});
  sum(square(to(x, device()))).backward();  // but `to` carries gradients back
  EXPECT_EQ(grad(x), (Floats{2, 2}));
}

TEST_P(EngineTest, AParameterThatMovedSinceForwardIsRefused) {
  if (!device().is_cuda()) GTEST_SKIP() << "needs a second device";
  const Tensor x = ones({2}, {.requires_grad = true});
  const Tensor loss = sum(x * 2.0);
  x.set_data(to(x.detach(), device()));
  EXPECT_THROW(loss.backward(), DeviceError);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, ShapesAndDtypesThatDoNotFitAreRefused) {
  const Tensor a = ones({2, 3});
  EXPECT_THROW(a + ones({2}), ShapeError);
  EXPECT_THROW(matmul(a, a), ShapeError);
  EXPECT_THROW(matmul(a, ones({3})), ShapeError);
  EXPECT_THROW(matmul(ones({2, 2, 3}), a, {.transpose_a = true}), ShapeError);
  EXPECT_THROW(matmul(a, ones({3, 2}, {.dtype = DType::f64})), DTypeError);
  EXPECT_THROW(linear(a, ones({4, 2})), ShapeError);
  EXPECT_THROW(linear(a, ones({4, 3}), ones({3})), ShapeError);
  EXPECT_THROW(linear(a, ones({4, 3}, {.dtype = DType::f16})), DTypeError);
  EXPECT_THROW(mse_loss(a, ones({3})), ShapeError);
  EXPECT_THROW(sum(a, 2), ShapeError);
  EXPECT_THROW(view(a, {4, 2}), ShapeError);
  EXPECT_THROW(view(a, {-1, -1}), ShapeError);
  EXPECT_THROW(rows(a, 1, 3), ShapeError);
  EXPECT_THROW(rows(ones({}), 0, 0), ShapeError);
  EXPECT_THROW(relu(ones({2}, {.dtype = DType::i64})), DTypeError);
  EXPECT_THROW(ones({2}, {.dtype = DType::i64, .requires_grad = true}), DTypeError);
  EXPECT_THROW(Tensor() + a, StateError);
  EXPECT_THROW(a.set_grad(ones({2})), ShapeError);
  const Tensor y = ones({2}, {.requires_grad = true}) * 2.0;
  EXPECT_THROW(Tensor(y).requires_grad_(), StateError);
}

TEST_P(EngineTest, TheSameGraphGivesTheSameBits) {
  std::vector<Tensor> grads;
  for (int run = 0; run < 2; ++run) {
    CpuGenerator generator(3);
    const Tensor x = to(randn({64, 32}, generator), device()).detach().requires_grad_();
    const Tensor w = to(randn({16, 32}, generator), device()).detach().requires_grad_();
    mean(gelu(linear(x, w)) * fusegrad::tanh(linear(x * 0.5, w))).backward();
    grads.push_back(w.grad());
  }
  EXPECT_TRUE(same_bits(grads[0], grads[1]));
}

}  // namespace
}  // namespace fusegrad
