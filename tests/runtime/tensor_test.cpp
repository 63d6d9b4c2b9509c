// A Tensor is a handle: copies and views name the same elements and the same version, and misuse says what is wrong.

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/tensor.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

Tensor counting(const Shape& shape, Device device = kCPU) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>(i));
  Tensor tensor = Tensor::empty(shape, DType::f32, device);
  copy_bytes(tensor.raw(), device, values.data(), kCPU, tensor.bytes());
  return tensor;
}

class TensorTest : public DeviceTest {};

TEST_P(TensorTest, HasTheShapeDTypeAndDeviceItWasMadeWith) {
  const Tensor tensor = Tensor::empty({2, 3}, DType::f64, device());
  EXPECT_EQ(tensor.shape(), Shape({2, 3}));
  EXPECT_EQ(tensor.size(-1), 3);
  EXPECT_EQ(tensor.dims(), 2);
  EXPECT_EQ(tensor.numel(), 6);
  EXPECT_EQ(tensor.bytes(), 48u);
  EXPECT_EQ(tensor.dtype(), DType::f64);
  EXPECT_EQ(tensor.device(), device());
  EXPECT_FALSE(tensor.requires_grad());
  EXPECT_TRUE(tensor.is_leaf());
  EXPECT_FALSE(tensor.grad().defined());
}

TEST_P(TensorTest, ElementsComeToTheHostConverted) {
  const Tensor tensor = counting({2, 3}, device());
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tensor.to_vector<double>(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tensor.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tensor.to_vector<Float16>()[3].bits, Float16(3.0f).bits);
  EXPECT_EQ(tensor.alias({}, 4).item<double>(), 4.0);
}

TEST_P(TensorTest, EmptyTensorsHaveNoElementsAndNoAddress) {
  const Tensor tensor = Tensor::empty({3, 0}, DType::f32, device());
  EXPECT_EQ(tensor.raw(), nullptr);
  EXPECT_EQ(tensor.bytes(), 0u);
  EXPECT_TRUE(tensor.to_vector<float>().empty());
  EXPECT_EQ(tensor.alias({0}).numel(), 0);
  EXPECT_THROW((void)tensor.item<float>(), ShapeError);
}

TEST_P(TensorTest, ViewsShareElementsAndVersion) {
  const Tensor tensor = counting({4, 3}, device());
  const Tensor row = tensor.alias({3}, 6);
  EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{6, 7, 8}));
  const Tensor within = row.alias({1}, 2);
  EXPECT_EQ(within.item<float>(), 8.0f);
  zero_bytes(within.raw(), device(), within.bytes());
  within.bump_version();
  EXPECT_EQ(tensor.to_vector<float>()[8], 0.0f);
  EXPECT_EQ(tensor.version(), 1u);
  EXPECT_EQ(row.version(), 1u);
  EXPECT_FALSE(row.is_same(tensor));
}

TEST_P(TensorTest, AViewKeepsTheElementsAlive) {
  Tensor view;
  {
    const Tensor tensor = counting({1000}, device());
    view = tensor.alias({2}, 998);
  }
  const Tensor other = counting({1000}, device());  // would take the block if it were free
  zero_bytes(other.raw(), device(), other.bytes());
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{998, 999}));
}

TEST_P(TensorTest, SetDataChangesWhatEveryHandleNamesAndDropsAGradientThatNoLongerFits) {
  Tensor tensor = counting({2});
  const Tensor handle = tensor;
  tensor.requires_grad_();
  tensor.set_grad(counting({2}));
  tensor.record().copy.set(counting({2}), 0);

  tensor.set_data(counting({2}));
  EXPECT_TRUE(tensor.grad().defined());
  EXPECT_FALSE(tensor.record().copy.value().defined());  // a copy of other elements

  const Tensor source = counting({3}, device());
  tensor.set_data(source);
  EXPECT_EQ(handle.shape(), Shape({3}));
  EXPECT_EQ(handle.device(), device());
  EXPECT_EQ(handle.raw(), source.raw());
  EXPECT_FALSE(handle.grad().defined());
  EXPECT_TRUE(handle.requires_grad());
}

