// Adam's numbers, options, state and refusals, for all four classes.

#include <cmath>

#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

using optim::Adam;
using optim::AdamOptions;
using optim::AdamParamGroup;
using optim::AdamW;
using optim::AdamWOptions;
using optim::FusedAdam;
using optim::FusedAdamW;

// The formula again, as the papers have it, in double and one element at a time.
struct Reference {
  AdamOptions o;
  bool decoupled;
  double p, m = 0, v = 0, v_max = 0;
  int t = 0;

  void step(double g) {
    ++t;
    if (o.maximize) g = -g;
    if (decoupled) {
      p -= o.lr * o.weight_decay * p;
    } else {
      g += o.weight_decay * p;
    }
    m = o.betas.first * m + (1 - o.betas.first) * g;
    v = o.betas.second * v + (1 - o.betas.second) * g * g;
    v_max = std::max(v_max, v);
    const double second = o.amsgrad ? v_max : v;
    const double m_hat = m / (1 - std::pow(o.betas.first, t));
    const double root = std::sqrt(second / (1 - std::pow(o.betas.second, t)));
    p -= o.lr * m_hat / (root + o.eps);
  }
};

class AdamTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(AdamTest);

TEST_P(AdamTest, FollowsTheFormulaForEveryOption) {
  std::mt19937 random(1);
  for (int options = 0; options < 16; ++options) {
    const AdamOptions o{.lr = 0.03,
                        .betas = {0.8, 0.95},
                        .eps = 1e-6,
                        .weight_decay = (options & 1) != 0 ? 0.05 : 0.0,
                        .amsgrad = (options & 2) != 0,
                        .maximize = (options & 4) != 0};
    const bool decoupled = (options & 8) != 0;
    const Tensor p = wild({50}, random, DType::f64, device()).requires_grad_();
    std::vector<Reference> reference;
    for (const double value : p.to_vector<double>()) reference.push_back({.o = o, .decoupled = decoupled, .p = value});
    std::unique_ptr<optim::Optimizer> optimizer;
    if (decoupled) {
      optimizer = std::make_unique<FusedAdamW>(
          std::vector<Tensor>{p}, AdamWOptions{o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize});
    } else {
      optimizer = std::make_unique<FusedAdam>(std::vector<Tensor>{p}, o);
    }
    for (int step = 0; step < 30; ++step) {
      const Tensor g = wild({50}, random, DType::f64, device());
      p.set_grad(g);
      optimizer->step();
      const std::vector<double> grads = g.to_vector<double>();
      for (std::size_t i = 0; i < grads.size(); ++i) reference[i].step(grads[i]);
    }
    const std::vector<double> result = p.to_vector<double>();
    for (std::size_t i = 0; i < result.size(); ++i) {
      // Both are in double; 30 steps of a few roundings each, on values up to about 100.
      EXPECT_NEAR(result[i], reference[i].p, 1e-11 * std::max(1.0, std::fabs(reference[i].p))) << options;
    }
  }
}

TEST_P(AdamTest, AHalfParameterKeepsF32MomentsAndIsRoundedOnce) {
  // The square of 1e-4 is 0 in f16; with f32 moments the first step has the size lr whatever the gradient's.
  const Tensor p = full({8}, 1.0, {.dtype = DType::f16, .device = device()}).requires_grad_();
  FusedAdam optimizer({p}, {.lr = 0.25});
  p.set_grad(full({8}, 1e-4, {.dtype = DType::f16, .device = device()}));
  optimizer.step();
  for (const float value : p.to_vector<float>()) EXPECT_NEAR(value, 0.75f, 1e-3f);
  EXPECT_EQ(optimizer.state_dict().tensors.at("state.0.exp_avg_sq").dtype(), DType::f32);
}

TEST_P(AdamTest, AZeroGradientMovesAHalfParameterByExactlyZero) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    std::mt19937 random(3);
    const Tensor p = wild({100}, random, dtype, device()).requires_grad_();
    const Tensor before = clone(p.detach());
    FusedAdam optimizer({p}, {.lr = 1.0, .eps = 1e-8});
    p.set_grad(zeros({100}, {.dtype = dtype, .device = device()}));
    optimizer.step();
    EXPECT_TRUE(same_bits(p, before)) << name(dtype);
  }
}

