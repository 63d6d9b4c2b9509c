// The scaler's stage machine, its scale, and law 2: unscaled exactly once.

#include <cmath>

#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/optim/sgd.h>
#include <fusegrad/runtime/stream.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

using amp::GradScaler;
using amp::GradScalerOptions;
using optim::Adam;
using optim::FusedAdam;
using optim::SGD;

class GradScalerTest : public DeviceTest {
 protected:
  // A parameter with this gradient.
  static Tensor parameter(double grad, DType grad_dtype = DType::f32) {
    Tensor p = ones({4}, {.device = device(), .requires_grad = true});
    p.set_grad(full({4}, grad, {.dtype = grad_dtype, .device = device()}));
    return p;
  }
  static Tensor loss() { return ones({}, {.device = device()}); }
  static std::unique_ptr<optim::Optimizer> make(bool fused, const std::vector<Tensor>& params) {
    if (fused) return std::make_unique<FusedAdam>(params);
    return std::make_unique<Adam>(params);
  }
};
FUSEGRAD_ON_EVERY_DEVICE(GradScalerTest);

TEST_P(GradScalerTest, ScalesALossAndWidensHalfPrecision) {
  GradScaler scaler;
  EXPECT_EQ(scaler.scale(full({}, 3.0, {.device = device()})).item<double>(), 196608.0);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor scaled = scaler.scale(full({}, 3.0, {.dtype = dtype, .device = device()}));
    EXPECT_EQ(scaled.dtype(), DType::f32);
    EXPECT_EQ(scaled.item<double>(), 196608.0);  // in f16 it would be inf
  }
  const Tensor leaf = full({}, 3.0, {.device = device(), .requires_grad = true});
  scaler.scale(leaf).backward();
  EXPECT_EQ(leaf.grad().item<double>(), 65536.0);
}

TEST_P(GradScalerTest, UnscaleThenStepEqualsStepAloneForEveryOptimizer) {
  for (const DType grad : {DType::f32, DType::bf16}) {
    for (const double scale : {65536.0, 1000.0, 3.0}) {
      std::vector<Tensor> results;
      for (const bool fused : {false, true}) {
        for (const bool by_hand : {false, true}) {
          std::mt19937 random(1);
          const Tensor p = wild({1000}, random, DType::f32, device()).requires_grad_();
          const auto optimizer = make(fused, {p});
          GradScaler scaler({.init_scale = scale});
          for (int step = 0; step < 5; ++step) {
            p.set_grad(wild({1000}, random, grad, device()));
            (void)scaler.scale(loss());
            if (by_hand) scaler.unscale_(*optimizer);
            scaler.step(*optimizer);
            scaler.update();
          }
          results.push_back(p);
        }
      }
      for (const Tensor& result : results) EXPECT_TRUE(same_bits(result, results.front())) << scale;
    }
  }
}

TEST_P(GradScalerTest, UnscaleShowsTheTrueGradients) {
  for (const bool fused : {false, true}) {
    const Tensor p = parameter(6.0);
    const auto optimizer = make(fused, {p});
    GradScaler scaler({.init_scale = 4});
    (void)scaler.scale(loss());
    scaler.unscale_(*optimizer);
    EXPECT_EQ(p.grad().to_vector<float>(), std::vector<float>(4, 1.5f));
  }
}

TEST_P(GradScalerTest, EveryOtherTransitionIsAnError) {
  for (const bool fused : {false, true}) {
    const Tensor p = parameter(1.0);
    const auto optimizer = make(fused, {p});
    GradScaler scaler;
    EXPECT_THROW(scaler.unscale_(*optimizer), StateError) << "before any scale";
    EXPECT_THROW(scaler.step(*optimizer), StateError) << "before any scale";
    EXPECT_THROW(scaler.update(), StateError) << "before any scale";
    (void)scaler.scale(loss());
    EXPECT_THROW(scaler.update(), StateError) << "nothing checked";
    scaler.unscale_(*optimizer);
    EXPECT_THROW(scaler.unscale_(*optimizer), StateError) << "twice";
    scaler.step(*optimizer);
    EXPECT_THROW(scaler.unscale_(*optimizer), StateError) << "after step";
    EXPECT_THROW(scaler.step(*optimizer), StateError) << "twice";
    scaler.update();
    EXPECT_THROW(scaler.update(), StateError) << "nothing checked since";
    scaler.step(*optimizer);
    scaler.update();
    EXPECT_EQ(scaler.state_dict().numbers.at("_growth_tracker"), 2);
  }
}

TEST_P(GradScalerTest, ASecondUnscaleLeavesGradientsAlone) {
  const Tensor p = parameter(8.0);
  Adam optimizer({p});
  GradScaler scaler({.init_scale = 2});
  (void)scaler.scale(loss());
  scaler.unscale_(optimizer);
  EXPECT_THROW(scaler.unscale_(optimizer), StateError);
  EXPECT_EQ(p.grad().to_vector<float>(), std::vector<float>(4, 4.0f));
}

