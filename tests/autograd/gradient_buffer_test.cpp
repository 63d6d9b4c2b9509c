// The memory of gradients: what zero_grad keeps, who writes there next, and that it changes no bit.

#include <cmath>
#include <functional>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/engine.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using Floats = std::vector<float>;
using Loss = std::function<Tensor(const Tensor& w, const Tensor& b)>;

class GradientBufferTest : public DeviceTest {
 protected:
  static Tensor normal(const Shape& shape, std::uint64_t seed) {
    CpuGenerator generator(seed);
    return to(randn(shape, generator), device()).detach();
  }
  static Tensor leaf(const Shape& shape, std::uint64_t seed) { return normal(shape, seed).requires_grad_(); }
  static Tensor vector(std::initializer_list<double> values) {
    return tensor(values, {.device = device(), .requires_grad = true});
  }
};
FUSEGRAD_ON_EVERY_DEVICE(GradientBufferTest);

TEST_P(GradientBufferTest, TheNextGradientIsWrittenOverTheLastOnesMemory) {
  const Tensor x = normal({6, 4}, 1);
  const Tensor w = leaf({3, 4}, 2);
  const Tensor b = leaf({3}, 3);
  const Tensor m = leaf({3, 2}, 4);
  const Tensor c = leaf({6, 1}, 5);  // broadcast
  const auto backward = [&] { sum(square(matmul(linear(x, w, b), m) * c)).backward(); };
  backward();
  std::vector<const void*> first;
  for (const Tensor& p : {w, b, m, c}) first.push_back(p.grad().raw());
  for (int i = 0; i < 3; ++i) {
    for (const Tensor& p : {w, b, m, c}) p.zero_grad();
    EXPECT_FALSE(w.grad().defined());
    const Tensor other = empty({3, 4}, {.device = device()});  // would get the memory if it had been freed
    backward();
    EXPECT_EQ((std::vector<const void*>{w.grad().raw(), b.grad().raw(), m.grad().raw(), c.grad().raw()}), first);
  }
}

TEST_P(GradientBufferTest, ZeroGradOfAModuleKeepsTheMemoryToo) {
  nn::Linear layer(4, 3, {.device = device()});
  sum(layer(normal({2, 4}, 1))).backward();
  const void* first = layer.weight().grad().raw();
  layer.zero_grad();
  EXPECT_FALSE(layer.weight().grad().defined());
  sum(layer(normal({2, 4}, 2))).backward();
  EXPECT_EQ(layer.weight().grad().raw(), first);
}

TEST_P(GradientBufferTest, GradientsHaveTheBitsOfFreshOnes) {
  const Tensor x = normal({6, 4}, 1);
  const std::vector<std::pair<const char*, Loss>> cases{
      {"linear", [&](const Tensor& w, const Tensor& b) { return sum(square(linear(x, w, b))); }},
      {"linear twice", [&](const Tensor& w, const Tensor& b) { return sum(linear(gelu(linear(x, w, b)), w, b)); }},
      {"matmul", [&](const Tensor& w, const Tensor& b) { return sum(square(matmul(x, w) + b)); }},
      {"a matrix by itself", [](const Tensor& w, const Tensor& b) { return sum(square(matmul(w, w)) * b); }},
      {"by its transpose",
       [](const Tensor& w, const Tensor&) {
         return mean(square(matmul(w, w, {false, true})));
       }},
      {"its transpose by it",
       [](const Tensor& w, const Tensor&) {
         return mean(square(matmul(w, w, {true, false})));
       }},
      {"linear of itself", [](const Tensor& w, const Tensor& b) { return sum(square(linear(w, w, b))); }},
      {"broadcast",
       [&](const Tensor& w, const Tensor& b) {
         return sum(view(w, {4, 1, 4}) * view(b, {4, 1}) - b);
       }},
      {"elementwise", [](const Tensor& w, const Tensor& b) { return sum(w * w / (b * b + 1.0) - w); }},
      {"the leaf twice in a sum", [](const Tensor& w, const Tensor&) { return sum((w + w) * w); }},
      {"a view",
       [&](const Tensor& w, const Tensor&) {
         return sum(square(view(w, {2, 8})));
       }},
  };
  for (const auto& [name, loss] : cases) {
    const Tensor w = leaf({4, 4}, 2);
    const Tensor b = leaf({4}, 3);
    const Tensor w_twin = clone(w.detach()).requires_grad_();
    const Tensor b_twin = clone(b.detach()).requires_grad_();
    for (int step = 0; step < 3; ++step) {
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        loss(w, b).backward();
        loss(w_twin, b_twin).backward();
        EXPECT_TRUE(same_bits(w.grad(), w_twin.grad())) << name << ", step " << step;
        EXPECT_TRUE(same_bits(b.grad(), b_twin.grad())) << name << ", step " << step;
      }
      const NoGrad guard;
      for (const Tensor& p : {w, b}) {
        if (p.grad().defined()) fill_(p.grad(), NAN);  // nothing of it may come back
        p.zero_grad();
      }
      for (const Tensor& p : {w_twin, b_twin}) p.set_grad({});
    }
  }
}