TEST_P(AdamTest, ParametersWithoutAGradientKeepEverything) {
  for (const bool fused : {true, false}) {
    std::mt19937 random(4);
    const Tensor a = wild({5}, random, DType::f32, device()).requires_grad_();
    const Tensor b = wild({5}, random, DType::f32, device()).requires_grad_();
    std::unique_ptr<optim::AdamFamily> optimizer;
    if (fused) {
      optimizer = std::make_unique<FusedAdam>(std::vector<Tensor>{a, b});
    } else {
      optimizer = std::make_unique<Adam>(std::vector<Tensor>{a, b});
    }
    const Tensor before = clone(b.detach());
    a.set_grad(ones({5}, {.device = device()}));
    optimizer->step();
    EXPECT_TRUE(same_bits(b, before));
    EXPECT_EQ(optimizer->step_count(0), 1);
    EXPECT_EQ(optimizer->step_count(1), 0);
    EXPECT_FALSE(optimizer->state_dict().tensors.contains("state.1.exp_avg"));
    b.set_grad(ones({5}, {.device = device()}));
    optimizer->step();
    EXPECT_EQ(optimizer->step_count(0), 2);
    EXPECT_EQ(optimizer->step_count(1), 1);
  }
}

TEST_P(AdamTest, GroupsHaveOptionsOfTheirOwnAndInheritTheRest) {
  const auto make = [&](double value) { return full({4}, value, {.device = device()}).requires_grad_(); };
  const std::vector<Tensor> grouped{make(1), make(1)};
  const std::vector<Tensor> alone{make(1), make(1)};
  FusedAdam both(std::vector<AdamParamGroup>{{.params = {grouped[0]}, .lr = 0.5},
                                             {.params = {grouped[1]}, .weight_decay = 0.3, .amsgrad = true}},
                 {.lr = 0.01, .eps = 1e-3});
  FusedAdam first({alone[0]}, {.lr = 0.5, .eps = 1e-3});
  FusedAdam second({alone[1]}, {.lr = 0.01, .eps = 1e-3, .weight_decay = 0.3, .amsgrad = true});
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < 2; ++i) {
      grouped[i].set_grad(full({4}, step + 1.0, {.device = device()}));
      alone[i].set_grad(full({4}, step + 1.0, {.device = device()}));
    }
    both.step();
    first.step();
    second.step();
  }
  EXPECT_TRUE(same_bits(grouped[0], alone[0]));
  EXPECT_TRUE(same_bits(grouped[1], alone[1]));
}

TEST_P(AdamTest, ANewLearningRateTakesEffectAtTheNextStep) {
  std::mt19937 random(5);
  const std::vector<Shape> shapes{{30}};
  Twins twins(shapes, random, DType::f32, device());
  FusedAdam fused(twins.fused);
  Adam unfused(twins.unfused);
  for (const double lr : {0.1, 0.0, 0.7}) {
    fused.set_learning_rate(lr);
    unfused.set_learning_rate(lr);
    const Tensor before = clone(twins.fused[0].detach());
    twins.set_grad(0, wild({30}, random, DType::f32, device()));
    fused.step();
    unfused.step();
    twins.expect_same(cat("lr ", lr));
    EXPECT_EQ(static_cast<bool>(same_bits(before, twins.fused[0])), lr == 0.0);
  }
}

TEST_P(AdamTest, TrainsTheWeightsOfAMovedModel) {
  if (!device().is_cuda()) GTEST_SKIP() << "needs a second device";
  std::mt19937 random(6);
  for (const bool fused : {true, false}) {
    const Tensor moved = wild({40}, random, DType::f32, kCPU).requires_grad_();
    const Tensor stayed = clone(moved.detach()).requires_grad_();
    std::unique_ptr<optim::Optimizer> a;
    std::unique_ptr<optim::Optimizer> b;
    if (fused) {
      a = std::make_unique<FusedAdam>(std::vector<Tensor>{moved});
      b = std::make_unique<FusedAdam>(std::vector<Tensor>{stayed});
    } else {
      a = std::make_unique<Adam>(std::vector<Tensor>{moved});
      b = std::make_unique<Adam>(std::vector<Tensor>{stayed});
    }
    for (int step = 0; step < 3; ++step) {
      if (step == 1) moved.set_data(to(moved.detach(), device()));
      const Tensor g = wild({40}, random, DType::f32, kCPU);
      moved.set_grad(to(g, moved.device()));
      stayed.set_grad(g);
      a->step();
      b->step();
    }
    EXPECT_TRUE(same_bits(moved, stayed));
  }
}

