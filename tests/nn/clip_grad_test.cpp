// Clipping by separate passes: norms that neither overflow nor vanish, and what is done about bad ones.

#include <cmath>

#include <fusegrad/nn/clip_grad.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

using nn::clip_grad_norm_;
using nn::clip_grad_value_;

class ClipGradTest : public DeviceTest {
 protected:
  static Tensor with_grad(const Tensor& grad) {
    const Tensor p = zeros(grad.shape(), {.device = device(), .requires_grad = true});
    p.set_grad(grad);
    return p;
  }
  static std::vector<Tensor> many(int count, double value) {
    std::vector<Tensor> params;
    for (int i = 0; i < count; ++i) params.push_back(with_grad(full({1}, value, {.device = device()})));
    return params;
  }
};
FUSEGRAD_ON_EVERY_DEVICE(ClipGradTest);

TEST_P(ClipGradTest, ComputesEveryNormAndScalesTheGradients) {
  std::mt19937 random(1);
  for (const double p : {1.0, 2.0, 3.0, 0.5, static_cast<double>(INFINITY)}) {
    std::vector<Tensor> params;
    double total = 0;
    for (const Shape& shape : {Shape{3}, Shape{0}, Shape{17, 5}, Shape{20000}}) {
      params.push_back(with_grad(wild(shape, random, DType::f32, device(), 4)));
      for (const double g : params.back().grad().to_vector<double>()) {
        total = std::isinf(p) ? std::max(total, std::fabs(g)) : total + std::pow(std::fabs(g), p);
      }
    }
    params.push_back(zeros({5}, {.device = device(), .requires_grad = true}));  // without a gradient
    const double norm = std::isinf(p) ? total : std::pow(total, 1 / p);
    const std::vector<double> before = params[2].grad().to_vector<double>();
    const Tensor got = clip_grad_norm_(params, norm / 4, {.norm_type = p});
    EXPECT_NEAR(got.item<double>(), norm, 1e-12 * norm) << p;  // double sums in another order
    const std::vector<double> after = params[2].grad().to_vector<double>();
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_NEAR(after[i], before[i] / 4, 2e-7 * std::fabs(before[i]) + 1e-30) << p;  // two f32 roundings, and 1e-6
    }
    EXPECT_FALSE(params.back().grad().defined());
  }
}

TEST_P(ClipGradTest, ALargeLimitLeavesEveryBit) {
  std::mt19937 random(2);
  const Tensor p = with_grad(wild({1000}, random, DType::f32, device()));
  const Tensor before = clone(p.grad());
  (void)clip_grad_norm_({p}, 1e30);
  EXPECT_TRUE(same_bits(p.grad(), before));
}

TEST_P(ClipGradTest, NormsNeitherOverflowNorVanish) {
  const auto params = many(100, 1e20);
  EXPECT_NEAR(clip_grad_norm_(params, 1.0).item<double>(), 1e21, 1e15);  // 1e20 is not an f32
  for (const Tensor& p : params) EXPECT_NEAR(p.grad().item<double>(), 0.1, 1e-7);
  const Tensor wide = with_grad(full({128}, 1e19, {.device = device()}));
  EXPECT_NEAR(clip_grad_norm_({wide}, 1.0).item<double>(), 1e19 * std::sqrt(128.0), 1e13);
  const Tensor tiny = with_grad(full({100}, 1e-30, {.device = device()}));
  EXPECT_NEAR(clip_grad_norm_({tiny}, 1.0).item<double>(), 1e-29, 1e-35);
  const Tensor huge = with_grad(full({4}, 3e38, {.device = device()}));
  EXPECT_NEAR(clip_grad_norm_({huge}, 1.0).item<double>(), 6e38, 1e32) << "beyond f32, and still a number";
  for (const double g : huge.grad().to_vector<double>()) EXPECT_NEAR(g, 0.5, 1e-7);
}

TEST_P(ClipGradTest, ANonFiniteNormIsAnErrorOrPropagatesAsAsked) {
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    const Tensor p = with_grad(to(tensor({1, bad, 2}), device()));
    const Tensor before = clone(p.grad());
    EXPECT_THROW(clip_grad_norm_({p}, 1.0, {.error_if_nonfinite = true}), ValueError);
    EXPECT_TRUE(same_bits(p.grad(), before));
    EXPECT_FALSE(std::isfinite(clip_grad_norm_({p}, 1.0).item<double>()));
    const std::vector<float> after = p.grad().to_vector<float>();
    EXPECT_TRUE(std::isnan(after[1]));
    if (std::isinf(bad)) {
      EXPECT_EQ(after[0], 0.0f);
    } else {
      EXPECT_TRUE(std::isnan(after[0]));
    }
  }
}

TEST_P(ClipGradTest, ClipsByValueAndKeepsNaN) {
  const Tensor p = with_grad(to(tensor({-5, -0.5, 0, 0.5, 5, NAN, INFINITY}), device()));
  clip_grad_value_({p}, 1.0);
  const std::vector<float> after = p.grad().to_vector<float>();
  EXPECT_EQ((std::vector<float>(after.begin(), after.begin() + 5)), (std::vector<float>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_TRUE(std::isnan(after[5]));
  EXPECT_EQ(after[6], 1.0f);
}

TEST_P(ClipGradTest, NoGradientsIsANormOfZero) {
  EXPECT_EQ(clip_grad_norm_({zeros({3}, {.device = device(), .requires_grad = true})}, 1.0).item<double>(), 0.0);
  EXPECT_EQ(clip_grad_norm_({}, 1.0).item<double>(), 0.0);
  EXPECT_EQ(clip_grad_norm_({with_grad(zeros({0}, {.device = device()}))}, 1.0).item<double>(), 0.0);
}

TEST(ClipGrad, RefusesNonsense) {
  EXPECT_THROW(clip_grad_norm_({}, -1.0), ValueError);
  EXPECT_THROW(clip_grad_norm_({}, NAN), ValueError);
  EXPECT_THROW(clip_grad_norm_({}, 1.0, {.norm_type = 0}), ValueError);
  EXPECT_THROW(clip_grad_norm_({}, 1.0, {.norm_type = -INFINITY}), ValueError);
  EXPECT_THROW(clip_grad_value_({}, -1.0), ValueError);
  EXPECT_THROW(clip_grad_value_({}, NAN), ValueError);
}

}  // namespace
}  // namespace fusegrad