TEST_P(TensorTest, PrintsElementsTypeAndDevice) {
  const Tensor tensor = counting({2}, device());
  EXPECT_EQ(tensor.str(), "tensor(0, 1, shape [2], f32, " + device().str() + ")");
  EXPECT_NE(counting({17}, device()).str().find("…"), std::string::npos);
  EXPECT_EQ(Tensor().str(), "tensor(undefined)");
}

FUSEGRAD_ON_EVERY_DEVICE(TensorTest);

TEST(Tensor, CopiesAreHandlesOfOneTensor) {
  const Tensor tensor = counting({2});
  Tensor copy = tensor;
  EXPECT_TRUE(copy.is_same(tensor));
  EXPECT_EQ(copy.id(), tensor.id());
  copy.span<float>()[0] = 7;
  EXPECT_EQ(tensor.span<float>()[0], 7.0f);
}

TEST(Tensor, IsSoleOwnerUntilAHandleOrViewAppears) {
  const Tensor tensor = counting({2});
  EXPECT_TRUE(tensor.is_sole_owner());
  {
    const Tensor copy = tensor;
    EXPECT_FALSE(tensor.is_sole_owner());
  }
  {
    const Tensor view = tensor.detach();
    EXPECT_FALSE(tensor.is_sole_owner());
  }
  EXPECT_TRUE(tensor.is_sole_owner());
}

TEST(Tensor, DetachSharesElementsButNotTheGradient) {
  Tensor tensor = counting({2});
  tensor.requires_grad_();
  tensor.set_grad(counting({2}));
  const Tensor cut = tensor.detach();
  EXPECT_FALSE(cut.requires_grad());
  EXPECT_FALSE(cut.grad().defined());
  EXPECT_EQ(cut.raw(), tensor.raw());
}

TEST(Tensor, AnUndefinedTensorThrowsInTheNameOfTheCallAndSaysWhatToAsk) {
  const Tensor undefined;
  EXPECT_FALSE(undefined.defined());
  EXPECT_THROW((void)undefined.shape(), StateError);
  EXPECT_THROW((void)undefined.dtype(), StateError);
  EXPECT_THROW((void)undefined.device(), StateError);
  EXPECT_THROW((void)undefined.raw(), StateError);
  EXPECT_THROW((void)undefined.version(), StateError);
  EXPECT_THROW((void)undefined.alias({1}), StateError);
  EXPECT_THROW((void)undefined.item<float>(), StateError);
  EXPECT_THROW(undefined.set_data(counting({1})), StateError);
  EXPECT_THROW(counting({1}).set_data(undefined), StateError);
  EXPECT_THROW(Tensor().requires_grad_(), StateError);
  EXPECT_FALSE(undefined.requires_grad());
  EXPECT_FALSE(undefined.grad().defined());
  try {
    (void)undefined.shape();
    FAIL() << "no error";
  } catch (const StateError& error) {
    EXPECT_EQ(error.fault().op, "shape");
    EXPECT_NE(error.fault().way_out.find("defined()"), std::string::npos);
  }
}

TEST(Tensor, RefusesViewsOutsideItself) {
  const Tensor tensor = counting({4});
  EXPECT_NO_THROW((void)tensor.alias({0}, 4));
  EXPECT_THROW((void)tensor.alias({5}), ShapeError);
  EXPECT_THROW((void)tensor.alias({1}, 4), ShapeError);
  EXPECT_THROW((void)tensor.alias({1}, -1), ShapeError);
  EXPECT_THROW((void)tensor.alias({0}, 5), ShapeError);
  EXPECT_THROW((void)tensor.alias({2}, std::numeric_limits<std::int64_t>::max()), ShapeError);
  EXPECT_THROW((void)tensor.alias({std::numeric_limits<std::int64_t>::max()}, 1), ShapeError);
}

