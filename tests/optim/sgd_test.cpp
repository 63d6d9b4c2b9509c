// SGD against its formula in double.

#include <fusegrad/optim/sgd.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

using optim::SGD;
using optim::SGDOptions;

class SGDTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(SGDTest);

TEST_P(SGDTest, FollowsTheFormulaForEveryOption) {
  std::mt19937 random(1);
  const std::vector<SGDOptions> all{{.lr = 0.1},
                                    {.lr = 0.1, .momentum = 0.9},
                                    {.lr = 0.1, .momentum = 0.9, .dampening = 0.3},
                                    {.lr = 0.1, .momentum = 0.9, .nesterov = true},
                                    {.lr = 0.1, .momentum = 0.5, .weight_decay = 0.1},
                                    {.lr = 0.1, .weight_decay = 0.1, .maximize = true}};
  for (const SGDOptions& o : all) {
    const Tensor p = wild({20}, random, DType::f64, device()).requires_grad_();
    std::vector<double> want = p.to_vector<double>();
    std::vector<double> buffer(want.size());
    SGD optimizer({p}, o);
    for (int step = 0; step < 5; ++step) {
      p.set_grad(wild({20}, random, DType::f64, device()));
      const std::vector<double> grads = p.grad().to_vector<double>();
      optimizer.step();
      for (std::size_t i = 0; i < want.size(); ++i) {
        double g = (o.maximize ? -grads[i] : grads[i]) + o.weight_decay * want[i];
        if (o.momentum != 0) {
          buffer[i] = step == 0 ? g : o.momentum * buffer[i] + (1 - o.dampening) * g;
          g = o.nesterov ? g + o.momentum * buffer[i] : buffer[i];
        }
        want[i] -= o.lr * g;
      }
    }
    const std::vector<double> got = p.to_vector<double>();
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-9);  // a few roundings on up to 1e3
  }
}

TEST_P(SGDTest, TheFirstBufferIsACopyOfTheGradient) {
  const Tensor p = zeros({3}, {.device = device(), .requires_grad = true});
  SGD optimizer({p}, {.lr = 0.1, .momentum = 0.9});
  const Tensor g = ones({3}, {.device = device()});
  p.set_grad(g);
  optimizer.step();
  optimizer.step();
  EXPECT_EQ(g.to_vector<float>(), std::vector<float>(3, 1.0f));
}

TEST_P(SGDTest, AStateResumesWithEqualBits) {
  std::mt19937 random(2);
  const std::vector<Shape> shapes{{5}, {7}};
  Twins twins(shapes, random, DType::f32, device());
  const SGDOptions o{.lr = 0.1, .momentum = 0.9};
  SGD straight(twins.fused, o);
  SGD first(twins.unfused, o);
  SGD second(twins.unfused, o);
  for (int step = 0; step < 6; ++step) {
    for (std::size_t i = 0; i < shapes.size(); ++i) twins.set_grad(i, wild(shapes[i], random, DType::f32, device()));
    straight.step();
    if (step == 3) second.load_state_dict(first.state_dict());
    step < 3 ? first.step() : second.step();
  }
  twins.expect_same("resumed");
}

TEST(SGD, RefusesOptionsOutOfRange) {
  const Tensor p = zeros({2}, {.requires_grad = true});
  EXPECT_THROW(SGD({p}, {.lr = -1}), ValueError);
  EXPECT_THROW(SGD({p}, {.momentum = -1}), ValueError);
  EXPECT_THROW(SGD({p}, {.weight_decay = -1}), ValueError);
  EXPECT_THROW(SGD({p}, {.nesterov = true}), ValueError);
  EXPECT_THROW(SGD({p}, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), ValueError);
  EXPECT_THROW(SGD(std::vector<Tensor>{}), ValueError);
}

}  // namespace
}  // namespace fusegrad