TEST_P(GradientBufferTest, AGradientThatSomebodyKeptIsLeftAlone) {
  const Tensor x = normal({6, 4}, 1);
  const Tensor w = leaf({3, 4}, 2);
  sum(linear(x, w)).backward();
  const Tensor kept = w.grad();
  const Tensor copy = clone(kept);
  w.zero_grad();
  sum(linear(x * 2.0, w)).backward();
  EXPECT_NE(w.grad().raw(), kept.raw());
  EXPECT_TRUE(same_bits(kept, copy));

  const Tensor seen = rows(w.grad(), 0, 1);  // a view of it
  const Tensor seen_copy = clone(seen);
  w.zero_grad();
  sum(linear(x, w)).backward();
  EXPECT_TRUE(same_bits(seen, seen_copy));

  const Tensor given = normal({3, 4}, 3);
  const Tensor given_copy = clone(given);
  w.set_grad(given);
  w.zero_grad();
  sum(linear(x, w)).backward();
  EXPECT_TRUE(same_bits(given, given_copy));
}

TEST_P(GradientBufferTest, AGradientThatAutogradFollowedDoesNotComeBack) {
  const Tensor x = normal({6, 4}, 1);
  const Tensor w = leaf({3, 4}, 2);
  sum(linear(x, w)).backward();
  w.grad().requires_grad_();
  w.zero_grad();
  sum(linear(x, w)).backward();
  EXPECT_FALSE(w.grad().requires_grad());
}

TEST_P(GradientBufferTest, OperationsWithoutUseForTheMemoryReplaceIt) {
  const Tensor w = vector({1, 2});
  sum(w * 3.0).backward();
  w.zero_grad();
  sum(square(w)).backward();
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{2, 4}));
  w.zero_grad();
  const void* kept = nullptr;
  {
    clone(w).backward(ones({2}, {.device = device()}));  // copied: the seed is not the engine's
    kept = w.grad().raw();
    w.zero_grad();
  }
  w.backward(ones({2}, {.device = device()}));
  EXPECT_EQ(w.grad().raw(), kept);
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{1, 1}));
}

TEST_P(GradientBufferTest, ARetainedGraphRunsAgainOverKeptMemory) {
  const Tensor w = leaf({3, 4}, 2);
  const Tensor loss = sum(square(linear(normal({6, 4}, 1), w)));
  loss.backward({}, {.retain_graph = true});
  const Tensor once = clone(w.grad());
  w.zero_grad();
  loss.backward({}, {.retain_graph = true});
  EXPECT_TRUE(same_bits(w.grad(), once));
  loss.backward();
  EXPECT_TRUE(same_bits(w.grad(), once + once));
}

TEST_P(GradientBufferTest, ABackwardThatThrowsCorruptsNothing) {
  const Tensor x = normal({6, 4}, 1);
  const Tensor w = leaf({3, 4}, 2);
  const Tensor b = leaf({3}, 3);
  const Tensor scale = normal({6, 4}, 4).requires_grad_();
  const auto loss = [&] { return sum(square(linear(square(scale) * x, w, b))); };
  loss().backward();
  const Tensor want = clone(w.grad());
  for (const Tensor& p : {w, b}) p.zero_grad();
  const Tensor broken = loss();
  {
    const NoGrad guard;
    mul_(scale, 1.0);  // its square's backward is refused, after that of linear
  }
  EXPECT_THROW(broken.backward(), StateError);
  EXPECT_TRUE(same_bits(w.grad(), want));
  for (const Tensor& p : {w, b}) p.zero_grad();

  const Tensor hidden = linear(square(scale) * x, w, b);
  const Tensor other = sum(square(hidden));
  {
    const NoGrad guard;
    mul_(w, 1.0);  // linear's own backward is refused
  }
  EXPECT_THROW(other.backward(), StateError);
  EXPECT_FALSE(w.grad().defined());
  loss().backward();
  EXPECT_TRUE(same_bits(w.grad(), want));
}

