// Products of small integers, exact whatever the order of addition: awkward addresses, streams and threads.

#include <thread>

#include <gtest/gtest.h>

#include <fusegrad/kernels/matmul.h>
#include <fusegrad/runtime/stream.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/kernels/integers.h>

namespace fusegrad {
namespace {

using kernels::MatmulArgs;
using kernels::Op;

constexpr std::array kFloating{DType::f16, DType::bf16, DType::f32, DType::f64};

// A tensor whose first element lies `offset` elements into its storage.
Tensor shifted_integers(const Shape& shape, DType dtype, Device device, std::int64_t offset, unsigned seed) {
  const Tensor all = random_integers({shape.numel() + offset}, dtype, device, 1, seed);
  return all.alias(shape, offset);
}

// a·b plus the bias.
std::vector<double> product(const MatmulArgs& args) {
  const auto [m, n, k] = kernels::matmul_size(args);
  const std::vector<double> a = args.a.to_vector<double>();
  const std::vector<double> b = args.b.to_vector<double>();
  const std::vector<double> bias = args.bias.to_vector<double>();
  std::vector<double> out;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = bias[static_cast<std::size_t>(j)];
      for (std::int64_t p = 0; p < k; ++p) {
        sum += a[static_cast<std::size_t>(args.op_a == Op::none ? i * k + p : p * m + i)] *
               b[static_cast<std::size_t>(args.op_b == Op::none ? p * n + j : j * k + p)];
      }
      out.push_back(sum);
    }
  }
  return out;
}

class MatmulTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(MatmulTest);

TEST_P(MatmulTest, OperandsMayStartAtAnyElement) {
  // Sums of at most 65 terms of ±1 and a bias of ±1 are exact in every dtype, bf16 included.
  for (const DType dtype : kFloating) {
    for (const DType out_dtype : {dtype, math_dtype(dtype)}) {
      for (const std::int64_t offset : {0, 1, 2, 3, 4, 8}) {
        for (const kernels::MatmulSize& s : {kernels::MatmulSize{17, 33, 65}, kernels::MatmulSize{64, 32, 64}}) {
          for (const bool transposed : {false, true}) {
            const MatmulArgs args{
                .a = shifted_integers(transposed ? Shape{s.k, s.m} : Shape{s.m, s.k}, dtype, device(), offset, 1),
                .b = shifted_integers(transposed ? Shape{s.n, s.k} : Shape{s.k, s.n}, dtype, device(), offset, 2),
                .op_a = transposed ? Op::transpose : Op::none,
                .op_b = transposed ? Op::transpose : Op::none,
                .bias = shifted_integers({s.n}, dtype, device(), offset, 3)};
            const std::int64_t count = s.m * s.n;
            const Tensor guarded = full({offset + count + 1}, -99, {.dtype = out_dtype, .device = device()});
            kernels::matmul(args, guarded.alias({s.m, s.n}, offset));
            std::vector<double> want(static_cast<std::size_t>(offset), -99);
            for (const double v : product(args)) want.push_back(v);
            want.push_back(-99);
            ASSERT_EQ(guarded.to_vector<double>(), want)
                << s.m << "x" << s.n << "x" << s.k << " " << name(dtype) << " into " << name(out_dtype) << ", offset "
                << offset << (transposed ? ", transposed" : "");
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, LongSumsOfHalvesAreKeptInF32) {
  // The weight gradient's shape: few rows, a long inner dimension. 20 000 ones are beyond f16's exact integers.
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const MatmulArgs args{.a = ones({20001, 10}, {.dtype = dtype, .device = device()}),
                          .b = ones({20001, 12}, {.dtype = dtype, .device = device()}),
                          .op_a = Op::transpose,
                          .op_b = Op::none,
                          .bias = {}};
    const Tensor out = Tensor::empty({10, 12}, DType::f32, device());
    kernels::matmul(args, out);
    EXPECT_EQ(out.to_vector<double>(), std::vector<double>(120, 20001.0)) << name(dtype);
  }
}

TEST_P(MatmulTest, StreamsAndThreadsGiveTheSameBits) {
  const Tensor a = random_integers({100, 300}, DType::f32, device(), 1000, 5) / 7.0;
  const Tensor b = random_integers({300, 50}, DType::f32, device(), 1000, 6) / 7.0;
  const auto multiply = [&] {
    const Tensor out = Tensor::empty({100, 50}, DType::f32, device());
    kernels::matmul({.a = a, .b = b, .op_a = Op::none, .op_b = Op::none, .bias = {}}, out);
    return to(out, kCPU);
  };
  const Tensor first = multiply();
  synchronize(device());
  for (int i = 0; i < 3; ++i) {
    const Stream stream(device());
    const StreamGuard guard(stream);
    EXPECT_TRUE(same_bits(multiply(), first));
  }
  Tensor other;
  std::thread([&] { other = multiply(); }).join();
  EXPECT_TRUE(same_bits(other, first));
}

TEST_P(MatmulTest, ARepeatedProductTakesNoMemory) {
  const MatmulArgs args{.a = random_integers({64, 64}, DType::f16, device(), 1, 7),
                        .b = random_integers({64, 64}, DType::f16, device(), 1, 8),
                        .op_a = Op::none,
                        .op_b = Op::none,
                        .bias = random_integers({64}, DType::f16, device(), 1, 9)};
  const Tensor out = Tensor::empty({64, 64}, DType::f16, device());
  for (int i = 0; i < 3; ++i) kernels::matmul(args, out);
  const std::int64_t before = memory_stats(device()).allocations;
  for (int i = 0; i < 10; ++i) kernels::matmul(args, out);
  EXPECT_EQ(memory_stats(device()).allocations, before);
}

}  // namespace
}  // namespace fusegrad