TEST_P(GradScalerTest, RefusesToUnscaleF16GradientsAndTouchesNothing) {
  for (const bool fused : {false, true}) {
    const Tensor first = parameter(64.0);
    const Tensor half = parameter(64.0, DType::f16);
    const auto optimizer = make(fused, {first, half});
    GradScaler scaler({.init_scale = 2});
    (void)scaler.scale(loss());
    try {
      scaler.unscale_(*optimizer);
      FAIL() << "no error";
    } catch (const DTypeError& error) {
      EXPECT_NE(std::string(error.what()).find("f16 gradients"), std::string::npos);
    }
    EXPECT_EQ(first.grad().to_vector<float>(), std::vector<float>(4, 64.0f));
    half.set_grad({});
    EXPECT_NO_THROW(scaler.unscale_(*optimizer)) << "the stage is still ready";
  }
}

TEST_P(GradScalerTest, AnOwnerTakesF16Gradients) {
  const Tensor p = parameter(64.0, DType::f16);
  const Tensor q = parameter(64.0);
  FusedAdam a({p});
  FusedAdam b({q});
  GradScaler scaler({.init_scale = 128});
  (void)scaler.scale(loss());
  scaler.step(a);
  scaler.step(b);
  EXPECT_TRUE(same_bits(p, q));
}

TEST_P(GradScalerTest, NothingToCheckIsAnErrorThatSaysSo) {
  for (const bool fused : {false, true}) {
    const Tensor p = ones({4}, {.device = device(), .requires_grad = true});
    const auto optimizer = make(fused, {p});
    GradScaler scaler;
    (void)scaler.scale(loss());
    try {
      scaler.step(*optimizer);
      FAIL() << "no error";
    } catch (const StateError& error) {
      EXPECT_NE(std::string(error.what()).find("without a single gradient"), std::string::npos) << error.what();
    }
    scaler.unscale_(*optimizer);
    EXPECT_THROW(scaler.step(*optimizer), StateError);
    EXPECT_THROW(scaler.update(), StateError);
  }
}

