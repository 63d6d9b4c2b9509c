// Elementwise kernels on every device, dtype and awkward size, against double.

#include <cmath>
#include <random>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/unary.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using kernels::Binary;
using kernels::Side;
using kernels::Unary;

constexpr std::array kFloating{DType::f16, DType::bf16, DType::f32, DType::f64};
constexpr std::array<std::int64_t, 6> kSizes{0, 1, 3, 17, 1000, 65537};

// One unit in the last place of a dtype, relative, with some room for the device's exp, tanh and erf.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 1e-3;
    case DType::bf16:
      return 8e-3;
    case DType::f32:
      return 1e-6;
    default:
      return 1e-14;
  }
}

Tensor random_tensor(const Shape& shape, DType dtype, Device device, double low, double high, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(low, high);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values) v = value(random);
  return to(tensor(std::span<const double>(values), shape, {.dtype = dtype}), device);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double relative,
                 const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * std::max(1.0, std::fabs(want[i]))) << where << ", element " << i;
  }
}

class ElementwiseTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(ElementwiseTest);

TEST_P(ElementwiseTest, FillsEveryDtypeAndSize) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64}) {
    for (const std::int64_t size : kSizes) {
      const Tensor x = full({size}, 3, {.dtype = dtype, .device = device()});
      EXPECT_EQ(x.to_vector<double>(), std::vector<double>(static_cast<std::size_t>(size), 3.0));
    }
  }
}

TEST_P(ElementwiseTest, ConvertsBetweenAllDtypesAsTheHostDoes) {
  for (const DType from : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64}) {
    const Tensor here = random_tensor({1003}, from, kCPU, -70000, 70000);
    const Tensor there = to(here, device());
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64}) {
      const Tensor want = Tensor::empty({1003}, dtype);
      visit(from, [&]<class From>(TypeTag<From>) {
        visit(dtype, [&]<class To>(TypeTag<To>) {
          for (std::size_t i = 0; i < 1003; ++i) {
            const From value = here.span<From>()[i];
            want.span<To>()[i] = convert<To>(value);
          }
        });
      });
      if (dtype == DType::i64 && from == DType::f16) continue;  // ±70000 is infinite in f16, and no integer is
      EXPECT_TRUE(same_bits(to(to(there, dtype), kCPU), want)) << name(from) << " to " << name(dtype);
    }
  }
}

TEST_P(ElementwiseTest, ConvertsEveryHalfPatternAsTheHostDoes) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor all = Tensor::empty({65536}, dtype);
    auto* bits = static_cast<std::uint16_t*>(all.raw());
    for (std::uint32_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
    const Tensor moved = to(all, device());
    for (const DType wide : {DType::f32, DType::f64}) {
      const Tensor there = to(moved, wide);
      EXPECT_TRUE(same_bits(to(there, kCPU), to(all, wide)));
      EXPECT_TRUE(same_bits(to(to(there, dtype), kCPU), all)) << "and back";
    }
  }
  // Random bit patterns, ties among them, down to 16 bits.
  std::mt19937 random(3);
  const Tensor floats = Tensor::empty({1 << 20});
  for (float& value : floats.span<float>()) {
    const std::uint32_t tie = (random() & 3u) == 0 ? 0xffffe000u : 0xffffffffu;
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & tie);
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_TRUE(same_bits(to(to(to(floats, device()), dtype), kCPU), to(floats, dtype)));
  }
}

double value_of(Unary op, double x) {
  switch (op) {
    case Unary::neg:
      return -x;
    case Unary::relu:
      return std::max(x, 0.0);
    case Unary::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Unary::tanh:
      return std::tanh(x);
    case Unary::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return std::log(x);
    case Unary::sqrt:
      return std::sqrt(x);
    case Unary::square:
      return x * x;
    case Unary::abs:
      return std::fabs(x);
  }
  return 0;
}

constexpr std::array kUnary{Unary::neg, Unary::relu, Unary::sigmoid, Unary::tanh,   Unary::gelu,
                            Unary::exp, Unary::log,  Unary::sqrt,    Unary::square, Unary::abs};

TEST_P(ElementwiseTest, UnaryFunctionsForEveryDtypeAndSize) {
  for (const Unary op : kUnary) {
    const double low = op == Unary::log || op == Unary::sqrt ? 0.1 : -4;
    for (const DType dtype : kFloating) {
      for (const std::int64_t size : kSizes) {
        const Tensor x = random_tensor({size}, dtype, device(), low, 4);
        const Tensor y = empty_like(x);
        kernels::unary(op, x, y);
        std::vector<double> want = x.to_vector<double>();
        for (double& v : want) v = value_of(op, v);
        expect_near(y.to_vector<double>(), want, tolerance(dtype),
                    cat("op ", static_cast<int>(op), " ", name(dtype), " ", size));
      }
    }
  }
}