TEST(Tensor, RefusesSizesThatNoMemoryHolds) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW((void)Tensor::empty({kMost}, DType::f64), ShapeError);
  EXPECT_THROW((void)Tensor::empty({kMost}, DType::f32), ShapeError);
  EXPECT_THROW((void)Tensor::empty({kMost}, DType::f16), ShapeError);
  EXPECT_THROW((void)Tensor::empty({kMost / 2 + 1}, DType::f16), ShapeError);  // 2^63 bytes
}

TEST(Tensor, RefusesTheWrongElementTypeAndSaysHowToConvert) {
  const Tensor tensor = counting({2});
  EXPECT_THROW((void)tensor.data<double>(), DTypeError);
  EXPECT_THROW((void)tensor.span<std::int64_t>(), DTypeError);
  try {
    tensor.require_dtype(DType::f16, "matmul");
    FAIL() << "no error";
  } catch (const DTypeError& error) {
    EXPECT_EQ(error.fault().op, "matmul");
    EXPECT_NE(error.fault().way_out.find("to(x, DType::f16)"), std::string::npos);
  }
}

TEST(Tensor, ItemWantsExactlyOneElement) {
  EXPECT_THROW((void)counting({2}).item<float>(), ShapeError);
  EXPECT_EQ(counting({1, 1}).item<float>(), 0.0f);
}

TEST(Tensor, OnlyFloatingTensorsTakeGradients) {
  Tensor integers = Tensor::empty({2}, DType::i64);
  EXPECT_THROW(integers.requires_grad_(), DTypeError);
  EXPECT_NO_THROW(integers.requires_grad_(false));
  Tensor tensor = counting({2});
  EXPECT_TRUE(tensor.requires_grad_().requires_grad());
  EXPECT_FALSE(tensor.requires_grad_(false).requires_grad());
}

TEST(Tensor, AGradientHasTheShapeOfItsTensorAndAFloatingType) {
  const Tensor tensor = counting({2});
  EXPECT_THROW(tensor.set_grad(counting({3})), ShapeError);
  EXPECT_THROW(tensor.set_grad(counting({1, 2})), ShapeError);
  EXPECT_THROW(tensor.set_grad(Tensor::empty({2}, DType::i64)), DTypeError);
  tensor.set_grad(Tensor::empty({2}, DType::f16));
  EXPECT_TRUE(tensor.grad().defined());
  tensor.set_grad({});
  EXPECT_FALSE(tensor.grad().defined());
}

TEST(Tensor, ADeviceThatIsNotThereIsAnError) {
  EXPECT_THROW((void)Tensor::empty({1}, DType::f32, {DeviceType::cuda, cuda_device_count()}), DeviceError);
}

TEST(RequireSame, NamesTheOperationAndBothSides) {
  const Tensor a = counting({2});
  EXPECT_EQ(require_same_device({a, Tensor(), a}, "add"), kCPU);
  EXPECT_EQ(require_same_device({}, "add"), kCPU);
  EXPECT_NO_THROW(require_same_shape(a, counting({2}), "add"));
  try {
    require_same_shape(a, counting({3}), "mse_loss");
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_EQ(error.fault().op, "mse_loss");
    EXPECT_EQ(error.fault().got, "[2] and [3]");
  }
}

TEST(RequireSame, RefusesTensorsOnTwoDevices) {
  FUSEGRAD_REQUIRE_CUDA();
  const Tensor cpu = counting({2});
  const Tensor cuda = counting({2}, kCUDA);
  EXPECT_THROW(require_same_device({cpu, cuda}, "add"), DeviceError);
  EXPECT_THROW(cpu.set_grad(cuda), DeviceError);
  EXPECT_THROW((void)cuda.span<float>(), DeviceError);
}

}  // namespace
}  // namespace fusegrad
