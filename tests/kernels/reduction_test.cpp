// Sums, means, squared errors and products on every device, against double.

#include <cmath>
#include <random>

#include <omp.h>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/matmul.h>
#include <fusegrad/kernels/mse.h>
#include <fusegrad/kernels/reduce.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

constexpr std::array kFloating{DType::f16, DType::bf16, DType::f32, DType::f64};

Tensor normal_tensor(const Shape& shape, DType dtype, Device device, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value;
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values) v = value(random);
  return to(tensor(std::span<const double>(values), shape, {.dtype = dtype}), device);
}

class ReductionTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(ReductionTest);

TEST_P(ReductionTest, SumsEverySizeAroundLanesAndChunks) {
  for (const std::int64_t size : {0, 1, 3, 1023, 1024, 1025, 16383, 16384, 16385, 100000, 1000003}) {
    const Tensor x = normal_tensor({size}, DType::f32, device(), 1);
    double want = 0;
    for (const double v : x.to_vector<double>()) want += v;
    const Tensor y = Tensor::empty({}, DType::f64, device());
    kernels::sum_all(x, 1.0, y);
    EXPECT_NEAR(y.item<double>(), want, 1e-9 * std::sqrt(static_cast<double>(size) + 1)) << size;  // double sums
  }
}

TEST_P(ReductionTest, SumsAndErrorsHaveTheBitsOfTheCpu) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t size : {1, 100, 1025, 16385, 300001}) {
      const Tensor x = normal_tensor({size}, dtype, kCPU, 2);
      const Tensor target = normal_tensor({size}, DType::f32, kCPU, 3);
      EXPECT_TRUE(same_bits(to(sum(to(x, device())), kCPU), sum(x))) << size;
      EXPECT_TRUE(same_bits(to(mean(to(x, device())), kCPU), mean(x))) << size;
      EXPECT_TRUE(same_bits(to(mse_loss(to(x, device()), to(target, device())), kCPU), mse_loss(x, target))) << size;
    }
  }
}

TEST(Reduction, TheNumberOfThreadsChangesNoBit) {
  const Tensor x = normal_tensor({1000003}, DType::f32, kCPU, 4);
  const Tensor matrix = view(rows(x, 0, 1000000), {1000, 1000});
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensor total = sum(x);
  const Tensor columns = sum(matrix, 0);
  omp_set_num_threads(7);
  EXPECT_TRUE(same_bits(sum(x), total));
  EXPECT_TRUE(same_bits(sum(matrix, 0), columns));
  omp_set_num_threads(threads);
}

TEST_P(ReductionTest, SumsOverEachDimension) {
  const std::vector<Shape> shapes{{4, 5, 6},     {1, 7},    {7, 1}, {300, 10}, {5000, 33},
                                  {3, 2000, 40}, {2, 3, 1}, {0, 4}, {4, 0}};
  for (const Shape& shape : shapes) {
    for (const DType dtype : kFloating) {
      const Tensor x = normal_tensor(shape, dtype, device(), 5);
      const std::vector<double> values = x.to_vector<double>();
      for (int dim = 0; dim < shape.dims(); ++dim) {
        const std::int64_t outer = shape.slice(0, dim).numel();
        const std::int64_t inner = shape.slice(dim + 1, shape.dims()).numel();
        const Tensor got = sum(x, dim);
        const std::vector<double> sums = got.to_vector<double>();
        ASSERT_EQ(got.numel(), outer * inner);
        const double relative = dtype == DType::bf16 ? 8e-3 : dtype == DType::f16 ? 1e-3 : 1e-6;
        for (std::int64_t o = 0; o < outer; ++o) {
          for (std::int64_t i = 0; i < inner; ++i) {
            double want = 0;
            for (std::int64_t r = 0; r < shape[dim]; ++r) {
              want += values[static_cast<std::size_t>((o * shape[dim] + r) * inner + i)];
            }
            ASSERT_NEAR(sums[static_cast<std::size_t>(o * inner + i)], want, relative * std::max(1.0, std::fabs(want)))
                << shape.str() << " over " << dim;
          }
        }
      }
    }
  }
}

TEST_P(ReductionTest, AMeanOfManyHalvesIsDividedInFullPrecision) {
  const Tensor x = ones({100000}, {.dtype = DType::f16, .device = device()});
  EXPECT_EQ(mean(x).item<double>(), 1.0);  // 100000 is beyond f16's range
  EXPECT_TRUE(std::isnan(mean(zeros({0}, {.device = device()})).item<double>()));
}