TEST_P(GradientBufferTest, AMovedParameterGetsMemoryThatFits) {
  const Tensor w = leaf({3, 4}, 2);
  const auto backward = [&](const Tensor& x) { sum(linear(x, w)).backward(); };
  backward(normal({6, 4}, 1));
  w.zero_grad();
  w.set_data(to(w.detach(), DType::f64));
  backward(to(normal({6, 4}, 1), DType::f64));
  EXPECT_EQ(w.grad().dtype(), DType::f64);
  w.zero_grad();
  w.set_data(normal({5, 4}, 3));
  backward(normal({6, 4}, 1));
  EXPECT_EQ(w.grad().shape(), (Shape{5, 4}));
}

TEST_P(GradientBufferTest, KeptMemoryIsTheParametersAndGoesWithIt) {
  const std::int64_t before = memory_stats(device()).bytes_now;
  {
    const Tensor w = leaf({64, 64}, 2);
    sum(linear(normal({6, 64}, 1), w)).backward();
    const std::int64_t with_gradient = memory_stats(device()).bytes_now;
    w.zero_grad();
    EXPECT_EQ(memory_stats(device()).bytes_now, with_gradient);
    w.set_grad({});
    EXPECT_LT(memory_stats(device()).bytes_now, with_gradient);
  }
  EXPECT_EQ(memory_stats(device()).bytes_now, before);
}

TEST_P(GradientBufferTest, ZeroGradOfATensorWithoutAGradientDoesNothing) {
  const Tensor x = ones({2}, {.device = device()});
  x.zero_grad();
  EXPECT_FALSE(x.has_record());
  EXPECT_THROW(Tensor().zero_grad(), StateError);
}

// Runs `change` and says whether the layout's count moved.
bool moves(const std::function<void()>& change) {
  const std::uint64_t before = layout_generation();
  change();
  return layout_generation() != before;
}

TEST_P(GradientBufferTest, TheLayoutMovesWhenAGradientComesOrGoes) {
  const Tensor x = normal({6, 4}, 1);
  const Tensor w = leaf({3, 4}, 2);
  const Tensor given = normal({3, 4}, 3);
  const auto backward = [&] { sum(linear(x, w)).backward(); };
  EXPECT_TRUE(moves(backward)) << "the first gradient";
  EXPECT_FALSE(moves(backward)) << "added in place";
  EXPECT_FALSE(moves([&] { mul_(w.grad(), 0.5); })) << "written in place";
  EXPECT_TRUE(moves([&] { w.zero_grad(); }));
  EXPECT_FALSE(moves([&] { w.zero_grad(); })) << "nothing was there";
  EXPECT_TRUE(moves(backward)) << "into kept memory";
  EXPECT_TRUE(moves([&] { w.set_grad(given); }));
  EXPECT_FALSE(moves(backward)) << "added in place to one set by hand";
  EXPECT_TRUE(moves([&] { w.set_grad({}); }));
  EXPECT_FALSE(moves([&] { w.set_grad({}); })) << "nothing was there";
}

TEST_P(GradientBufferTest, TheLayoutMovesWithParametersAndWeightCopies) {
  const Tensor x = normal({6, 4}, 1);
  const Tensor w = leaf({3, 4}, 2);
  const auto forward = [&](DType dtype) {
    const amp::Autocast region({.device = device().type, .dtype = dtype});
    const NoGrad guard;
    (void)linear(x, w);
  };
  EXPECT_TRUE(moves([&] { forward(DType::f16); })) << "the copy is made";
  EXPECT_FALSE(moves([&] { forward(DType::f16); })) << "and used again";
  const NoGrad guard;
  EXPECT_FALSE(moves([&] { fill_(w, 0.5); }));
  EXPECT_TRUE(moves([&] { forward(DType::f16); })) << "a copy that its weight had outrun is one again";
  EXPECT_TRUE(moves([&] { forward(DType::bf16); })) << "and replaced";
  EXPECT_TRUE(moves([&] { w.set_data(normal({3, 4}, 5)); }));
  EXPECT_FALSE(moves([&] { (void)clone(w); }));
}

}  // namespace
}  // namespace fusegrad
