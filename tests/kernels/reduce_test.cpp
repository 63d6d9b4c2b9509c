// Sums at the shapes that training makes: exact on integers, of fixed order, and within their bounds.

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/reduce.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/kernels/integers.h>

namespace fusegrad {
namespace {

using kernels::ReduceShape;

Tensor normal_tensor(const Shape& shape, DType dtype, Device device, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value;
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& v : values) v = value(random);
  return to(tensor(std::span<const float>(values), shape, {.dtype = dtype}), device);
}

class ReduceTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(ReduceTest);

TEST_P(ReduceTest, SumsOfIntegersAreExactAndTouchNothingElse) {
  const std::vector<ReduceShape> shapes{{1, 262144, 10}, {1, 1000, 8192}, {1, 511, 33},  {1, 512, 31},   {1, 513, 32},
                                        {3, 1025, 7},    {5, 1, 9},       {70000, 3, 2}, {1, 300001, 1}, {4097, 10, 1},
                                        {17, 129, 1},    {1, 1, 1},       {2, 0, 3},     {3, 0, 1}};
  for (const ReduceShape& s : shapes) {
    for (const DType dtype : {DType::f16, DType::f32}) {
      const Tensor x = random_integers({s.outer, s.reduced, s.inner}, dtype, device(), 4, 1);
      const Tensor guarded = full({s.outer * s.inner + 2}, -7, {.dtype = DType::f64, .device = device()});
      kernels::sum_dim(x, s, 4, rows(guarded, 1, s.outer * s.inner + 1));
      std::vector<double> want(static_cast<std::size_t>(s.outer * s.inner + 2), 0.0);
      const std::vector<float> values = x.to_vector<float>();
      std::size_t at = 0;
      for (std::int64_t o = 0; o < s.outer; ++o) {
        for (std::int64_t r = 0; r < s.reduced; ++r) {
          for (std::int64_t i = 0; i < s.inner; ++i) {
            want[static_cast<std::size_t>(1 + o * s.inner + i)] += static_cast<double>(values[at++]) / 4;
          }
        }
      }
      want.front() = want.back() = -7;
      ASSERT_EQ(guarded.to_vector<double>(), want) << s.outer << " " << s.reduced << " " << s.inner;
    }
  }
}

TEST_P(ReduceTest, TheResultIsRoundedOnceToAnyDtype) {
  const Tensor x = full({3000, 2}, 1, {.dtype = DType::f16, .device = device()});
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Tensor y = Tensor::empty({2}, dtype, device());
    kernels::sum_dim(x, {.outer = 1, .reduced = 3000, .inner = 2}, 7, y);
    const Tensor want = full({2}, 3000.0 / 7, {.dtype = dtype, .device = device()});
    EXPECT_TRUE(same_bits(y, want)) << name(dtype);
    const Tensor all = Tensor::empty({}, dtype, device());
    kernels::sum_all(x, 7, all);
    EXPECT_TRUE(same_bits(all, full({}, 6000.0 / 7, {.dtype = dtype, .device = device()}))) << name(dtype);
  }
}

TEST_P(ReduceTest, RowSumsHaveTheBitsOfTheCpu) {
  for (const std::int64_t columns : {1, 3, 4, 10, 129, 1000, 1025, 5000}) {
    const Tensor x = normal_tensor({37, columns}, DType::f32, kCPU, 2);
    const ReduceShape shape{.outer = 37, .reduced = columns, .inner = 1};
    const Tensor want = Tensor::empty({37}, DType::f64);
    kernels::sum_dim(x, shape, 1, want);
    const Tensor got = Tensor::empty({37}, DType::f64, device());
    kernels::sum_dim(to(x, device()), shape, 1, got);
    EXPECT_TRUE(same_bits(to(got, kCPU), want)) << columns;
  }
}

TEST_P(ReduceTest, ARepeatedSumHasTheSameBits) {
  const Tensor x = normal_tensor({50000, 33}, DType::f32, device(), 3);
  const ReduceShape shape{.outer = 1, .reduced = 50000, .inner = 33};
  const Tensor first = Tensor::empty({33}, DType::f64, device());
  kernels::sum_dim(x, shape, 1, first);
  for (int i = 0; i < 5; ++i) {
    const Tensor again = Tensor::empty({33}, DType::f64, device());
    kernels::sum_dim(x, shape, 1, again);
    EXPECT_TRUE(same_bits(again, first));
  }
}

TEST_P(ReduceTest, OneSpecialElementAnywhereDecidesTheSum) {
  for (const std::int64_t size : {1, 5, 1025, 16385, 40000}) {
    for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
      for (const double special : {double{INFINITY}, -double{INFINITY}, double{NAN}}) {
        const Tensor x = ones({size}, {.device = device()});
        kernels::fill(rows(x, at, at + 1), special);
        const Tensor y = Tensor::empty({}, DType::f32, device());
        kernels::sum_all(x, 1, y);
        const double got = y.item<double>();
        EXPECT_TRUE(std::isnan(special) ? std::isnan(got) : got == special) << size << ", element " << at;
      }
    }
  }
}

TEST_P(ReduceTest, AddsInDoubleWhereFloatWouldStall) {
  // 2²⁴ + 1 + 1 + … stays at 2²⁴ in f32.
  const Tensor x = ones({10001}, {.device = device()});
  kernels::fill(rows(x, 0, 1), 0x1p24);
  const Tensor y = Tensor::empty({}, DType::f32, device());
  kernels::sum_all(x, 1, y);
  EXPECT_EQ(y.item<double>(), 0x1p24 + 10000);
}

TEST(Reduce, MoreSumsThanOneLaunchHasBlocksOnAGpu) {
  FUSEGRAD_REQUIRE_CUDA();
  constexpr std::int64_t kOuter = (std::int64_t{1} << 31) + 9;
  for (const std::int64_t inner : {1, 2}) {  // over rows and over columns
    Tensor x;
    Tensor y;
    try {
      x = Tensor::empty({kOuter * inner}, DType::bf16, kCUDA);
      y = Tensor::empty({kOuter * inner}, DType::bf16, kCUDA);
    } catch (const DeviceError&) {
      GTEST_SKIP() << "needs 16 GiB on the GPU";
    }
    kernels::fill(x, 1);
    kernels::fill(y, -7);
    const std::int64_t count = x.numel();
    kernels::fill(rows(x, count - 2, count), 3);
    kernels::sum_dim(x, {.outer = kOuter, .reduced = 1, .inner = inner}, 1, y);
    const Tensor total = Tensor::empty({}, DType::f64, kCUDA);
    kernels::sum_all(y, 1, total);
    EXPECT_EQ(total.item<double>(), static_cast<double>(count + 4));
    EXPECT_EQ(rows(y, count - 4, count).to_vector<double>(), (std::vector<double>{1, 1, 3, 3}));
  }
}

}  // namespace
}  // namespace fusegrad