TEST_P(ReductionTest, SquaredErrorsForEveryPairOfDtypes) {
  for (const DType a : kFloating) {
    for (const DType b : kFloating) {
      const Tensor x = normal_tensor({37, 11}, a, device(), 6);
      const Tensor target = normal_tensor({37, 11}, b, device(), 7);
      const std::vector<double> left = x.to_vector<double>();
      const std::vector<double> right = target.to_vector<double>();
      double want = 0;
      for (std::size_t i = 0; i < left.size(); ++i) want += (left[i] - right[i]) * (left[i] - right[i]);
      const double n = static_cast<double>(left.size());
      EXPECT_NEAR(mse_loss(x, target).item<double>(), want / n, 1e-6 * want / n);
      EXPECT_NEAR(mse_loss(x, target, Reduction::sum).item<double>(), want, 1e-6 * want);
      const Tensor grad = empty_like(x);
      const Tensor loss = mse_loss(x, target);
      const Tensor upstream = full({}, 3.0, {.dtype = loss.dtype(), .device = device()});
      kernels::mse_backward(x, target, 2.0 / n, upstream, grad);
      const std::vector<double> slopes = grad.to_vector<double>();
      const double relative = a == DType::bf16 ? 8e-3 : a == DType::f16 ? 2e-3 : 1e-6;
      for (std::size_t i = 0; i < slopes.size(); ++i) {
        ASSERT_NEAR(slopes[i], 6.0 / n * (left[i] - right[i]), relative) << name(a) << " and " << name(b);
      }
    }
  }
}

TEST_P(ReductionTest, ProductsForEveryFlagDtypeAndAwkwardSize) {
  using kernels::Op;
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size& s : {Size{1, 1, 1}, Size{10, 10, 10}, Size{3, 5, 7}, Size{17, 33, 65}, Size{128, 64, 96},
                        Size{1, 200, 3}, Size{200, 1, 300}, Size{4, 6, 0}, Size{0, 6, 3}, Size{257, 129, 255}}) {
    for (const DType dtype : kFloating) {
      for (const Op op_a : {Op::none, Op::transpose}) {
        for (const Op op_b : {Op::none, Op::transpose}) {
          for (const bool with_bias : {false, true}) {
            const bool ta = op_a == Op::transpose;
            const bool tb = op_b == Op::transpose;
            const Tensor a = normal_tensor(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, dtype, device(), 8);
            const Tensor b = normal_tensor(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, dtype, device(), 9);
            const Tensor bias = normal_tensor({s.n}, dtype, device(), 10);
            const std::vector<double> va = a.to_vector<double>();
            const std::vector<double> vb = b.to_vector<double>();
            const std::vector<double> vc = bias.to_vector<double>();
            std::vector<DType> outs{dtype};
            if (is_half(dtype)) outs.push_back(DType::f32);
            for (const DType out_dtype : outs) {
              const Tensor out = full({s.m, s.n}, NAN, {.dtype = out_dtype, .device = device()});
              kernels::matmul({.a = a, .b = b, .op_a = op_a, .op_b = op_b, .bias = with_bias ? bias : Tensor()}, out);
              const std::vector<double> got = out.to_vector<double>();
              // Sums of k products in f32 (double for f64), then one rounding to the result's dtype.
              const double sums = dtype == DType::f64 ? 1e-14 : 1e-6;
              const double last = out_dtype == DType::bf16 ? 4e-3 : out_dtype == DType::f16 ? 5e-4 : sums;
              for (std::int64_t i = 0; i < s.m; ++i) {
                for (std::int64_t j = 0; j < s.n; ++j) {
                  const double added = with_bias ? vc[static_cast<std::size_t>(j)] : 0;
                  double want = added;
                  double size = std::fabs(added);
                  for (std::int64_t p = 0; p < s.k; ++p) {
                    const double left = va[static_cast<std::size_t>(ta ? p * s.m + i : i * s.k + p)];
                    const double right = vb[static_cast<std::size_t>(tb ? j * s.k + p : p * s.n + j)];
                    want += left * right;
                    size += std::fabs(left * right);
                  }
                  // With a bias there may be a rounding before it is added, too (kernels/matmul.h).
                  const double rounded = std::fabs(want) + (with_bias ? std::fabs(want - added) : 0);
                  ASSERT_NEAR(got[static_cast<std::size_t>(i * s.n + j)], want, sums * size + last * rounded)
                      << s.m << "x" << s.n << "x" << s.k << " " << name(dtype) << " into " << name(out_dtype) << " "
                      << ta << tb << with_bias;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(ReductionTest, ARepeatedProductHasTheSameBits) {
  const Tensor a = normal_tensor({300, 500}, DType::f16, device(), 11);
  const Tensor b = normal_tensor({500, 200}, DType::f16, device(), 12);
  const Tensor first = matmul(a, b);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(matmul(a, b), first));
}

}  // namespace
}  // namespace fusegrad
