// Modules: Linear's numbers, the tree of parameters, losses.

#include <cmath>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/nn/activations.h>
#include <fusegrad/nn/init.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/nn/mse_loss.h>
#include <fusegrad/nn/sequential.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

class NNTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(NNTest);

TEST(Linear, StartsWithPyTorchsWeightsBitForBit) {
  const TensorFile file = load_safetensors(std::string(FUSEGRAD_SOURCE_DIR) + "/tests/data/seed_2809.safetensors");
  manual_seed(2809);
  const nn::Linear layer(10, 10);
  EXPECT_TRUE(same_bits(layer.weight(), file.tensors.at("weight")));
  EXPECT_TRUE(same_bits(layer.bias(), file.tensors.at("bias")));
}

TEST(Linear, StartsWithinItsBounds) {
  for (const std::int64_t in : {1, 3, 1000}) {
    const nn::Linear layer(in, 50);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    for (const Tensor& p : layer.parameters()) {
      for (const double v : p.to_vector<double>()) EXPECT_LE(std::fabs(v), bound * (1 + 1e-7));
    }
  }
  EXPECT_THROW(nn::Linear(-1, 2), ValueError);
  EXPECT_NO_THROW(nn::Linear(0, 2));
  EXPECT_FALSE(nn::Linear(2, 2, {.bias = false}).bias().defined());
}

TEST_P(NNTest, LinearMapsTheLastDimension) {
  nn::Linear layer(3, 2);
  layer.to(device());
  const std::vector<double> w = layer.weight().to_vector<double>();
  const std::vector<double> b = layer.bias().to_vector<double>();
  for (const Shape& leading : {Shape{}, Shape{4}, Shape{2, 5}, Shape{0}}) {
    const Tensor x = to(rand(leading.append(3)), device());
    const Tensor y = layer(x);
    ASSERT_EQ(y.shape(), leading.append(2));
    const std::vector<double> in = x.to_vector<double>();
    const std::vector<double> out = y.to_vector<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / 2;
      const std::size_t column = i % 2;
      double want = b[column];
      for (std::size_t k = 0; k < 3; ++k) want += in[row * 3 + k] * w[column * 3 + k];
      EXPECT_NEAR(out[i], want, 1e-6);  // three f32 products
    }
  }
  EXPECT_THROW(layer(to(rand({4, 2}), device())), ShapeError);
  EXPECT_THROW(layer(to(rand({4, 3}, {.dtype = DType::f64}), device())), DTypeError);
}

class TwoLayers : public nn::Module {
 public:
  TwoLayers() {
    register_module("first", first);
    register_module("second", second);
    scale = register_parameter("scale", ones({1}));
  }
  Tensor forward(const Tensor& x) override { return second->forward(relu(first->forward(x))) * scale; }
  using Module::register_module;
  using Module::register_parameter;
  std::shared_ptr<nn::Linear> first = std::make_shared<nn::Linear>(3, 4);
  std::shared_ptr<nn::Linear> second = std::make_shared<nn::Linear>(4, 2, nn::LinearOptions{.bias = false});
  Tensor scale;
};

TEST(Module, NamesItsParametersByTheirPlace) {
  const TwoLayers model;
  std::vector<std::string> names;
  for (const auto& [name, p] : model.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "first.weight", "first.bias", "second.weight"}));
  for (const Tensor& p : model.parameters()) EXPECT_TRUE(p.requires_grad());
  const nn::Sequential row(std::make_shared<nn::Linear>(2, 2), std::make_shared<nn::GELU>(),
                           std::make_shared<nn::Linear>(2, 1));
  EXPECT_EQ(row.named_parameters().back().first, "2.bias");
}

TEST(Module, RefusesBadNames) {
  TwoLayers model;
  EXPECT_THROW(model.register_parameter("first", ones({1})), ValueError);
  EXPECT_THROW(model.register_parameter("", ones({1})), ValueError);
  EXPECT_THROW(model.register_parameter("a.b", ones({1})), ValueError);
  EXPECT_THROW(model.register_module("scale", std::make_shared<nn::ReLU>()), ValueError);
  EXPECT_THROW(model.register_module("none", nullptr), ValueError);
}

TEST(Module, ListsASharedWeightOnce) {
  TwoLayers model;
  model.register_module("again", model.first);
  EXPECT_EQ(model.parameters().size(), 4u);
  EXPECT_EQ(model.named_parameters().size(), 6u);
}

