// Autocast: who runs in which precision, and that weights are never stale.

#include <cmath>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/optim/adam.h>
#include <fusegrad/optim/sgd.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using amp::Autocast;

class AutocastTest : public DeviceTest {
 protected:
  static amp::AutocastOptions region(DType dtype = DType::f16) { return {.device = device().type, .dtype = dtype}; }
  static Tensor random(const Shape& shape, std::uint64_t seed) {
    CpuGenerator generator(seed);
    return to(randn(shape, generator), device());
  }
  static std::shared_ptr<nn::Linear> layer() {
    manual_seed(1);
    auto linear = std::make_shared<nn::Linear>(8, 4);
    linear->to(device());
    return linear;
  }
};
FUSEGRAD_ON_EVERY_DEVICE(AutocastTest);

TEST_P(AutocastTest, ProductsRunLowLossesInF32AndTheRestAsItComes) {
  for (const DType low : {DType::f16, DType::bf16}) {
    const Tensor x = random({3, 8}, 1);
    const Tensor w = random({4, 8}, 2).requires_grad_();
    const Autocast guard(region(low));
    const Tensor y = linear(x, w);
    EXPECT_EQ(y.dtype(), low);
    EXPECT_EQ(matmul(x, w, {.transpose_b = true}).dtype(), low);
    EXPECT_EQ(relu(y).dtype(), low);
    EXPECT_EQ((y + y).dtype(), low);
    EXPECT_EQ((y + random({3, 4}, 3)).dtype(), DType::f32) << "binary operations promote";
    EXPECT_EQ(mse_loss(y, y).dtype(), DType::f32);
    EXPECT_EQ(sum(y).dtype(), DType::f32);
    EXPECT_EQ(mean(y, 0).dtype(), DType::f32);
    EXPECT_EQ(fusegrad::exp(y).dtype(), DType::f32);
    EXPECT_EQ(fusegrad::log(y).dtype(), DType::f32);
    EXPECT_EQ(square(y).dtype(), DType::f32);
  }
}

TEST_P(AutocastTest, F64IsNotTouched) {
  const Autocast guard(region());
  const Tensor x = ones({2, 2}, {.dtype = DType::f64, .device = device()});
  EXPECT_EQ(matmul(x, x).dtype(), DType::f64);
}

TEST_P(AutocastTest, RegionsNestAndCanBeSwitchedOffInside) {
  const Tensor x = random({3, 8}, 1);
  const Tensor w = random({4, 8}, 2);
  const auto dtype = [&] { return linear(x, w).dtype(); };
  EXPECT_EQ(dtype(), DType::f32);
  {
    const Autocast outer(region(DType::f16));
    EXPECT_EQ(dtype(), DType::f16);
    {
      const Autocast inner(region(DType::bf16));
      EXPECT_EQ(dtype(), DType::bf16);
      const Autocast off({.device = device().type, .enabled = false});
      EXPECT_EQ(dtype(), DType::f32);
    }
    EXPECT_EQ(dtype(), DType::f16);
  }
  EXPECT_EQ(dtype(), DType::f32);
  const DeviceType other = device().is_cpu() ? DeviceType::cuda : DeviceType::cpu;
  const Autocast elsewhere({.device = other});
  EXPECT_EQ(dtype(), DType::f32) << "a region concerns one kind of device";
}

TEST_P(AutocastTest, AWeightIsCastOnceAndAgainOnlyWhenItChanges) {
  const auto model = layer();
  const Tensor x = random({3, 8}, 1);
  const Autocast guard(region());
  (void)model->forward(x);
  const void* first = model->weight().record().copy.value().raw();
  const std::uint64_t version = model->weight().record().copy.value().version();
  (void)model->forward(x);
  EXPECT_EQ(model->weight().record().copy.value().raw(), first);
  EXPECT_EQ(model->weight().record().copy.value().version(), version) << "not written again";
  {
    const NoGrad no_grad;
    mul_(model->weight(), 2);
  }
  (void)model->forward(x);
  EXPECT_GT(model->weight().record().copy.value().version(), version);
}

