// Mean squared error against a double reference, in every floating dtype, where 16-bit arithmetic would lose it too.

#include <cmath>
#include <random>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/mse_loss.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

/// Half the distance of neighbouring values near 1.
double rounding(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return std::ldexp(1.0, -11);
    case DType::bf16:
      return std::ldexp(1.0, -8);
    case DType::f32:
      return std::ldexp(1.0, -24);
    default:
      return std::ldexp(1.0, -53);
  }
}

class MSELossTest : public DeviceTest {
 protected:
  static Tensor leaf(const Shape& shape, DType dtype, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (double& value : values) value = normal(random);
    return tensor(std::span<const double>(values), shape, {.dtype = dtype, .device = device(), .requires_grad = true});
  }
};
FUSEGRAD_ON_EVERY_DEVICE(MSELossTest);

TEST_P(MSELossTest, ValuesAndGradientsAgreeWithDoubleForEveryReduction) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
      const Tensor x = leaf({7, 11}, dtype, 1);
      const Tensor target = leaf({7, 11}, dtype, 2);
      const Tensor loss = nn::MSELoss(reduction)(x, target);
      EXPECT_EQ(loss.dtype(), math_dtype(dtype));
      EXPECT_EQ(loss.shape(), reduction == Reduction::none ? x.shape() : Shape{});
      loss.backward(full(loss.shape(), 0.5, {.dtype = loss.dtype(), .device = device()}));

      const std::vector<double> a = x.to_vector<double>();
      const std::vector<double> b = target.to_vector<double>();
      const double divisor = reduction == Reduction::mean ? 77 : 1;
      const double tolerance = 8 * rounding(math_dtype(dtype));  // a difference, a square, a quotient, their rounding
      double total = 0;
      for (std::size_t i = 0; i < a.size(); ++i) total += (a[i] - b[i]) * (a[i] - b[i]);
      if (reduction != Reduction::none) {
        EXPECT_NEAR(loss.item<double>(), total / divisor, tolerance * total / divisor);
      }
      const std::vector<double> values = loss.to_vector<double>();
      const std::vector<double> grad_x = x.grad().to_vector<double>();
      const std::vector<double> grad_target = target.grad().to_vector<double>();
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = a[i] - b[i];
        if (reduction == Reduction::none) {
          EXPECT_NEAR(values[i], difference * difference, tolerance * difference * difference);
        }
        const double want = 0.5 * 2 * difference / divisor;
        // Rounded once to the dtype, on top of the arithmetic's roundings; f16 is subnormal below 2^-14.
        const double allowed = (tolerance + 2 * rounding(dtype)) * std::fabs(want) + std::ldexp(1.0, -25);
        EXPECT_NEAR(grad_x[i], want, allowed);
        EXPECT_EQ(grad_target[i], -grad_x[i]);
      }
    }
  }
}

TEST_P(MSELossTest, LargeSixteenBitInputsDoNotOverflow) {
  // 100,000 differences of 300: a square (90,000), the sum and the count itself are all beyond f16's 65504.
  const TensorOptions options{.dtype = DType::f16, .device = device(), .requires_grad = true};
  const Tensor x = full({100'000}, 200, options);
  const Tensor target = full({100'000}, -100, {.dtype = DType::f16, .device = device()});
  const Tensor mean_loss = nn::MSELoss()(x, target);
  EXPECT_EQ(mean_loss.dtype(), DType::f32);
  EXPECT_EQ(mean_loss.item<double>(), 90'000);
  EXPECT_EQ(nn::MSELoss(Reduction::sum)(x, target).item<float>(), 9e9f);  // exact in double, rounded once
  EXPECT_EQ(nn::MSELoss(Reduction::none)(x, target).to_vector<double>()[99'999], 90'000);
  mean_loss.backward();
  for (const double g : x.grad().to_vector<double>()) EXPECT_NEAR(g, 2 * 300 / 1e5, 0.006 * rounding(DType::f16));
}

TEST_P(MSELossTest, NonFiniteInputsShowInTheLoss) {
  const Tensor zero = zeros({3}, {.device = device()});
  const Tensor infinite = to(tensor({1, INFINITY, 2}), device());
  EXPECT_EQ(nn::MSELoss()(infinite, zero).item<double>(), INFINITY);
  EXPECT_TRUE(std::isnan(nn::MSELoss()(infinite, infinite).item<double>())) << "inf - inf";
  EXPECT_TRUE(std::isnan(nn::MSELoss()(to(tensor({1, NAN, 2}), device()), zero).item<double>()));
}

TEST_P(MSELossTest, OnlyTheOperandThatAsksGetsAGradient) {
  const Tensor x = leaf({4}, DType::f32, 1);
  const Tensor target = leaf({4}, DType::f32, 2).requires_grad_(false);
  nn::MSELoss()(x, target).backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(target.grad().defined());
  EXPECT_FALSE(nn::MSELoss()(target, target).requires_grad());
}

TEST_P(MSELossTest, RefusesShapesAndDtypesAndSaysHowToBroadcast) {
  const Tensor x = zeros({4, 1}, {.device = device()});
  try {
    (void)nn::MSELoss()(x, zeros({4}, {.device = device()}));
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_NE(error.fault().way_out.find("square"), std::string::npos) << error.what();
  }
  const TensorOptions whole{.dtype = DType::i64, .device = device()};
  EXPECT_THROW(nn::MSELoss()(zeros({4}, whole), zeros({4}, whole)), DTypeError);
}

}  // namespace
}  // namespace fusegrad