TEST_P(ElementwiseTest, UnaryBackwardIsTheSlopeTimesTheGradient) {
  for (const Unary op : kUnary) {
    const double low = op == Unary::log || op == Unary::sqrt ? 0.5 : -3;
    const Tensor x = random_tensor({1001}, DType::f64, device(), low, 3, 7);
    const Tensor y = empty_like(x);
    const Tensor grad_y = random_tensor({1001}, DType::f64, device(), -1, 1, 8);
    const Tensor grad_x = empty_like(x);
    kernels::unary(op, x, y);
    kernels::unary_backward(op, x, y, grad_y, grad_x);
    const std::vector<double> at = x.to_vector<double>();
    std::vector<double> want = grad_y.to_vector<double>();
    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < want.size(); ++i) {
      want[i] *= (value_of(op, at[i] + kStep) - value_of(op, at[i] - kStep)) / (2 * kStep);
    }
    // The difference quotient is good to about 1e-10; kinks of relu and abs are 3/1001 away on average.
    expect_near(grad_x.to_vector<double>(), want, 1e-8, cat("op ", static_cast<int>(op)));
  }
}

TEST_P(ElementwiseTest, NaNStaysNaNAndInfinitiesAreKept) {
  const double inf = INFINITY;
  const Tensor x = to(tensor({NAN, inf, -inf, -0.0}), device());
  for (const Unary op : kUnary) {
    const Tensor y = empty_like(x);
    kernels::unary(op, x, y);
    EXPECT_TRUE(std::isnan(y.to_vector<double>()[0])) << static_cast<int>(op);
  }
  EXPECT_EQ(relu(x).to_vector<double>()[1], inf);
  EXPECT_EQ(relu(x).to_vector<double>()[2], 0.0);
  EXPECT_EQ(abs(x).to_vector<double>()[2], inf);
}

double value_of(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::div:
      return a / b;
  }
  return 0;
}

constexpr std::array kBinary{Binary::add, Binary::sub, Binary::mul, Binary::div};

// The element of `x` that position `flat` of `out` sees.
double seen(const Tensor& x, const std::vector<double>& values, const Shape& out, std::int64_t flat) {
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  for (int back = 1; back <= out.dims(); ++back) {
    const std::int64_t index = flat % out[-back];
    flat /= out[-back];
    if (back > x.dims()) continue;
    if (x.size(-back) != 1) offset += index * stride;
    stride *= x.size(-back);
  }
  return values[static_cast<std::size_t>(offset)];
}

TEST_P(ElementwiseTest, BinaryFunctionsBroadcast) {
  const std::vector<std::pair<Shape, Shape>> pairs{{{0}, {0}},
                                                   {{0, 3}, {3}},
                                                   {{17}, {17}},
                                                   {{17}, {}},
                                                   {{}, {17}},
                                                   {{1000}, {1}},
                                                   {{5, 7}, {7}},
                                                   {{5, 7}, {5, 1}},
                                                   {{5, 1}, {1, 7}},
                                                   {{2, 3, 4}, {3, 1}},
                                                   {{2, 1, 4}, {3, 1}},
                                                   {{3, 1, 5}, {2, 5}},
                                                   {{2, 3, 1, 5}, {4, 1}},
                                                   {{301, 200}, {200}},
                                                   {{70000}, {70000}},
                                                   {{1, 1}, {1}},
                                                   {{4, 1, 3, 1}, {1, 5, 1, 2}}};
  for (const Binary op : kBinary) {
    for (const DType dtype : kFloating) {
      for (const auto& [left, right] : pairs) {
        const Tensor a = random_tensor(left, dtype, device(), 0.5, 2, 1);
        const Tensor b = random_tensor(right, dtype, device(), 0.5, 2, 2);
        const Shape shape = broadcast(left, right, "test");
        const Tensor out = Tensor::empty(shape, dtype, device());
        kernels::binary(op, a, b, out);
        const std::vector<double> in_a = a.to_vector<double>();
        const std::vector<double> in_b = b.to_vector<double>();
        std::vector<double> want(static_cast<std::size_t>(shape.numel()));
        for (std::size_t i = 0; i < want.size(); ++i) {
          const auto flat = static_cast<std::int64_t>(i);
          want[i] = value_of(op, seen(a, in_a, shape, flat), seen(b, in_b, shape, flat));
        }
        expect_near(out.to_vector<double>(), want, tolerance(dtype), cat(left.str(), " ", right.str()));
      }
    }
  }
}

TEST_P(ElementwiseTest, NumbersStandOnEitherSideAndOutMayBeTheOperand) {
  for (const Binary op : kBinary) {
    for (const Side side : {Side::left, Side::right}) {
      const Tensor a = random_tensor({1000}, DType::f32, device(), 1, 2);
      std::vector<double> want = a.to_vector<double>();
      for (double& v : want) v = side == Side::left ? value_of(op, 3, v) : value_of(op, v, 3);
      kernels::binary_scalar(op, a, 3, side, a);
      expect_near(a.to_vector<double>(), want, 1e-6, cat("op ", static_cast<int>(op)));
    }
  }
}

}  // namespace
}  // namespace fusegrad
