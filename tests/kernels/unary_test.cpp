// Unary kernels: slopes in every dtype, and values at the edges of the domain.

#include <cmath>
#include <numbers>
#include <random>

#include <gtest/gtest.h>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/unary.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using kernels::Unary;

constexpr std::array kUnary{Unary::neg, Unary::relu, Unary::sigmoid, Unary::tanh,   Unary::gelu,
                            Unary::exp, Unary::log,  Unary::sqrt,    Unary::square, Unary::abs};

// The derivative at x, from the textbook and not from math/unary.h.
double slope_of(Unary op, double x) {
  switch (op) {
    case Unary::neg:
      return -1;
    case Unary::relu:
      return x > 0 ? 1 : 0;
    case Unary::sigmoid:
      return 1 / ((1 + std::exp(-x)) * (1 + std::exp(x)));
    case Unary::tanh:
      return 1 / (std::cosh(x) * std::cosh(x));
    case Unary::gelu:
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return 1 / x;
    case Unary::sqrt:
      return 0.5 / std::sqrt(x);
    case Unary::square:
      return 2 * x;
    case Unary::abs:
      return x > 0 ? 1 : (x < 0 ? -1 : 0);
  }
  return 0;
}

Tensor random_tensor(std::int64_t size, DType dtype, Device device, double low, double high, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(low, high);
  std::vector<double> values(static_cast<std::size_t>(size));
  for (double& v : values) v = value(random);
  return to(tensor(std::span<const double>(values), {size}, {.dtype = dtype}), device);
}

class UnaryTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(UnaryTest);

TEST_P(UnaryTest, BackwardForEveryDtypeAndSize) {
  for (const Unary op : kUnary) {
    const double low = op == Unary::log || op == Unary::sqrt ? 0.25 : -3;
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      for (const std::int64_t size : {0, 1, 3, 17, 1000, 65537}) {
        const Tensor x = random_tensor(size, dtype, device(), low, 3, 1);
        const Tensor grad_y = random_tensor(size, dtype, device(), -1, 1, 2);
        const Tensor y = empty_like(x);
        const Tensor grad_x = empty_like(x);
        kernels::unary(op, x, y);
        kernels::unary_backward(op, x, y, grad_y, grad_x);
        const std::vector<double> at = x.to_vector<double>();
        const std::vector<double> upstream = grad_y.to_vector<double>();
        const std::vector<double> got = grad_x.to_vector<double>();
        // Slopes of exp, tanh, sigmoid and sqrt come from y, which is rounded to the dtype: an error of half a unit in
        // the last place, which sqrt's 1/y and tanh's 1 − y² at most double; then one more rounding at the end.
        const double unit = dtype == DType::f16    ? 0x1p-11
                            : dtype == DType::bf16 ? 0x1p-8
                            : dtype == DType::f32  ? 0x1p-22
                                                   : 0x1p-50;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double want = upstream[i] * slope_of(op, at[i]);
          ASSERT_NEAR(got[i], want, 3 * unit * std::max(1.0, std::fabs(want)))
              << "op " << static_cast<int>(op) << " " << name(dtype) << ", x = " << at[i];
        }
      }
    }
  }
}

TEST_P(UnaryTest, SaturatesAndOverflowsAsTheFunctionsDo) {
  const auto value = [&](Unary op, double x, DType dtype) {
    const Tensor in = to(tensor({x}, {.dtype = dtype}), device());
    const Tensor out = empty_like(in);
    kernels::unary(op, in, out);
    return out.item<double>();
  };
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    EXPECT_EQ(value(Unary::sigmoid, 1000, dtype), 1);
    EXPECT_EQ(value(Unary::sigmoid, -1000, dtype), 0);
    EXPECT_EQ(value(Unary::tanh, 1000, dtype), 1);
    EXPECT_EQ(value(Unary::tanh, -1000, dtype), -1);
    EXPECT_EQ(value(Unary::gelu, 1000, dtype), 1000);
    EXPECT_EQ(value(Unary::gelu, -1000, dtype), 0);
    EXPECT_EQ(value(Unary::exp, 1000, dtype), INFINITY);
    EXPECT_EQ(value(Unary::exp, -1000, dtype), 0);
    EXPECT_EQ(value(Unary::log, 0, dtype), -INFINITY);
    EXPECT_TRUE(std::isnan(value(Unary::log, -1, dtype)));
    EXPECT_TRUE(std::isnan(value(Unary::sqrt, -1, dtype)));
    EXPECT_EQ(value(Unary::sqrt, 0, dtype), 0);
    EXPECT_EQ(value(Unary::abs, -3, dtype), 3);
    EXPECT_EQ(value(Unary::square, 300, dtype), dtype == DType::f16 ? INFINITY : dtype == DType::bf16 ? 90112 : 90000);
    EXPECT_TRUE(std::signbit(value(Unary::neg, 0, dtype)));
  }
}

TEST_P(UnaryTest, SlopesAtKinksAndInSaturation) {
  const auto slope = [&](Unary op, double x) {
    const Tensor in = to(tensor({x}), device());
    const Tensor out = empty_like(in);
    const Tensor one = ones({1}, {.device = device()});
    const Tensor grad = empty_like(in);
    kernels::unary(op, in, out);
    kernels::unary_backward(op, in, out, one, grad);
    return grad.item<double>();
  };
  EXPECT_EQ(slope(Unary::relu, 0.0), 0);
  EXPECT_EQ(slope(Unary::relu, -0.0), 0);
  EXPECT_EQ(slope(Unary::relu, 0x1p-149), 1);
  EXPECT_EQ(slope(Unary::abs, 0.0), 0);
  EXPECT_EQ(slope(Unary::abs, -0x1p-149), -1);
  EXPECT_EQ(slope(Unary::sqrt, 0.0), INFINITY);
  for (const double far : {-1000.0, 1000.0}) {
    EXPECT_EQ(slope(Unary::sigmoid, far), 0);
    EXPECT_EQ(slope(Unary::tanh, far), 0);
    EXPECT_EQ(slope(Unary::gelu, far), far > 0 ? 1 : 0);
  }
}

}  // namespace
}  // namespace fusegrad
