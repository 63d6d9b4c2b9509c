// Squared errors: every pair of dtypes against the formula, bit for bit where no sum is involved.

#include <cmath>

#include <gtest/gtest.h>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/mse.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/kernels/integers.h>

namespace fusegrad {
namespace {

constexpr std::array kFloating{DType::f16, DType::bf16, DType::f32, DType::f64};

DType difference_dtype(DType a, DType b) { return math_dtype(promote(a, b)); }

// The numbers of kernels/mse.h computed here, elementwise, on the host. An upstream gradient of one element is used for
// all of them.
struct Expected {
  Tensor squares;
  Tensor grad;
};
Expected expected(const Tensor& x, const Tensor& target, double factor, const Tensor& upstream, DType grad_dtype) {
  const DType dtype = difference_dtype(x.dtype(), target.dtype());
  const Expected want{.squares = Tensor::empty(x.shape(), dtype), .grad = Tensor::empty(x.shape(), grad_dtype)};
  visit_math(dtype, "test", [&]<class M>(TypeTag<M>) {
    const std::vector<M> in = x.to_vector<M>();
    const std::vector<M> goal = target.to_vector<M>();
    visit_floating(grad_dtype, "test", [&]<class G>(TypeTag<G>) {
      for (std::size_t i = 0; i < in.size(); ++i) {
        const M difference = in[i] - goal[i];
        const M above = upstream.span<M>()[upstream.numel() == 1 ? 0 : i];
        want.squares.span<M>()[i] = difference * difference;
        want.grad.span<G>()[i] = convert<G>(static_cast<M>(factor) * difference * above);
      }
    });
  });
  return want;
}

class MseTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(MseTest);

TEST_P(MseTest, ElementwiseLossAndGradientHaveTheFormulasBits) {
  for (const DType a : kFloating) {
    for (const DType b : kFloating) {
      const DType wide = difference_dtype(a, b);
      for (const std::int64_t size : {0, 1, 3, 17, 1000, 65537}) {
        const Tensor x = to(random_integers({size}, DType::f32, kCPU, 1000, 1) / 7.0, a);
        const Tensor target = to(random_integers({size}, DType::f32, kCPU, 1000, 2) / 11.0, b);
        const Tensor each = to(random_integers({size}, DType::f32, kCPU, 1000, 3) / 13.0, wide);
        const Tensor one = full({}, 1.0 / 3, {.dtype = wide});
        for (const Tensor& upstream : {each, one}) {
          if (upstream.numel() == 0) continue;
          const DType grad_dtype = size % 2 == 0 ? a : b;
          const Expected want = expected(x, target, 2.0 / 17, upstream, grad_dtype);
          const Tensor loss = Tensor::empty({size}, wide, device());
          const Tensor grad = Tensor::empty({size}, grad_dtype, device());
          kernels::mse_none(to(x, device()), to(target, device()), loss);
          kernels::mse_backward(to(x, device()), to(target, device()), 2.0 / 17, to(upstream, device()), grad);
          EXPECT_TRUE(same_bits(to(loss, kCPU), want.squares)) << name(a) << " " << name(b) << " " << size;
          EXPECT_TRUE(same_bits(to(grad, kCPU), want.grad)) << name(a) << " " << name(b) << " " << size;
        }
      }
    }
  }
}

TEST_P(MseTest, SumsOfIntegerErrorsAreExact) {
  for (const DType a : kFloating) {
    for (const DType b : kFloating) {
      for (const std::int64_t size : {0, 1, 3, 17, 1000, 65537}) {
        const Tensor x = random_integers({size}, a, device(), 4, 4);
        const Tensor target = random_integers({size}, b, device(), 4, 5);
        const std::vector<double> left = x.to_vector<double>();
        const std::vector<double> right = target.to_vector<double>();
        double want = 0;
        for (std::size_t i = 0; i < left.size(); ++i) want += (left[i] - right[i]) * (left[i] - right[i]);
        const Tensor loss = Tensor::empty({}, difference_dtype(a, b), device());
        kernels::mse(x, target, 4, loss);
        EXPECT_EQ(loss.item<double>(), want / 4) << name(a) << " " << name(b) << " " << size;
      }
    }
  }
}

TEST_P(MseTest, DifferencesOfHalvesAreTakenAndSquaredBeyondTheirRange) {
  const Tensor x = full({1000}, 60000, {.dtype = DType::f16, .device = device()});
  const Tensor target = full({1000}, -60000, {.dtype = DType::f16, .device = device()});
  const Tensor loss = Tensor::empty({}, DType::f32, device());
  const double difference = 120000;  // 60000 is exact in f16, its double beyond its range
  kernels::mse(x, target, 1000, loss);
  EXPECT_EQ(loss.item<double>(), static_cast<double>(static_cast<float>(difference * difference)));
}

TEST_P(MseTest, NaNAndInfinityReachTheLoss) {
  const Tensor zero = zeros({3}, {.device = device()});
  const Tensor loss = Tensor::empty({}, DType::f32, device());
  kernels::mse(to(tensor({0, NAN, 0}), device()), zero, 3, loss);
  EXPECT_TRUE(std::isnan(loss.item<double>()));
  kernels::mse(to(tensor({0, 0, -INFINITY}), device()), zero, 3, loss);
  EXPECT_EQ(loss.item<double>(), INFINITY);
  kernels::mse(to(tensor({0, 1e30, 0}), device()), zero, 3, loss);  // finite in double, not in f32
  EXPECT_EQ(loss.item<double>(), INFINITY);
}

}  // namespace
}  // namespace fusegrad
