// Binary kernels: bits, special values, in-place results and eight dimensions.

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using kernels::Binary;
using kernels::Side;

constexpr std::array kBinary{Binary::add, Binary::sub, Binary::mul, Binary::div};
constexpr std::array kFloating{DType::f16, DType::bf16, DType::f32, DType::f64};

template <class M>
M value_of(Binary op, M a, M b) {
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
  return a;
}

// Numbers of every size with special ones among them, so that sums overflow, cancel and become subnormal.
Tensor wild_tensor(std::int64_t size, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value;
  std::uniform_int_distribution<int> exponent(-24, 16);
  const std::array<double, 7> special{0.0, -0.0, INFINITY, -INFINITY, NAN, 65504.0, 1.0};
  std::vector<double> values(static_cast<std::size_t>(size));
  for (double& v : values) {
    v = random() % 8 == 0 ? special[random() % special.size()] : std::ldexp(value(random), exponent(random));
  }
  return tensor(std::span<const double>(values), {size}, {.dtype = dtype});
}

class BinaryTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(BinaryTest);

TEST_P(BinaryTest, ComputesInTheMathTypeAndRoundsOnce) {
  for (const Binary op : kBinary) {
    for (const DType dtype : kFloating) {
      for (const std::int64_t size : {0, 1, 3, 17, 1000, 65537}) {
        const Tensor a = wild_tensor(size, dtype, 1);
        const Tensor b = wild_tensor(size, dtype, 2);
        const Tensor want = empty_like(a);
        const Tensor want_scalar = empty_like(a);
        visit_floating(dtype, "test", [&]<class T>(TypeTag<T>) {
          using M = MathType<T>;
          for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
            const M left = convert<M>(a.span<T>()[i]);
            const M right = convert<M>(b.span<T>()[i]);
            want.span<T>()[i] = convert<T>(value_of(op, left, right));
            // The number itself is not rounded to the dtype: 0.1 in f32 times an f16.
            want_scalar.span<T>()[i] = convert<T>(value_of(op, convert<M>(0.1), left));
          }
        });
        const Tensor out = Tensor::empty({size}, dtype, device());
        kernels::binary(op, to(a, device()), to(b, device()), out);
        EXPECT_TRUE(same_bits(to(out, kCPU), want)) << static_cast<int>(op) << " " << name(dtype) << " " << size;
        kernels::binary_scalar(op, to(a, device()), 0.1, Side::left, out);
        EXPECT_TRUE(same_bits(to(out, kCPU), want_scalar)) << static_cast<int>(op) << " " << name(dtype) << " " << size;
      }
    }
  }
}

TEST_P(BinaryTest, TheResultMayBeEitherOperand) {
  for (const Binary op : kBinary) {
    for (const DType dtype : kFloating) {
      const Tensor a = to(wild_tensor(65537, dtype, 3), device());
      const Tensor b = to(wild_tensor(65537, dtype, 4), device());
      const Tensor want = empty_like(a);
      kernels::binary(op, a, b, want);
      const Tensor left = clone(a);
      kernels::binary(op, left, b, left);
      EXPECT_TRUE(same_bits(left, want));
      const Tensor right = clone(b);
      kernels::binary(op, a, right, right);
      EXPECT_TRUE(same_bits(right, want));
    }
  }
}

TEST_P(BinaryTest, BroadcastsOverEightDimensions) {
  const Shape left{2, 1, 3, 1, 2, 1, 2, 1};
  const Shape right{1, 2, 1, 3, 1, 2, 1, 2};
  const Shape shape = broadcast(left, right, "test");
  // Element i of `left` is i, of `right` 100·i: the sum says which pair was read.
  const auto counted = [&](const Shape& of, double step) {
    std::vector<double> values(static_cast<std::size_t>(of.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = step * static_cast<double>(i);
    return to(tensor(std::span<const double>(values), of), device());
  };
  const Tensor out = Tensor::empty(shape, DType::f32, device());
  kernels::binary(Binary::add, counted(left, 1), counted(right, 100), out);
  const std::vector<double> got = out.to_vector<double>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Sizes of `out` are 2 2 3 3 2 2 2 2; even dimensions index `left`, odd ones `right`.
    std::size_t rest = i;
    std::array<std::size_t, 8> at{};
    for (int d = 7; d >= 0; --d) {
      const auto size = static_cast<std::size_t>(shape[d]);
      at[static_cast<std::size_t>(d)] = rest % size;
      rest /= size;
    }
    const std::size_t of_left = ((at[0] * 3 + at[2]) * 2 + at[4]) * 2 + at[6];
    const std::size_t of_right = ((at[1] * 3 + at[3]) * 2 + at[5]) * 2 + at[7];
    ASSERT_EQ(got[i], static_cast<double>(of_left + 100 * of_right)) << i;
  }
}

}  // namespace
}  // namespace fusegrad
