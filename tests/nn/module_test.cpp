// Modules that change dtype, are written to a file, or share a weight.

#include <filesystem>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/activations.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/nn/sequential.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/runtime/temporary_folder.h>

namespace fusegrad {
namespace {

class ModuleTest : public DeviceTest {
 protected:
  static nn::Sequential model(std::uint64_t seed) {
    manual_seed(seed);
    return nn::Sequential(std::make_shared<nn::Linear>(3, 4), std::make_shared<nn::ReLU>(),
                          std::make_shared<nn::Linear>(4, 2));
  }
};
FUSEGRAD_ON_EVERY_DEVICE(ModuleTest);

/// A module that reads one weight in two places.
class Tied : public nn::Module {
 public:
  Tied() {
    weight_ = register_parameter("encode", ones({2, 2}));
    register_parameter("decode", weight_);
  }
  Tensor forward(const Tensor& x) override { return linear(linear(x, weight_), weight_); }
  [[nodiscard]] const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

TEST_P(ModuleTest, ConvertsItsParametersByRoundingEach) {
  nn::Sequential net = model(1);
  net.to(device());
  const std::vector<Tensor> handles = net.parameters();
  std::vector<Tensor> want;
  for (const Tensor& p : handles) want.push_back(to(p.detach(), DType::bf16));
  for (const Tensor& p : handles) p.set_grad(zeros_like(p));
  net.to(DType::bf16);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    EXPECT_TRUE(same_bits(handles[i], want[i]));
    EXPECT_TRUE(handles[i].requires_grad() && handles[i].is_leaf());
    EXPECT_FALSE(handles[i].grad().defined()) << "a gradient of the old dtype";
    EXPECT_TRUE(net.parameters()[i].is_same(handles[i]));
  }
  EXPECT_EQ(net(zeros({2, 3}, {.dtype = DType::bf16, .device = device()})).dtype(), DType::bf16);
}

TEST_P(ModuleTest, ConvertingToTheSameDtypeAndDeviceTouchesNothing) {
  nn::Sequential net = model(1);
  net.to(device());
  const Tensor p = net.parameters()[0];
  p.set_grad(ones(p.shape(), {.device = device()}));
  const void* memory = p.raw();
  net.to(device());
  net.to(DType::f32);
  EXPECT_EQ(p.raw(), memory);
  EXPECT_TRUE(p.grad().defined());
}

TEST_P(ModuleTest, AStateGoesThroughAFileBitForBit) {
  const TemporaryFolder folder;
  nn::Sequential net = model(1);
  net.to(device());
  save(folder.path() / "net.safetensors", net.state_dict());
  nn::Sequential other = model(2);
  other.to(device());
  ASSERT_FALSE(same_bits(other.parameters()[0], net.parameters()[0]));
  other.load_state_dict(load_state(folder.path() / "net.safetensors"));
  for (std::size_t i = 0; i < net.parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(other.parameters()[i], net.parameters()[i]));
    EXPECT_TRUE(other.parameters()[i].requires_grad());
  }
}

TEST_P(ModuleTest, LoadingCopiesValuesAndConvertsThemToTheParametersDtype) {
  nn::Sequential net = model(1);
  net.to(device());
  const Tensor p = net.parameters()[0];
  const void* memory = p.raw();
  const std::uint64_t version = p.version();
  StateDict state;
  for (const auto& [name, tensor] : net.state_dict().tensors) {
    state.tensors[name] = full(tensor.shape(), 0.75, {.dtype = DType::f16});
  }
  net.load_state_dict(state);
  EXPECT_EQ(p.raw(), memory);
  EXPECT_EQ(p.dtype(), DType::f32);
  EXPECT_GT(p.version(), version);
  fill_(state.tensors.at("0.weight"), 9);
  EXPECT_EQ(p.to_vector<double>(), std::vector<double>(12, 0.75)) << "the parameter shares memory with the state";
}

TEST_P(ModuleTest, ATiedWeightIsOneParameterWithOneGradient) {
  Tied tied;
  tied.to(device());
  ASSERT_EQ(tied.parameters().size(), 1u);
  EXPECT_EQ(tied.named_parameters().size(), 2u);
  sum(tied(ones({1, 2}, {.device = device()}))).backward();
  EXPECT_EQ(tied.weight().grad().to_vector<float>(), std::vector<float>(4, 4.0f));  // 2 from each place
  tied.to(DType::f64);
  EXPECT_EQ(tied.weight().dtype(), DType::f64);
  EXPECT_TRUE(tied.named_parameters()[1].second.is_same(tied.weight()));
  tied.load_state_dict(tied.state_dict());
  EXPECT_EQ(tied.weight().to_vector<float>(), std::vector<float>(4, 1.0f));
}

TEST_P(ModuleTest, ZeroGradDropsTheGradientsAndKeepsTheirMemory) {
  nn::Sequential net = model(1);
  net.to(device());
  const Tensor x = ones({2, 3}, {.device = device()});
  const std::int64_t before = memory_stats(device()).bytes_now;
  sum(net(x)).backward();
  const std::int64_t with_gradients = memory_stats(device()).bytes_now;
  EXPECT_GT(with_gradients, before);
  net.zero_grad();
  for (const Tensor& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
  EXPECT_EQ(memory_stats(device()).bytes_now, with_gradients);
  for (const Tensor& p : net.parameters()) p.set_grad({});
  EXPECT_EQ(memory_stats(device()).bytes_now, before);
}

TEST_P(ModuleTest, AnOldGraphDoesNotReadAConvertedWeight) {
  nn::Sequential net = model(1);
  net.to(device());
  const Tensor w = net.parameters()[2];  // of the last layer, so its gradient needs no other weight
  const Tensor x = ones({2, 3}, {.device = device()});
  sum(net(x)).backward();
  const Tensor want = to(w.grad(), DType::f64);
  net.zero_grad();
  const Tensor loss = sum(net(x));
  net.to(DType::f64);
  loss.backward();  // the gradient of the f32 forward, in the dtype that the leaf has by now
  EXPECT_TRUE(same_bits(w.grad(), want));
}

}  // namespace
}  // namespace fusegrad
