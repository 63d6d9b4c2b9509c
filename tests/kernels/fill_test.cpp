// Fill at its edges: special values, part of a tensor, and more elements than 32 bits count.

#include <cmath>

#include <gtest/gtest.h>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/reduce.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

class FillTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(FillTest);

TEST_P(FillTest, RoundsTheValueAsOneConversionDoes) {
  // 2049 and 1 + 2⁻⁸ are ties in f16 and bf16; 65520 and 1e39 are the first to overflow f16 and f32; 6e-8 is subnormal.
  for (const double value : {0.1, -0.0, 2049.0, 1 + 0x1p-8, 65520.0, 1e39, 6e-8, double{INFINITY}, double{NAN}}) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      const Tensor want = Tensor::empty({37}, dtype);
      visit_floating(dtype, "test", [&]<class T>(TypeTag<T>) {
        for (T& element : want.span<T>()) element = convert<T>(value);
      });
      const Tensor got = Tensor::empty({37}, dtype, device());
      kernels::fill(got, value);
      EXPECT_TRUE(same_bits(to(got, kCPU), want)) << value << " " << name(dtype);
    }
  }
}

TEST_P(FillTest, LeavesTheNeighboursOfAViewAlone) {
  for (const DType dtype : {DType::f16, DType::f32, DType::f64, DType::i64}) {
    const Tensor x = full({1003}, 7, {.dtype = dtype, .device = device()});
    kernels::fill(rows(x, 1, 1000), 3);
    const std::vector<double> values = x.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i >= 1 && i < 1000 ? 3 : 7) << i;
  }
}

TEST_P(FillTest, CopiesKeepInfinitiesNaNAndTheSignOfZero) {
  for (const DType from : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = to(tensor({INFINITY, -INFINITY, NAN, -0.0, 0.0}, {.dtype = from}), device());
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      const Tensor y = Tensor::empty({5}, dtype, device());
      kernels::copy(x, y);
      const std::vector<double> values = y.to_vector<double>();
      EXPECT_EQ(values[0], INFINITY);
      EXPECT_EQ(values[1], -INFINITY);
      EXPECT_TRUE(std::isnan(values[2]));
      EXPECT_TRUE(values[3] == 0 && std::signbit(values[3])) << name(from) << " to " << name(dtype);
      EXPECT_TRUE(values[4] == 0 && !std::signbit(values[4]));
    }
  }
}

TEST(Fill, ReachesElementsBeyond32BitsOnAGpu) {
  FUSEGRAD_REQUIRE_CUDA();
  constexpr std::int64_t kCount = (std::int64_t{1} << 32) + 5;  // 8 GiB
  Tensor x;
  try {
    x = Tensor::empty({kCount}, DType::bf16, kCUDA);
  } catch (const DeviceError&) {
    GTEST_SKIP() << "needs 8 GiB on the GPU";
  }
  kernels::fill(x, 1);
  kernels::fill(rows(x, kCount - 2, kCount), 3);
  const Tensor total = Tensor::empty({}, DType::f64, kCUDA);
  kernels::sum_all(x, 1, total);
  EXPECT_EQ(total.item<double>(), static_cast<double>(kCount + 4));
  EXPECT_EQ(rows(x, kCount - 4, kCount).to_vector<double>(), (std::vector<double>{1, 1, 3, 3}));
}

}  // namespace
}  // namespace fusegrad
