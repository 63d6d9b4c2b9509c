// Writes between forward and backward. For each operation and each of its operands and its result: backward either
// refuses, or it gives the gradient of what forward computed. It never uses the new values silently.

#include <functional>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/engine.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

using Inputs = std::vector<Tensor>;

struct Operation {
  const char* name;
  std::vector<Shape> shapes;
  std::function<Tensor(const Inputs&)> function;
};

std::vector<Operation> operations() {
  const auto unary = [](const char* name, Tensor (*f)(const Tensor&)) {
    return Operation{name, {{2, 3}}, [f](const Inputs& x) { return f(x[0]); }};
  };
  const auto binary = [](const char* name, Tensor (*f)(const Tensor&, const Tensor&)) {
    return Operation{name, {{2, 3}, {3}}, [f](const Inputs& x) { return f(x[0], x[1]); }};
  };
  return {
      unary("neg", neg),
      unary("relu", relu),
      unary("sigmoid", sigmoid),
      unary("tanh", fusegrad::tanh),
      unary("gelu", gelu),
      unary("exp", fusegrad::exp),
      unary("log", fusegrad::log),
      unary("sqrt", fusegrad::sqrt),
      unary("square", square),
      unary("abs", fusegrad::abs),
      unary("clone", clone),
      unary("sum", sum),
      unary("mean", mean),
      binary("add", add),
      binary("sub", sub),
      binary("mul", mul),
      binary("div", div),
      {"number / tensor", {{3}}, [](const Inputs& x) { return 2.0 / x[0]; }},
      {"tensor * number", {{3}}, [](const Inputs& x) { return x[0] * 2.0; }},
      {"sum over a dimension", {{2, 3}}, [](const Inputs& x) { return sum(x[0], 1); }},
      {"matmul", {{2, 3}, {3, 2}}, [](const Inputs& x) { return matmul(x[0], x[1]); }},
      {"linear", {{2, 3}, {4, 3}, {4}}, [](const Inputs& x) { return linear(x[0], x[1], x[2]); }},
      {"mse_loss", {{2, 3}, {2, 3}}, [](const Inputs& x) { return mse_loss(x[0], x[1]); }},
      {"mse_loss, none", {{3}, {3}}, [](const Inputs& x) { return mse_loss(x[0], x[1], Reduction::none); }},
      {"view",
       {{2, 3}},
       [](const Inputs& x) {
         return view(x[0], {3, 2});
       }},
      {"rows", {{2, 3}}, [](const Inputs& x) { return rows(x[0], 1, 2); }},
      {"to", {{3}}, [](const Inputs& x) { return to(x[0], DType::f64); }},
  };
}

class SavedTensorTest : public DeviceTest {
 protected:
  /// Distinct positive values, so that log and sqrt are defined.
  static Inputs inputs_of(const Operation& operation) {
    Inputs inputs;
    double next = 0.5;
    for (const Shape& shape : operation.shapes) {
      std::vector<double> values(static_cast<std::size_t>(shape.numel()));
      for (double& value : values) value = next += 0.375;
      inputs.push_back(tensor(std::span<const double>(values), shape, {.device = device(), .requires_grad = true}));
    }
    return inputs;
  }

  static Inputs gradients(const Inputs& inputs) {
    Inputs grads;
    for (const Tensor& input : inputs) grads.push_back(input.grad());
    return grads;
  }

  static void run_backward(const Tensor& y) {
    y.backward(full(y.shape(), 1.5, {.dtype = y.dtype(), .device = device()}));
  }
};
FUSEGRAD_ON_EVERY_DEVICE(SavedTensorTest);

TEST_P(SavedTensorTest, AWriteIsRefusedOrDoesNotMatter) {
  int refusals = 0;
  for (const Operation& operation : operations()) {
    const Inputs untouched = inputs_of(operation);
    run_backward(operation.function(untouched));
    const Inputs want = gradients(untouched);
    for (std::size_t changed = 0; changed <= operation.shapes.size(); ++changed) {  // the last is the result
      const Inputs inputs = inputs_of(operation);
      const Tensor y = operation.function(inputs);
      {
        const NoGrad guard;
        mul_(changed < inputs.size() ? inputs[changed] : y, -3);
      }
      try {
        run_backward(y);
      } catch (const StateError& error) {
        ++refusals;
        EXPECT_NE(error.fault().got.find("saved"), std::string::npos) << error.what();
        for (const Tensor& grad : gradients(inputs)) EXPECT_FALSE(grad.defined()) << operation.name;
        continue;
      }
      const Inputs got = gradients(inputs);
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(same_bits(got[i], want[i]))
            << operation.name << ", operand " << i << " after a write to " << changed;
      }
    }
  }
  EXPECT_GT(refusals, 20);
}

TEST_P(SavedTensorTest, AFailedBackwardLeavesUnreachedGradientsAndFreesItsMemory) {
  const std::int64_t before = memory_stats(device()).bytes_now;
  {
    const Tensor a = ones({1000}, {.device = device(), .requires_grad = true});
    const Tensor b = ones({1000}, {.device = device(), .requires_grad = true});
    a.set_grad(full({1000}, 5, {.device = device()}));
    const Tensor squared = square(a);  // this one refuses
    const Tensor loss = sum(squared * b);
    {
      const NoGrad guard;
      fill_(a, 2);
    }
    EXPECT_THROW(loss.backward(), StateError);
    EXPECT_TRUE(same_bits(a.grad(), full({1000}, 5, {.device = device()})));
    EXPECT_TRUE(grad_enabled()) << "backward's own NoGrad outlived it";
    sum(b * 2.0).backward();  // and the engine works on
    EXPECT_TRUE(b.grad().defined());
  }
  EXPECT_EQ(memory_stats(device()).bytes_now, before);
}

TEST_P(SavedTensorTest, AGradientOfTheWrongShapeIsAnErrorThatNamesTheOperation) {
  const Tensor x = ones({3}, {.device = device(), .requires_grad = true});
  const Tensor y = record("misshapen", clone(x.detach()), {x},
                          [](const Tensor& grad_y, const NeededGrads&) { return Grads{rows(grad_y, 0, 2)}; });
  try {
    run_backward(y);
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("misshapen"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(x.grad().defined());
}

TEST_P(SavedTensorTest, WritingIntoAGradientDoesNotReachTheRetainedGraph) {
  const Tensor x = ones({3}, {.device = device(), .requires_grad = true});
  const Tensor slope = full({3}, 2, {.device = device()});
  // The worst an operation may do: hand out what it keeps.
  const Tensor y =
      record("keeps", clone(x.detach()), {x}, [slope](const Tensor&, const NeededGrads&) { return Grads{slope}; });
  for (int run = 0; run < 2; ++run) {
    y.backward(slope, {.retain_graph = true});
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
    zero_(x.grad());
    x.set_grad({});
  }
}

TEST_P(SavedTensorTest, OnlyWhatAGradientNeedsIsKept) {
  const std::int64_t elements = 1 << 16;
  const Tensor x = ones({elements}, {.device = device(), .requires_grad = true});
  const std::int64_t before = memory_stats(device()).bytes_now;
  const Tensor y = sum((((x + 1.0) * 2.0 - x) / 3.0) + clone(x));  // linear in x: nothing has to stay
  EXPECT_LT(memory_stats(device()).bytes_now, before + 4096);
  y.backward();
  EXPECT_NEAR(x.grad().to_vector<double>().front(), 4.0 / 3.0, 1e-6);  // a few f32 roundings
}

}  // namespace
}  // namespace fusegrad
