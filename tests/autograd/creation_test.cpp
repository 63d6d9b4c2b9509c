// Making tensors: what is in them, what they refuse, and which generator their random numbers come from.

#include <array>
#include <cmath>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

constexpr std::array kFloatingDTypes{DType::f16, DType::bf16, DType::f32, DType::f64};

class CreationTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(CreationTest);

TEST_P(CreationTest, ConstantsFillEveryShapeAndDtype) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{2, 0, 3}, Shape{3, 5, 2}}) {
      const TensorOptions options{.dtype = dtype, .device = device()};
      const std::vector<std::pair<Tensor, double>> made{
          {zeros(shape, options), 0}, {ones(shape, options), 1}, {full(shape, -2.5, options), -2.5}};
      for (const auto& [x, value] : made) {
        EXPECT_EQ(x.shape(), shape);
        EXPECT_EQ(x.dtype(), dtype);
        EXPECT_EQ(x.device(), device());
        EXPECT_FALSE(x.requires_grad());
        const double want = dtype == DType::i64 ? std::trunc(value) : value;
        EXPECT_EQ(x.to_vector<double>(), std::vector<double>(static_cast<std::size_t>(shape.numel()), want));
      }
    }
  }
}

TEST_P(CreationTest, ValuesStandInRowMajorOrderAndAreRoundedOnce) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, {.device = device()});
  EXPECT_EQ(rows(x, 1, 2).to_vector<float>(), (std::vector<float>{4, 5, 6}));
  const Tensor vector = tensor({1, 2}, {.dtype = DType::i64, .device = device()});
  EXPECT_EQ(vector.shape(), Shape{2});
  EXPECT_EQ(vector.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2}));
  const std::vector<float> singles{0.1f, -0.2f};
  const Tensor wide = tensor(std::span<const float>(singles), Shape{2}, {.dtype = DType::f64, .device = device()});
  EXPECT_EQ(wide.to_vector<double>(), (std::vector<double>{0.1f, -0.2f}));
  // Just above the middle of 1 and the next f16. Rounded to f32 on the way it would be the middle itself, and then 1.
  const double above_middle = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  const Tensor half = tensor({above_middle}, {.dtype = DType::f16, .device = device()});
  EXPECT_EQ(half.item<double>(), 1 + std::ldexp(1.0, -10));
}

TEST_P(CreationTest, LikeTakesShapeDtypeAndDeviceButNoGradient) {
  for (const DType dtype : kFloatingDTypes) {
    const Tensor x = ones({2, 3}, {.dtype = dtype, .device = device(), .requires_grad = true});
    for (const Tensor& like : {empty_like(x), zeros_like(x)}) {
      EXPECT_EQ(like.shape(), x.shape());
      EXPECT_EQ(like.dtype(), dtype);
      EXPECT_EQ(like.device(), device());
      EXPECT_FALSE(like.requires_grad());
      EXPECT_NE(like.raw(), x.raw());
    }
    EXPECT_EQ(zeros_like(x).to_vector<double>(), std::vector<double>(6, 0.0));
  }
}

TEST_P(CreationTest, RequiresGradMakesALeaf) {
  const TensorOptions options{.device = device(), .requires_grad = true};
  for (const Tensor& x : {empty({3}, options), zeros({3}, options), ones({3}, options), full({3}, 2, options),
                          tensor({1, 2, 3}, options), rand({3}, options), randn({3}, options)}) {
    EXPECT_TRUE(x.requires_grad());
    EXPECT_TRUE(x.is_leaf());
    EXPECT_FALSE(x.grad().defined());
  }
}

TEST_P(CreationTest, RandomNumbersRepeatFromASeedAndGoOn) {
  const TensorOptions options{.device = device()};
  manual_seed(5);
  const Tensor uniform = rand({100}, options);
  const Tensor normal = randn({100}, options);
  EXPECT_FALSE(same_bits(uniform, rand({100}, options))) << "the generator did not move";
  manual_seed(5);
  EXPECT_TRUE(same_bits(uniform, rand({100}, options)));
  EXPECT_TRUE(same_bits(normal, randn({100}, options)));
}

TEST_P(CreationTest, OwnGeneratorsGiveTheDefaultOnesNumbersAndLeaveThemAlone) {
  const TensorOptions options{.device = device()};
  const auto compare = [&](auto generator) {
    manual_seed(11);
    const Tensor uniform = rand({64}, options);
    const Tensor normal = randn({64}, options);
    manual_seed(11);
    EXPECT_TRUE(same_bits(rand({64}, generator, options), uniform));
    EXPECT_TRUE(same_bits(randn({64}, generator, options), normal));
    EXPECT_TRUE(same_bits(rand({64}, options), uniform)) << "drawn from the default generator";
  };
  if (device().is_cpu()) {
    compare(CpuGenerator(11));
  } else {
    compare(CudaGenerator(11));
  }
}

TEST(Creation, ACpuTensorCanHoldTheNumbersOfTheCudaGenerator) {
  CudaGenerator cuda(11);
  CpuGenerator cpu(11);
  const Tensor x = rand({64}, cuda);
  EXPECT_EQ(x.device(), kCPU);
  EXPECT_FALSE(same_bits(x, rand({64}, cpu)));
  EXPECT_GT(cuda.offset(), 0u);
}

TEST(Creation, RefusesWhatItCannotMake) {
  EXPECT_THROW(tensor({1, 2, 3}, {2, 2}), ShapeError);
  EXPECT_THROW(tensor({}, {1}), ShapeError);
  EXPECT_THROW(tensor({1, 2}, {.dtype = DType::i64, .requires_grad = true}), DTypeError);
  EXPECT_THROW(rand({2}, {.dtype = DType::i64}), DTypeError);
  EXPECT_THROW(randn({2}, {.dtype = DType::i64}), DTypeError);
  EXPECT_THROW(zeros({2}, {.device = {DeviceType::cuda, 77}}), DeviceError);
  EXPECT_THROW(zeros({-1}), ShapeError);
}

}  // namespace
}  // namespace fusegrad
