// Writes in place: their values, their version, and calls that are refused and change nothing. What autograd refuses
// stands in engine_test.cpp.

#include <array>
#include <cmath>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using Doubles = std::vector<double>;
constexpr std::array kFloatingDTypes{DType::f16, DType::bf16, DType::f32, DType::f64};

class InplaceTest : public DeviceTest {
 protected:
  static Tensor values(std::initializer_list<double> values, DType dtype = DType::f32) {
    return tensor(values, {.dtype = dtype, .device = device()});
  }
};
FUSEGRAD_ON_EVERY_DEVICE(InplaceTest);

TEST_P(InplaceTest, WritesItsResultIntoTheSameMemoryAndReturnsTheHandle) {
  for (const DType dtype : kFloatingDTypes) {  // all numbers below are exact in each of them
    const Tensor x = values({1, -2, 3}, dtype);
    const Tensor y = values({4, 5, -6}, dtype);
    const void* memory = x.raw();
    EXPECT_TRUE(add_(x, y).is_same(x));
    EXPECT_EQ(x.to_vector<double>(), (Doubles{5, 3, -3}));
    EXPECT_TRUE(add_(x, y, -0.5).is_same(x));
    EXPECT_EQ(x.to_vector<double>(), (Doubles{3, 0.5, 0}));
    EXPECT_TRUE(mul_(x, 4).is_same(x));
    EXPECT_EQ(x.to_vector<double>(), (Doubles{12, 2, 0}));
    EXPECT_TRUE(copy_(x, y).is_same(x));
    EXPECT_EQ(x.to_vector<double>(), (Doubles{4, 5, -6}));
    EXPECT_TRUE(fill_(x, 7).is_same(x));
    EXPECT_EQ(x.to_vector<double>(), (Doubles{7, 7, 7}));
    EXPECT_TRUE(zero_(x).is_same(x));
    EXPECT_EQ(x.to_vector<double>(), (Doubles{0, 0, 0}));
    EXPECT_TRUE(uniform_(x).is_same(x));
    EXPECT_TRUE(normal_(x).is_same(x));
    EXPECT_EQ(x.raw(), memory);
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_EQ(y.to_vector<double>(), (Doubles{4, 5, -6})) << "the source changed";
  }
}

TEST_P(InplaceTest, EveryWriteBumpsTheVersionOfAllViews) {
  const Tensor x = values({1, 2, 3, 4});
  const Tensor part = rows(x, 0, 2);
  const Tensor y = values({1, 1});
  const std::uint64_t source_version = y.version();
  std::uint64_t before = x.version();
  const auto expect_bumped = [&](const char* op) {
    EXPECT_GT(x.version(), before) << op;
    EXPECT_EQ(x.version(), part.version()) << op;
    before = x.version();
  };
  fill_(part, 1), expect_bumped("fill_");
  zero_(part), expect_bumped("zero_");
  copy_(part, y), expect_bumped("copy_");
  add_(part, y), expect_bumped("add_");
  add_(part, y, 2), expect_bumped("add_ with alpha");
  mul_(part, 2), expect_bumped("mul_");
  EXPECT_EQ(x.to_vector<double>(), (Doubles{8, 8, 3, 4}));
  uniform_(part), expect_bumped("uniform_");
  normal_(part), expect_bumped("normal_");
  EXPECT_EQ(y.version(), source_version);
}

TEST_P(InplaceTest, AnOperandMayBeTheTarget) {
  const Tensor x = values({1, 2});
  add_(x, x);
  EXPECT_EQ(x.to_vector<double>(), (Doubles{2, 4}));
  add_(x, x, 2);
  EXPECT_EQ(x.to_vector<double>(), (Doubles{6, 12}));
  copy_(x, x);
  EXPECT_EQ(x.to_vector<double>(), (Doubles{6, 12}));
}