TEST_P(AdamTest, AStateResumesWithEqualBitsFusedOrNot) {
  for (const bool amsgrad : {false, true}) {
    for (const bool save_fused : {false, true}) {
      for (const bool load_fused : {false, true}) {
        std::mt19937 random(7);
        const std::vector<Shape> shapes{{3}, {17}, {0}, {100}};
        Twins twins(shapes, random, DType::f32, device());
        const AdamOptions o{.lr = 0.05, .betas = {0.7, 0.9}, .weight_decay = 0.01, .amsgrad = amsgrad};
        const auto make = [&](bool fused, const std::vector<Tensor>& p,
                              const AdamOptions& options) -> std::unique_ptr<optim::Optimizer> {
          if (fused) return std::make_unique<FusedAdam>(p, options);
          return std::make_unique<Adam>(p, options);
        };
        const auto straight = make(save_fused, twins.fused, o);
        const auto first_half = make(save_fused, twins.unfused, o);
        const auto run = [&](int steps, optim::Optimizer& a, optim::Optimizer& b) {
          for (int step = 0; step < steps; ++step) {
            for (std::size_t i = 0; i < shapes.size(); ++i) {
              twins.set_grad(i, i == 1 && step == 0 ? Tensor() : wild(shapes[i], random, DType::f32, device()));
            }
            a.step();
            b.step();
          }
        };
        run(11, *straight, *first_half);
        // Through the CPU and a file's precision: f32 moments, f32 steps.
        StateDict state = first_half->state_dict();
        for (auto& [key, value] : state.tensors) value = to(value.detach(), kCPU);
        const auto second_half = make(load_fused, twins.unfused, AdamOptions{});
        second_half->load_state_dict(state);
        run(11, *straight, *second_half);
        twins.expect_same(cat("amsgrad ", amsgrad, ", saved ", save_fused, ", loaded ", load_fused));
        expect_same_state(straight->state_dict(), second_half->state_dict(), "after resuming");
      }
    }
  }
}

TEST(Adam, AMismatchedStateIsRefusedAndChangesNothing) {
  std::mt19937 random(8);
  const Tensor a = wild({3}, random, DType::f32, kCPU).requires_grad_();
  const Tensor b = wild({4}, random, DType::f32, kCPU).requires_grad_();
  for (const bool fused : {true, false}) {
    std::unique_ptr<optim::Optimizer> optimizer;
    if (fused) {
      optimizer = std::make_unique<FusedAdam>(std::vector<Tensor>{a, b});
    } else {
      optimizer = std::make_unique<Adam>(std::vector<Tensor>{a, b});
    }
    a.set_grad(ones({3}));
    b.set_grad(ones({4}));
    optimizer->step();
    const StateDict good = optimizer->state_dict();
    StateDict kept;
    kept.numbers = good.numbers;
    for (const auto& [key, value] : good.tensors) kept.tensors[key] = clone(value);
    const auto refused = [&](const std::function<void(StateDict&)>& spoil) {
      StateDict bad = kept;
      spoil(bad);
      EXPECT_THROW(optimizer->load_state_dict(bad), Error);
      expect_same_state(optimizer->state_dict(), kept, "after a refusal");
    };
    refused([](StateDict& s) { s.tensors.erase("state.0.exp_avg"); });
    refused([](StateDict& s) { s.tensors["state.2.exp_avg"] = zeros({3}); });
    refused([](StateDict& s) { s.tensors["state.1.exp_avg"] = zeros({5}); });
    refused([](StateDict& s) { s.tensors["unknown"] = zeros({5}); });
    refused([](StateDict& s) { s.numbers["param_groups.0.params"] = 3; });
    refused([](StateDict& s) { s.numbers["param_groups.1.params"] = 3; });
    refused([](StateDict& s) { s.numbers.erase("param_groups.0.beta1"); });
    refused([](StateDict& s) { s.numbers["param_groups.0.beta1"] = 1.0; });
    refused([](StateDict& s) { s.numbers["param_groups.0.lr"] = -1.0; });
    refused([](StateDict& s) { s.numbers["param_groups.0.decoupled_weight_decay"] = 1; });
    refused([](StateDict& s) { s.numbers["state.0.step"] = -1; });
    refused([](StateDict& s) { s.numbers["state.0.step"] = 0.5; });
    refused([](StateDict& s) { s.numbers["state.0.step"] = NAN; });
    refused([](StateDict& s) { s = StateDict{}; });
  }
}

