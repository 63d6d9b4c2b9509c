// The way back of graphs that autocast recorded, and what autocast leaves behind.

#include <cmath>
#include <functional>
#include <stdexcept>
#include <thread>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using amp::Autocast;

class AutocastBackwardTest : public DeviceTest {
 protected:
  static amp::AutocastOptions region(DType dtype = DType::f16) { return {.device = device().type, .dtype = dtype}; }
  /// Positive values around 1, so that log and sqrt have small slopes.
  static Tensor leaf(const Shape& shape, std::uint64_t seed) {
    CpuGenerator generator(seed);
    return to(rand(shape, generator) * 0.5 + 0.25, device()).detach().requires_grad_();
  }
};
FUSEGRAD_ON_EVERY_DEVICE(AutocastBackwardTest);

TEST_P(AutocastBackwardTest, GradientsPassEveryOperationBehindALowPrecisionProduct) {
  using Function = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<const char*, Function>> heads{
      {"sum", [](const Tensor& y) { return sum(y); }},
      {"mean over a dimension", [](const Tensor& y) { return sum(mean(y, 0)); }},
      {"exp", [](const Tensor& y) { return sum(fusegrad::exp(y)); }},
      {"log", [](const Tensor& y) { return sum(fusegrad::log(y)); }},
      {"square", [](const Tensor& y) { return sum(square(y)); }},
      {"sqrt", [](const Tensor& y) { return sum(fusegrad::sqrt(y)); }},
      {"gelu", [](const Tensor& y) { return sum(gelu(y)); }},
      {"y * y", [](const Tensor& y) { return sum(y * y); }},
      {"y with f32", [](const Tensor& y) { return sum(y * full({3}, 1.25, {.device = device()}) + 1.0); }},
      {"view and rows", [](const Tensor& y) { return sum(rows(view(y, {-1}), 0, 6)); }},
      {"mse_loss",
       [](const Tensor& y) {
         return mse_loss(y, zeros({4, 3}, {.device = device()}));
       }},
  };
  for (const DType low : {DType::f16, DType::bf16}) {
    const double precision = low == DType::f16 ? std::ldexp(1.0, -11) : std::ldexp(1.0, -8);
    for (const auto& [name, head] : heads) {
      const auto gradients = [&](bool enabled) {
        const Tensor x = leaf({4, 5}, 1);
        const Tensor w = leaf({3, 5}, 2);
        const Tensor m = leaf({3, 3}, 3);
        Tensor loss;
        {
          const Autocast guard({.device = device().type, .dtype = low, .enabled = enabled});
          loss = head(matmul(linear(x, w), m));
        }
        EXPECT_EQ(loss.dtype(), DType::f32) << name;
        loss.backward();
        std::vector<double> all;
        for (const Tensor& t : {x, w, m}) {
          EXPECT_EQ(t.grad().dtype(), DType::f32) << name;
          for (const double v : t.grad().to_vector<double>()) all.push_back(v);
        }
        return all;
      };
      const std::vector<double> got = gradients(true);
      const std::vector<double> want = gradients(false);
      for (std::size_t i = 0; i < want.size(); ++i) {
        // All terms are positive, so relative errors do not grow; about a dozen roundings to low precision meet.
        EXPECT_NEAR(got[i], want[i], 12 * precision * std::fabs(want[i]) + 1e-6) << name << ", element " << i;
      }
    }
  }
}

TEST_P(AutocastBackwardTest, RegionsOfBothPrecisionsMeetInOneGraph) {
  for (const bool product : {false, true}) {
    const auto apply = [&](const Tensor& x, const Tensor& w) {
      return product ? matmul(x, w, {.transpose_b = true}) : linear(x, w);
    };
    const Tensor x = leaf({4, 5}, 1);
    const Tensor w1 = leaf({3, 5}, 2);
    const Tensor w2 = leaf({2, 3}, 3);
    const auto run = [&](bool enabled) {
      for (const Tensor& t : {x, w1, w2}) t.set_grad({});
      Tensor loss;
      {
        const Autocast outer({.device = device().type, .dtype = DType::f16, .enabled = enabled});
        const Tensor hidden = relu(apply(x, w1));
        const Autocast inner({.device = device().type, .dtype = DType::bf16, .enabled = enabled});
        loss = sum(relu(apply(hidden, w2)));
      }
      loss.backward();
      return to(w1.grad(), DType::f64);
    };
    const std::vector<double> got = run(true).to_vector<double>();
    const std::vector<double> want = run(false).to_vector<double>();
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.03 * want[i]);  // eight bf16 roundings
  }
}

TEST_P(AutocastBackwardTest, AWeightKeepsOneCopyHoweverOftenItIsUsed) {
  constexpr std::int64_t kCopy = 512 * 512 * 2;
  const auto held = [&] { return memory_stats(device()).bytes_now; };
  const Tensor x = leaf({1, 512}, 2).requires_grad_(false);
  const std::int64_t without_weight = held();
  {
    const Tensor w = leaf({512, 512}, 1);
    const std::int64_t before = held();
    const NoGrad no_grad;
    {
      const Autocast guard(region());
      (void)linear(x, w.detach());
      EXPECT_EQ(held(), before) << "only a weight keeps a copy";
      (void)linear(x, w);
      EXPECT_EQ(held(), before + kCopy);
      (void)matmul(x, w);
      mul_(w, 2);
      (void)linear(x, w);
      EXPECT_EQ(held(), before + kCopy);
    }
    const Autocast guard(region(DType::bf16));
    (void)linear(x, w);
    EXPECT_EQ(held(), before + kCopy) << "one of each precision";
  }
  EXPECT_EQ(held(), without_weight) << "the copy outlived its weight";
}

TEST_P(AutocastBackwardTest, ACopyRenewedBeforeBackwardIsRefusedNotUsed) {
  const Tensor w = leaf({3, 5}, 1);
  const Tensor x = leaf({4, 5}, 2);
  const Autocast guard(region());
  const Tensor early = sum(linear(x, w));
  {
    const NoGrad no_grad;
    mul_(w, 2);
    (void)linear(x, w);  // an evaluation with the new weights
  }
  EXPECT_THROW(early.backward(), StateError);
  sum(linear(x, w)).backward();
  const std::vector<double> values = w.to_vector<double>();
  for (std::size_t i = 0; i < 5; ++i) {
    const double want = values[i] + values[5 + i] + values[10 + i];
    EXPECT_NEAR(x.grad().to_vector<double>()[i], want, want / 1024) << "each weight is rounded to f16";
  }
}

TEST_P(AutocastBackwardTest, ARegionEndsWithItsScopeAlsoByAnException) {
  const auto active = [&] { return cast_policy(device().type).active; };
  try {
    const Autocast guard(region());
    EXPECT_TRUE(active());
    throw std::runtime_error("leave");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(active());
  EXPECT_THROW(Autocast({.device = device().type, .dtype = DType::i64}), DTypeError);
  EXPECT_FALSE(active());
}

TEST_P(AutocastBackwardTest, ARegionConcernsItsThreadOnly) {
  const Autocast guard(region());
  bool elsewhere = true;
  std::thread([&] { elsewhere = cast_policy(device().type).active; }).join();
  EXPECT_FALSE(elsewhere);
  EXPECT_TRUE(cast_policy(device().type).active);
}

}  // namespace
}  // namespace fusegrad