TEST_P(InplaceTest, CopyConvertsDtypesAndCrossesDevices) {
  const Doubles exact{0, 1, -2, 0.5, 96};  // in every floating dtype
  for (const DType from : kFloatingDTypes) {
    for (const DType to : kFloatingDTypes) {
      const Tensor source = tensor(std::span<const double>(exact), Shape{5}, {.dtype = from});
      const Tensor target = zeros({5}, {.dtype = to, .device = device()});
      const Tensor back = zeros({5}, {.dtype = from});
      copy_(back, copy_(target, source));
      EXPECT_EQ(target.to_vector<double>(), exact);
      EXPECT_TRUE(same_bits(back, source));
    }
  }
  const Tensor whole = zeros({5}, {.dtype = DType::i64, .device = device()});
  copy_(whole, values({1.75, -1.75, 0, 3, -4}));
  EXPECT_EQ(whole.to_vector<double>(), (Doubles{1, -1, 0, 3, -4})) << "to integers it cuts off";
}

TEST_P(InplaceTest, SixteenBitSumsAreRoundedOnceAndOverflowToInfinity) {
  const Tensor x = values({1, 65504, 2048}, DType::f16);
  add_(x, values({0.00048828125, 65504, 1}, DType::f16));  // 1 + 2^-11 and 2049 lie in the middle: to even
  EXPECT_EQ(x.to_vector<double>(), (Doubles{1, INFINITY, 2048}));
}

TEST_P(InplaceTest, RandomWritesTakeTheirNumbersFromTheDefaultGenerator) {
  const Tensor x = empty({1000}, {.device = device()});
  manual_seed(4);
  uniform_(x, -3, 5);
  for (const double v : x.to_vector<double>()) EXPECT_TRUE(v >= -3 && v < 5) << v;
  manual_seed(4);
  EXPECT_TRUE(same_bits(x, uniform_(empty_like(x), -3, 5)));
  manual_seed(4);
  normal_(x);
  manual_seed(4);
  EXPECT_TRUE(same_bits(x, randn({1000}, {.device = device()})));
  normal_(x, 2.5, 0);
  EXPECT_EQ(x.to_vector<double>(), Doubles(1000, 2.5));
}

TEST_P(InplaceTest, RefusedCallsChangeNeitherElementsNorVersion) {
  const Tensor x = values({1, 2});
  const std::uint64_t version = x.version();
  const TensorOptions f64{.dtype = DType::f64, .device = device()};
  EXPECT_THROW(copy_(x, values({1, 2, 3})), ShapeError);
  EXPECT_THROW(copy_(x, values({5})), ShapeError) << "copies do not broadcast";
  EXPECT_THROW(add_(x, values({1})), ShapeError);
  EXPECT_THROW(add_(x, ones({2}, f64)), DTypeError);
  EXPECT_THROW(uniform_(x, 2, 1), ValueError);
  EXPECT_THROW(uniform_(x, 0, NAN), ValueError);
  EXPECT_THROW(normal_(x, 0, -1), ValueError);
  EXPECT_THROW(normal_(x, 0, NAN), ValueError);
  if (device().is_cuda()) {
    EXPECT_THROW(add_(x, ones({2})), DeviceError);
  }
  EXPECT_EQ(x.to_vector<double>(), (Doubles{1, 2}));
  EXPECT_EQ(x.version(), version);
  const Tensor whole = zeros({2}, {.dtype = DType::i64, .device = device()});
  EXPECT_THROW(uniform_(whole), DTypeError);
  EXPECT_THROW(normal_(whole), DTypeError);
  EXPECT_EQ(whole.to_vector<double>(), (Doubles{0, 0}));
  EXPECT_THROW(fill_(Tensor(), 1), StateError);
}

TEST_P(InplaceTest, EmptyTensorsAreWrittenToWithoutHarm) {
  const Tensor x = empty({0, 3}, {.device = device()});
  fill_(x, 1);
  zero_(x);
  copy_(x, clone(x));
  add_(x, clone(x), 2);
  mul_(x, 2);
  uniform_(x);
  EXPECT_TRUE(normal_(x).to_vector<double>().empty());
}

}  // namespace
}  // namespace fusegrad
