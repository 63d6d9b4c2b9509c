// Graphs of several dtypes, and of tensors without elements: every gradient has the dtype and shape of what it belongs
// to.

#include <cmath>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

class MixedDTypeTest : public DeviceTest {
 protected:
  static Tensor leaf(std::initializer_list<double> values, DType dtype) {
    return tensor(values, {.dtype = dtype, .device = device(), .requires_grad = true});
  }
};
FUSEGRAD_ON_EVERY_DEVICE(MixedDTypeTest);

TEST_P(MixedDTypeTest, OperandsMeetInTheWiderDtypeAndGradientsReturnToTheirOwn) {
  const std::vector<DType> dtypes{DType::f16, DType::bf16, DType::f32, DType::f64};
  for (const DType a : dtypes) {
    for (const DType b : dtypes) {
      for (const auto& op : {add, sub, mul, div}) {
        const Tensor x = leaf({2, 4}, a);
        const Tensor y = leaf({2}, b);  // broadcasts
        const Tensor z = op(x, y);
        EXPECT_EQ(z.dtype(), promote(a, b));
        sum(z).backward();
        EXPECT_EQ(x.grad().dtype(), a);
        EXPECT_EQ(y.grad().dtype(), b);
        EXPECT_EQ(y.grad().shape(), Shape{1});
      }
      const Tensor x = leaf({2, 4}, a);
      const Tensor target = leaf({1, 2}, b);
      const Tensor loss = mse_loss(x, target);
      EXPECT_EQ(loss.dtype(), math_dtype(promote(a, b)));
      loss.backward();
      EXPECT_EQ(x.grad().dtype(), a);
      EXPECT_EQ(target.grad().dtype(), b);
      EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 2}));
      EXPECT_EQ(target.grad().to_vector<double>(), (std::vector<double>{-1, -2}));
    }
  }
}

TEST_P(MixedDTypeTest, AConversionCarriesTheGradientBackInTheDtypeItCameFrom) {
  const Tensor x = leaf({3}, DType::f64);
  const Tensor y = square(to(square(to(x, DType::f32)), DType::f16));  // 81 in f16
  EXPECT_EQ(y.dtype(), DType::f16);
  y.backward();
  EXPECT_EQ(x.grad().dtype(), DType::f64);
  EXPECT_EQ(x.grad().item<double>(), 108.0);  // 4·3³, exact in f16
  EXPECT_FALSE(to(x, DType::i64).requires_grad()) << "integers have no gradients";
  EXPECT_TRUE(to(x, DType::f64).is_same(x));
}

TEST_P(MixedDTypeTest, AResultUsedInTwoDtypesAddsUpInItsOwn) {
  const Tensor x = leaf({1, 2}, DType::f16);
  const Tensor y = x * 2.0;  // f16, read as f16, as f32 and as f64
  sum(to(sum(y * y), DType::f64) + to(sum(y * leaf({3, 3}, DType::f32)), DType::f64) + sum(to(y, DType::f64)))
      .backward();
  EXPECT_EQ(x.grad().dtype(), DType::f16);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2 * (4 + 3 + 1), 2 * (8 + 3 + 1)}));
}

TEST_P(MixedDTypeTest, AGivenGradientIsConverted) {
  const Tensor x = leaf({1, 2}, DType::f16);
  square(x).backward(tensor({1, 10}, {.dtype = DType::f64, .device = device()}));
  EXPECT_EQ(x.grad().dtype(), DType::f16);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 40}));
}

TEST_P(MixedDTypeTest, TensorsWithoutElementsHaveGradientsWithoutElements) {
  const auto empty_leaf = [&](const Shape& shape) { return zeros(shape, {.device = device(), .requires_grad = true}); };
  const Tensor nothing = empty_leaf({0, 3});
  const Tensor row = empty_leaf({3});
  const Tensor column = empty_leaf({1, 1});
  sum(nothing * row + column).backward();
  EXPECT_EQ(nothing.grad().shape(), (Shape{0, 3}));
  EXPECT_EQ(row.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(column.grad().to_vector<float>(), (std::vector<float>{0}));

  const Tensor batch = empty_leaf({0, 3});
  const Tensor weight = empty_leaf({2, 3});
  const Tensor bias = empty_leaf({2});
  sum(relu(linear(batch, weight, bias))).backward();
  EXPECT_EQ(batch.grad().shape(), (Shape{0, 3}));
  EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(6, 0.0f)) << "no sample, no gradient";
  EXPECT_EQ(bias.grad().to_vector<float>(), std::vector<float>(2, 0.0f));

  const Tensor no_features = empty_leaf({2, 0});
  const Tensor no_weight = empty_leaf({3, 0});
  const Tensor y = linear(no_features, no_weight, row);
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(6, 0.0f)) << "a product over nothing is the bias";
  sum(y).backward();
  EXPECT_EQ(no_weight.grad().shape(), (Shape{3, 0}));

  EXPECT_EQ(sum(zeros({0}, {.device = device()})).item<float>(), 0.0f);
  EXPECT_TRUE(std::isnan(mean(zeros({0}, {.device = device()})).item<float>()));
  EXPECT_EQ(sum(nothing, 0).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(sum(nothing, 1).shape(), Shape{0});
  for (const float v : mean(nothing, 0).to_vector<float>()) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace fusegrad