TEST_P(GradScalerTest, TheScaleGrowsAfterTheIntervalAndBacksOffOnOverflow) {
  for (const bool fused : {false, true}) {
    const Tensor p = parameter(1.0);
    const auto optimizer = make(fused, {p});
    GradScaler scaler({.init_scale = 64, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
    const auto step = [&](double grad) {
      p.set_grad(full({4}, grad, {.device = device()}));
      (void)scaler.scale(loss());
      scaler.step(*optimizer);
      scaler.update();
      return scaler.get_scale();
    };
    EXPECT_EQ(step(1), 64);
    EXPECT_EQ(step(1), 64);
    EXPECT_EQ(step(1), 256);
    EXPECT_EQ(step(1), 256);
    EXPECT_EQ(step(INFINITY), 64);
    EXPECT_EQ(step(1), 64) << "the count of good steps began anew";
    EXPECT_EQ(step(1), 64);
    EXPECT_EQ(step(1), 256);
    EXPECT_EQ(step(NAN), 64);
    EXPECT_EQ(step(NAN), 16);
    EXPECT_EQ(scaler.skipped_steps(), 3);
    EXPECT_EQ(scaler.skipped_in_a_row(), 2);
    EXPECT_EQ(step(1), 16);
    EXPECT_EQ(scaler.skipped_in_a_row(), 0);
  }
}

TEST_P(GradScalerTest, TwoHundredOverflowsNeverRuinTheScale) {
  const Tensor p = parameter(1.0);
  FusedAdam optimizer({p});
  GradScaler scaler;
  const Tensor before = clone(p.detach());
  for (int step = 0; step < 400; ++step) {
    p.set_grad(full({4}, NAN, {.device = device()}));
    (void)scaler.scale(loss());
    scaler.step(optimizer);
    scaler.update();
  }
  EXPECT_TRUE(same_bits(p, before));
  EXPECT_GE(scaler.get_scale(), 1.1754943508222875e-38);  // the smallest normal f32
  EXPECT_TRUE(std::isfinite(1.0f / static_cast<float>(scaler.get_scale())));
  p.set_grad(full({4}, 1.0, {.device = device()}));
  (void)scaler.scale(loss());
  scaler.step(optimizer);
  EXPECT_EQ(scaler.skipped_steps(), 400);
}

TEST_P(GradScalerTest, TheScaleNeverGrowsToInfinity) {
  const Tensor p = parameter(1.0);
  FusedAdam optimizer({p});
  GradScaler scaler({.init_scale = 1e38, .growth_factor = 10, .growth_interval = 1});
  for (int step = 0; step < 3; ++step) {
    p.set_grad(full({4}, 1.0, {.device = device()}));
    (void)scaler.scale(loss());
    scaler.step(optimizer);
    scaler.update();
  }
  EXPECT_FLOAT_EQ(static_cast<float>(scaler.get_scale()), 1e38f);
}

TEST_P(GradScalerTest, SeveralOptimizersSkipEachForItselfAndMoveTheScaleOnce) {
  const Tensor good = parameter(1.0);
  const Tensor bad = parameter(INFINITY);
  const Tensor good_before = clone(good.detach());
  const Tensor bad_before = clone(bad.detach());
  for (const bool fused : {false, true}) {
    const auto a = make(fused, {good});
    const auto b = make(!fused, {bad});
    GradScaler scaler({.init_scale = 64});
    (void)scaler.scale(loss());
    scaler.step(*a);
    scaler.step(*b);
    EXPECT_FALSE(scaler.found_inf(*a));
    EXPECT_TRUE(scaler.found_inf(*b));
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 32);
    EXPECT_FALSE(same_bits(good, good_before));
    EXPECT_TRUE(same_bits(bad, bad_before));
  }
}

TEST_P(GradScalerTest, UpdateWithANewScaleKeepsTheCountOfGoodSteps) {
  const Tensor p = parameter(1.0);
  FusedAdam optimizer({p});
  GradScaler scaler;
  (void)scaler.scale(loss());
  scaler.step(optimizer);
  scaler.update();
  scaler.update(128.0);
  EXPECT_EQ(scaler.get_scale(), 128);
  EXPECT_EQ(scaler.state_dict().numbers.at("_growth_tracker"), 1);
  p.set_grad(full({4}, 256.0, {.device = device()}));
  scaler.unscale_(optimizer);
  EXPECT_EQ(p.grad().to_vector<float>(), std::vector<float>(4, 2.0f));
  for (const double bad : {0.0, -1.0, static_cast<double>(INFINITY), static_cast<double>(NAN), 1e-40, 1e39}) {
    EXPECT_THROW(scaler.update(bad), ValueError) << bad;
  }
}

TEST_P(GradScalerTest, DisabledEverythingPassesThrough) {
  for (const bool fused : {false, true}) {
    const Tensor p = parameter(1.0);
    const Tensor q = parameter(1.0);
    const auto a = make(fused, {p});
    const auto b = make(fused, {q});
    GradScaler scaler({.enabled = false});
    const Tensor x = loss();
    EXPECT_TRUE(scaler.scale(x).is_same(x));
    scaler.unscale_(*a);
    scaler.unscale_(*a);
    scaler.step(*a);
    scaler.update();
    b->step();
    EXPECT_TRUE(same_bits(p, q));
    EXPECT_EQ(scaler.get_scale(), 1.0);
    EXPECT_TRUE(scaler.state_dict().numbers.empty());
    EXPECT_NO_THROW(scaler.load_state_dict({}));
  }
}

TEST_P(GradScalerTest, AStateMovesToANewScalerBeforeAndAfterTheFirstScale) {
  const Tensor p = parameter(1.0);
  FusedAdam optimizer({p});
  GradScaler source({.init_scale = 64, .growth_factor = 3, .backoff_factor = 0.1, .growth_interval = 5});
  (void)source.scale(loss());
  source.step(optimizer);
  source.update();
  const StateDict state = source.state_dict();
  EXPECT_EQ(state.numbers, (std::map<std::string, double>{{"scale", 64},
                                                          {"growth_factor", 3},
                                                          {"backoff_factor", 0.1},
                                                          {"growth_interval", 5},
                                                          {"_growth_tracker", 1}}));
  for (const bool scaled_before : {false, true}) {
    GradScaler other;
    if (scaled_before) (void)other.scale(loss());
    other.load_state_dict(state);
    EXPECT_EQ(other.state_dict().numbers, state.numbers);
    EXPECT_EQ(other.scale(loss()).item<double>(), 64);
    EXPECT_EQ(other.state_dict().numbers, state.numbers);
    EXPECT_THROW(other.load_state_dict({}), StateError);
    for (const auto& [key, value] : state.numbers) {
      StateDict bad = state;
      bad.numbers.erase(key);
      EXPECT_THROW(other.load_state_dict(bad), StateError) << key;
      bad.numbers[key] = -1;
      EXPECT_THROW(other.load_state_dict(bad), ValueError) << key;
      bad.numbers[key] = NAN;
      EXPECT_THROW(other.load_state_dict(bad), ValueError) << key;
    }
    EXPECT_EQ(other.state_dict().numbers, state.numbers) << "a refused state changes nothing";
  }
}

TEST_P(GradScalerTest, WhatIsWrittenIntoGradientsAfterUnscaleIsNotLookedAtAgain) {
  // The choice for gradients that user code makes non-finite between unscale_ and step: alike for both kinds.
  for (const bool fused : {false, true}) {
    const Tensor p = parameter(1.0);
    const auto optimizer = make(fused, {p});
    GradScaler scaler;
    (void)scaler.scale(loss());
    scaler.unscale_(*optimizer);
    fill_(p.grad(), NAN);
    scaler.step(*optimizer);
    EXPECT_FALSE(scaler.found_inf(*optimizer));
    EXPECT_TRUE(std::isnan(p.to_vector<float>()[0]));
  }
}

TEST_P(GradScalerTest, AnUnscaledGradientThatOverflowsIsFoundToo) {
  // A scale below 1 divides upwards: a finite scaled gradient may stand for one that f32 cannot hold.
  for (const bool fused : {false, true}) {
    const Tensor p = parameter(1e30);
    const auto optimizer = make(fused, {p});
    const Tensor before = clone(p.detach());
    GradScaler scaler({.init_scale = 1e-10});
    (void)scaler.scale(loss());
    scaler.step(*optimizer);
    EXPECT_TRUE(scaler.found_inf(*optimizer));
    EXPECT_TRUE(same_bits(p, before));
  }
}

TEST_P(GradScalerTest, ClippingInsideTheStepHasTheBitsOfClippingByHand) {
  std::vector<Tensor> results;
  for (const bool fused : {false, true}) {
    std::mt19937 random(9);
    const Tensor p = wild({5000}, random, DType::f32, device()).requires_grad_();
    const auto optimizer = make(fused, {p});
    GradScaler scaler;
    for (int step = 0; step < 4; ++step) {
      p.set_grad(mul(wild({5000}, random, DType::f32, device()), full({}, 65536.0, {.device = device()})));
      (void)scaler.scale(loss());
      scaler.step(*optimizer, {.max_norm = 1.0});
      scaler.update();
    }
    results.push_back(p);
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

// Owns unscaling, cannot clip.
class Stubborn : public optim::Optimizer {
 public:
  explicit Stubborn(const std::vector<Tensor>& params) { add_group(params, 0.1); }
  [[nodiscard]] std::string_view name() const override { return "Stubborn"; }
  [[nodiscard]] bool owns_unscaling() const override { return true; }
  void step() override { ++steps; }
  void step(const optim::GradTransform&) override { ++steps; }
  int steps = 0;
};

TEST_P(GradScalerTest, RefusesToClipForAnOwnerThatCannot) {
  const Tensor p = parameter(1.0);
  Stubborn optimizer({p});
  GradScaler scaler;
  (void)scaler.scale(loss());
  for (const optim::GradientClip& clip :
       {optim::GradientClip{.max_norm = 1.0}, optim::GradientClip{.max_value = 1.0}}) {
    try {
      scaler.step(optimizer, clip);
      FAIL() << "no error";
    } catch (const StateError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("Stubborn"), std::string::npos) << text;
      EXPECT_NE(text.find("inside its own pass"), std::string::npos) << text;
      EXPECT_NE(text.find("Turn clipping off"), std::string::npos) << text;
      EXPECT_NE(text.find("FusedAdam"), std::string::npos) << text;
    }
  }
  EXPECT_EQ(optimizer.steps, 0);
  scaler.step(optimizer);
  EXPECT_EQ(optimizer.steps, 1);
}

TEST_P(GradScalerTest, AFusedStepReadsNothingBack) {
  const Tensor p = parameter(1.0);
  FusedAdam optimizer({p});
  GradScaler scaler;
  const Tensor x = loss();
  const auto step = [&] {
    (void)scaler.scale(x);
    scaler.step(optimizer, {.max_norm = 1.0, .max_value = 0.5});
    scaler.update();
  };
  step();
  const std::int64_t before = host_sync_count();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(host_sync_count(), before);
}

TEST(GradScaler, RefusesNonsenseSettingsByName) {
  const double inf = INFINITY;
  const double nan = NAN;
  const auto refused = [](const GradScalerOptions& options, const std::string& name) {
    try {
      GradScaler scaler(options);
      ADD_FAILURE() << "no error for " << name;
    } catch (const ValueError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  for (const double bad : {0.0, -1.0, inf, nan}) refused({.init_scale = bad}, "scale");
  for (const double bad : {1.0, 0.5, -2.0, inf, nan}) refused({.growth_factor = bad}, "growth_factor");
  for (const double bad : {1.0, 2.0, 0.0, -0.5, nan}) refused({.backoff_factor = bad}, "backoff_factor");
  refused({.growth_interval = 0}, "growth_interval");
  refused({.growth_interval = -1}, "growth_interval");
  EXPECT_NO_THROW(GradScaler({.init_scale = 0, .enabled = false}));
}

}  // namespace
}  // namespace fusegrad
