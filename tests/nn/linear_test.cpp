// The affine layer forwards and backwards against a double reference, in every floating dtype.

#include <cmath>
#include <random>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

constexpr std::int64_t kIn = 19;
constexpr std::int64_t kOut = 7;

class LinearTest : public DeviceTest {
 protected:
  static Tensor normal(const Shape& shape, DType dtype, std::uint64_t seed) {
    CpuGenerator generator(seed);
    return to(to(randn(shape, generator), dtype), device());
  }
};
FUSEGRAD_ON_EVERY_DEVICE(LinearTest);

/// The most that a value may differ, relative to the sum of its terms' sizes: two roundings to the dtype (one in a
/// 16-bit product's result, one in its bias), and the f32 sum's own.
double allowed(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return std::ldexp(1.0, -10);
    case DType::bf16:
      return std::ldexp(1.0, -7);
    case DType::f32:
      return std::ldexp(1.0, -20);
    default:
      return std::ldexp(1.0, -49);
  }
}

TEST_P(LinearTest, ForwardAndBackwardAgreeWithDouble) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    manual_seed(1);
    nn::Linear layer(kIn, kOut, {.dtype = dtype, .device = device()});
    EXPECT_EQ(layer.weight().dtype(), dtype);
    EXPECT_EQ(layer.weight().device(), device());
    const Tensor x = normal({2, 3, kIn}, dtype, 2).requires_grad_();
    const Tensor grad_y = normal({2, 3, kOut}, dtype, 3);
    const Tensor y = layer(x);
    EXPECT_EQ(y.dtype(), dtype);
    y.backward(grad_y);

    const auto xs = x.to_vector<double>();
    const auto ws = layer.weight().to_vector<double>();
    const auto bs = layer.bias().to_vector<double>();
    const auto gs = grad_y.to_vector<double>();
    // Σ terms, compared with `got`; the tolerance follows the sum of the terms' sizes.
    const auto compare = [&](double got, const std::vector<double>& terms, const char* what) {
      double sum = 0;
      double size = 0;
      for (const double term : terms) sum += term, size += std::fabs(term);
      EXPECT_NEAR(got, sum, allowed(dtype) * size) << what << " " << name(dtype);
    };
    const std::size_t count = 6;
    const auto in = static_cast<std::size_t>(kIn);
    const auto out = static_cast<std::size_t>(kOut);
    const auto ys = y.to_vector<double>();
    const auto gx = x.grad().to_vector<double>();
    const auto gw = layer.weight().grad().to_vector<double>();
    const auto gb = layer.bias().grad().to_vector<double>();
    for (std::size_t n = 0; n < count; ++n) {
      for (std::size_t o = 0; o < out; ++o) {
        std::vector<double> terms{bs[o]};
        for (std::size_t i = 0; i < in; ++i) terms.push_back(xs[n * in + i] * ws[o * in + i]);
        compare(ys[n * out + o], terms, "result");
      }
      for (std::size_t i = 0; i < in; ++i) {
        std::vector<double> terms;
        for (std::size_t o = 0; o < out; ++o) terms.push_back(gs[n * out + o] * ws[o * in + i]);
        compare(gx[n * in + i], terms, "input gradient");
      }
    }
    for (std::size_t o = 0; o < out; ++o) {
      std::vector<double> upstream;
      for (std::size_t n = 0; n < count; ++n) upstream.push_back(gs[n * out + o]);
      compare(gb[o], upstream, "bias gradient");
      for (std::size_t i = 0; i < in; ++i) {
        std::vector<double> terms;
        for (std::size_t n = 0; n < count; ++n) terms.push_back(upstream[n] * xs[n * in + i]);
        compare(gw[o * in + i], terms, "weight gradient");
      }
    }
  }
}

TEST_P(LinearTest, LeadingDimensionsAreRowsOfOneProduct) {
  manual_seed(1);
  nn::Linear layer(kIn, kOut);
  layer.to(device());
  const Tensor flat = normal({12, kIn}, DType::f32, 5);
  const Tensor want = layer(flat);
  for (const Shape& leading : {Shape{3, 4}, Shape{2, 3, 2}, Shape{12, 1}, Shape{1, 1, 12}}) {
    const Shape shape = leading.append(kIn);
    std::vector<std::int64_t> sizes(shape.begin(), shape.end());
    const Tensor y = layer(view(flat, std::span<const std::int64_t>(sizes)));
    EXPECT_EQ(y.shape(), leading.append(kOut));
    EXPECT_TRUE(same_bits(view(y, {12, kOut}), want));
  }
}

TEST_P(LinearTest, FrozenPartsGetNoGradientAndTheOthersTheSameBits) {
  const Tensor x = normal({4, kIn}, DType::f32, 6).requires_grad_();
  nn::Linear layer(kIn, kOut);
  layer.to(device());
  sum(square(layer(x))).backward();
  const Tensor bias_grad = layer.bias().grad();
  const Tensor x_grad = x.grad();
  layer.zero_grad();
  x.set_grad({});
  Tensor(layer.weight()).requires_grad_(false);
  sum(square(layer(x))).backward();
  EXPECT_FALSE(layer.weight().grad().defined());
  EXPECT_TRUE(same_bits(layer.bias().grad(), bias_grad));
  EXPECT_TRUE(same_bits(x.grad(), x_grad));
}

TEST_P(LinearTest, RefusesOtherShapesDtypesAndDevicesByName) {
  nn::Linear layer(kIn, kOut);
  layer.to(device());
  const auto message = [&](const Tensor& x) -> std::string {
    try {
      (void)layer(x);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THROW(layer(zeros({2, kIn + 1}, {.device = device()})), ShapeError);
  EXPECT_THROW(layer(zeros({}, {.device = device()})), ShapeError);
  EXPECT_THROW(layer(zeros({2, kIn}, {.dtype = DType::f16, .device = device()})), DTypeError);
  EXPECT_THROW(layer(zeros({2, kIn}, {.dtype = DType::i64, .device = device()})), DTypeError);
  EXPECT_THROW(layer(Tensor()), StateError);
  EXPECT_NE(message(zeros({2, 4}, {.device = device()})).find("linear"), std::string::npos);
  EXPECT_NE(message(zeros({2, kIn}, {.dtype = DType::f64, .device = device()})).find("linear"), std::string::npos);
  if (device().is_cuda()) {
    EXPECT_THROW(layer(zeros({2, kIn})), DeviceError);
  }
}

}  // namespace
}  // namespace fusegrad