TEST_P(NNTest, MovesInPlaceSoThatHandlesFollow) {
  TwoLayers model;
  const Tensor handle = model.first->weight();
  const Tensor before = clone(handle.detach());
  handle.set_grad(ones(handle.shape()));
  model.to(device());
  EXPECT_EQ(handle.device(), device());
  EXPECT_TRUE(same_bits(handle, before));
  EXPECT_EQ(handle.grad().defined(), device().is_cpu()) << "a gradient elsewhere is dropped";
  model.to(DType::f16);
  EXPECT_EQ(handle.dtype(), DType::f16);
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_THROW(model.to(DType::i64), DTypeError);
  EXPECT_THROW(model.to(Device{DeviceType::cuda, 77}), DeviceError);
}

TEST_P(NNTest, AStateMovesToAnotherModule) {
  manual_seed(1);
  TwoLayers a;
  TwoLayers b;
  a.to(device());
  b.load_state_dict(a.state_dict());
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(to(a.parameters()[i].detach(), kCPU), b.parameters()[i]));
  }
}

TEST(Module, AStateThatDoesNotFitIsRefusedAndChangesNothing) {
  TwoLayers model;
  const TwoLayers other;
  std::vector<Tensor> before;
  for (const Tensor& p : model.parameters()) before.push_back(clone(p.detach()));
  const auto refused = [&](const std::function<void(StateDict&)>& spoil) {
    StateDict state = other.state_dict();
    spoil(state);
    EXPECT_THROW(model.load_state_dict(state), Error);
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(model.parameters()[i], before[i]));
  };
  refused([](StateDict& s) { s.tensors.erase("second.weight"); });
  refused([](StateDict& s) { s.tensors["third.weight"] = ones({1}); });
  refused([](StateDict& s) { s.tensors["second.weight"] = ones({4, 2}); });
}

TEST(Module, SwitchesItsPartsBetweenTrainingAndEvaluation) {
  TwoLayers model;
  EXPECT_TRUE(model.is_training());
  model.eval();
  EXPECT_FALSE(model.is_training() || model.first->is_training());
  model.train();
  EXPECT_TRUE(model.is_training() && model.second->is_training());
}

TEST_P(NNTest, ActivationsAreTheFunctions) {
  const Tensor x = to(tensor({-2, -0.5, 0, 1, 3}), device());
  EXPECT_TRUE(same_bits(nn::ReLU()(x), relu(x)));
  EXPECT_TRUE(same_bits(nn::Sigmoid()(x), sigmoid(x)));
  EXPECT_TRUE(same_bits(nn::Tanh()(x), fusegrad::tanh(x)));
  EXPECT_TRUE(same_bits(nn::GELU()(x), gelu(x)));
}

TEST_P(NNTest, TheLossReducesAsAsked) {
  const Tensor x = to(tensor({1, 2, 3}), device());
  const Tensor y = to(tensor({2, 0, 3}), device());
  EXPECT_FLOAT_EQ(nn::MSELoss()(x, y).item<float>(), 5.0f / 3.0f);
  EXPECT_EQ(nn::MSELoss(Reduction::sum)(x, y).item<float>(), 5.0f);
  EXPECT_EQ(nn::MSELoss(Reduction::none)(x, y).to_vector<float>(), (std::vector<float>{1, 4, 0}));
  const Tensor empty = zeros({0}, {.device = device()});
  EXPECT_TRUE(std::isnan(nn::MSELoss()(empty, empty).item<float>()));
  EXPECT_EQ(nn::MSELoss(Reduction::sum)(empty, empty).item<float>(), 0.0f);
  EXPECT_THROW(nn::MSELoss()(x, view(y, {3, 1})), ShapeError);
}

TEST(Init, KaimingHasItsBoundAndConstantsAreConstant) {
  manual_seed(3);
  const Tensor w = zeros({2000, 6});
  nn::init::kaiming_uniform_(w);
  double largest = 0;
  for (const double v : w.to_vector<double>()) largest = std::max(largest, std::fabs(v));
  EXPECT_NEAR(largest, 1.0, 1e-3);  // √3·√2/√6
  EXPECT_LE(largest, 1.0);
  EXPECT_THROW(nn::init::kaiming_uniform_(zeros({3})), ShapeError);
  nn::init::constant_(w, 2);
  EXPECT_EQ(w.to_vector<float>()[5], 2.0f);
}

}  // namespace
}  // namespace fusegrad