TEST_P(AutocastTest, ChangedWeightsTakeEffectAtOnceWhoeverChangedThem) {
  const auto model = layer();
  const Tensor x = random({3, 8}, 1);
  const Tensor value = random({4, 8}, 9);
  const Autocast guard(region());
  const auto expect_fresh = [&](const std::string& what) {
    const Tensor got = model->forward(x);
    const Tensor want = linear(x, model->weight().detach(), model->bias().detach());  // cast anew: no leaf, no copy
    EXPECT_TRUE(same_bits(got, want)) << what;
  };
  expect_fresh("first");
  {
    const NoGrad no_grad;
    copy_(model->weight(), value);
    expect_fresh("copy_");
    uniform_(model->weight());
    expect_fresh("uniform_");
    mul_(rows(model->weight(), 0, 1), 3);  // through a view
    expect_fresh("a view");
  }
  StateDict state;
  state.tensors["weight"] = value;
  state.tensors["bias"] = ones({4}, {.device = device()});
  model->load_state_dict(state);
  expect_fresh("load_state_dict");
  model->weight().set_data(random({4, 8}, 10));
  expect_fresh("set_data");
  const std::vector<std::shared_ptr<optim::Optimizer>> optimizers{
      std::make_shared<optim::FusedAdam>(model->parameters(), optim::AdamOptions{.lr = 0.1}),
      std::make_shared<optim::Adam>(model->parameters(), optim::AdamOptions{.lr = 0.1}),
      std::make_shared<optim::SGD>(model->parameters(), optim::SGDOptions{.lr = 0.1})};
  for (const auto& optimizer : optimizers) {
    for (int step = 0; step < 3; ++step) {
      model->zero_grad();
      sum(model->forward(x)).backward();
      optimizer->step();
      expect_fresh(std::string(optimizer->name()));
    }
  }
}

TEST_P(AutocastTest, EvaluationThenTrainingInOneRegionStillTrains) {
  const auto model = layer();
  const Tensor x = random({3, 8}, 1);
  const Autocast guard(region());
  {
    const NoGrad no_grad;
    EXPECT_FALSE(model->forward(x).requires_grad());
  }
  sum(model->forward(x)).backward();
  ASSERT_TRUE(model->weight().grad().defined());
  EXPECT_EQ(model->weight().grad().dtype(), DType::f32);
}

TEST_P(AutocastTest, WeightGradientsArriveInF32Unrounded) {
  // x is 1 in every row and the upstream gradient is 1 + 2^-9: 300 of them add up to 300.58…, which f16 cannot hold.
  const Tensor x = ones({300, 1}, {.device = device()});
  const Tensor w = ones({1, 1}, {.device = device(), .requires_grad = true});
  Tensor y;
  {
    const Autocast guard(region());
    y = linear(x, w);
  }
  y.backward(full({300, 1}, 1.0 + 0.001953125, {.dtype = DType::f16, .device = device()}));
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  EXPECT_EQ(w.grad().item<double>(), 300 * (1.0 + 0.001953125));
}

TEST_P(AutocastTest, GradientsAgreeWithF32) {
  const auto model = layer();
  const Tensor x = random({32, 8}, 1).requires_grad_();
  const Tensor target = random({32, 4}, 2);
  const auto run = [&](bool enabled) {
    model->zero_grad();
    x.set_grad({});
    Tensor loss;
    {
      const Autocast guard({.device = device().type, .enabled = enabled});
      loss = mse_loss(relu(model->forward(x)), target);
    }
    loss.backward();
    std::vector<double> all;
    for (const Tensor& t : {model->weight(), model->bias(), x}) {
      EXPECT_EQ(t.grad().dtype(), DType::f32);
      for (const double v : t.grad().to_vector<double>()) all.push_back(v);
    }
    return all;
  };
  const std::vector<double> low = run(true);
  const std::vector<double> full_precision = run(false);
  for (std::size_t i = 0; i < low.size(); ++i)
    EXPECT_NEAR(low[i], full_precision[i], 2e-3);  // 11 bits of values below 1
}

TEST(Autocast, WantsF16OrBf16) {
  EXPECT_THROW(Autocast({.dtype = DType::f32}), DTypeError);
  EXPECT_THROW(Autocast({.dtype = DType::f64}), DTypeError);
}

}  // namespace
}  // namespace fusegrad