template <class Optimizer, class Options>
void expect_refused_options() {
  const Tensor p = zeros({2}, {.requires_grad = true});
  for (const Options& o : {Options{.lr = -1e-3}, Options{.lr = NAN}, Options{.betas = {1.0, 0.9}},
                           Options{.betas = {0.9, 1.0}}, Options{.betas = {-0.1, 0.9}}, Options{.betas = {0.9, NAN}},
                           Options{.eps = -1e-8}, Options{.eps = NAN}, Options{.weight_decay = -0.1}}) {
    EXPECT_THROW(Optimizer({p}, o), ValueError);
  }
  EXPECT_NO_THROW(Optimizer({p}, Options{.lr = 0, .betas = {0.0, 0.0}, .eps = 0, .weight_decay = 0}));
  EXPECT_THROW(Optimizer(std::vector<Tensor>{}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<AdamParamGroup>{}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<AdamParamGroup>{{.params = {}}}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<Tensor>{p, p}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<AdamParamGroup>{{.params = {p}}, {.params = {p}}}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<AdamParamGroup>{{.params = {p}, .lr = -1.0}}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<Tensor>{Tensor()}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<Tensor>{zeros({2})}), ValueError);
  EXPECT_THROW(Optimizer(std::vector<Tensor>{p * 2.0}), ValueError);
}

TEST(Adam, RefusesOptionsOutOfRangeAndBadParameterLists) {
  expect_refused_options<Adam, AdamOptions>();
  expect_refused_options<AdamW, AdamWOptions>();
  expect_refused_options<FusedAdam, AdamOptions>();
  expect_refused_options<FusedAdamW, AdamWOptions>();
}

TEST(Adam, ARefusalNamesTheOptionAndItsValue) {
  const Tensor p = zeros({2}, {.requires_grad = true});
  try {
    FusedAdam optimizer({p}, {.betas = {0.9, 1.5}});
    FAIL() << "no error";
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("betas[1] = 1.5"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("FusedAdam"), std::string::npos) << error.what();
  }
}

TEST(Adam, RefusesGradientDtypesThatDoNotGoWithTheParameter) {
  for (const bool fused : {true, false}) {
    const Tensor p = zeros({2}, {.dtype = DType::f16, .requires_grad = true});
    p.set_grad(zeros({2}, {.dtype = DType::bf16}));
    if (fused) {
      FusedAdam optimizer({p});
      EXPECT_THROW(optimizer.step(), DTypeError);
    } else {
      Adam optimizer({p});
      EXPECT_THROW(optimizer.step(), DTypeError);
    }
  }
}

TEST(Adam, OnlyTheFusedOnesOwnUnscalingAndClipping) {
  const Tensor p = zeros({2}, {.requires_grad = true});
  EXPECT_FALSE(Adam({p}).owns_unscaling());
  EXPECT_FALSE(AdamW({p}).owns_unscaling());
  EXPECT_TRUE(FusedAdam({p}).owns_unscaling() && FusedAdam({p}).owns_clipping());
  EXPECT_TRUE(FusedAdamW({p}).owns_unscaling() && FusedAdamW({p}).owns_clipping());
  Adam unfused({p});
  EXPECT_THROW(unfused.step(optim::GradTransform{}), StateError);
}

}  // namespace
}  // namespace fusegrad
