// Every differentiable operation against difference quotients, in f64: one table, a row (or several) an operation.

#include <cmath>
#include <fstream>
#include <random>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/gradcheck.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>

namespace fusegrad {
namespace {

using Inputs = std::vector<Tensor>;

struct Row {
  std::string op;  // the public name, as in ops.h
  std::string what;
  std::vector<Shape> shapes;
  std::function<Tensor(const Inputs&)> function;
  double low = -2;
  double high = 2;
};

std::vector<Row> table() {
  std::vector<Row> rows;
  const auto unary = [&](const char* op, Tensor (*f)(const Tensor&), double low = -2, double high = 2) {
    rows.push_back({op, "", {{3, 4}}, [f](const Inputs& x) { return f(x[0]); }, low, high});
  };
  unary("neg", neg);
  unary("relu", relu);
  unary("sigmoid", sigmoid);
  unary("tanh", fusegrad::tanh);
  unary("gelu", gelu);
  unary("exp", fusegrad::exp);
  unary("log", fusegrad::log, 0.5, 3);
  unary("sqrt", fusegrad::sqrt, 0.5, 3);
  unary("square", square);
  unary("abs", fusegrad::abs, 0.2, 3);
  unary("clone", clone);
  rows.push_back({"operator-", "of one", {{5}}, [](const Inputs& x) { return -x[0]; }});

  const auto binary = [&](const char* op, Tensor (*f)(const Tensor&, const Tensor&)) {
    const std::vector<std::pair<Shape, Shape>> pairs{
        {{3, 4}, {3, 4}}, {{3, 4}, {4}},       {{4}, {3, 4}}, {{3, 1}, {1, 4}},
        {{}, {3}},        {{2, 3, 2}, {3, 1}}, {{1}, {2, 3}}, {{2, 1, 3}, {1, 4, 1}}};
    for (const auto& [a, b] : pairs) {
      rows.push_back(
          {op, cat(a.str(), " with ", b.str()), {a, b}, [f](const Inputs& x) { return f(x[0], x[1]); }, 0.5, 2});
    }
    rows.push_back({op, "with itself", {{4}}, [f](const Inputs& x) { return f(x[0], x[0]); }, 0.5, 2});
  };
  binary("add", add);
  binary("sub", sub);
  binary("mul", mul);
  binary("div", div);
  rows.push_back({"operator+", "", {{3}, {3}}, [](const Inputs& x) { return x[0] + x[1]; }});
  rows.push_back({"operator-", "", {{3}, {3}}, [](const Inputs& x) { return x[0] - x[1]; }});
  rows.push_back({"operator*", "", {{3}, {3}}, [](const Inputs& x) { return x[0] * x[1]; }});
  rows.push_back({"operator/", "", {{3}, {3}}, [](const Inputs& x) { return x[0] / x[1]; }, 0.5, 2});
  rows.push_back({"operator+", "numbers", {{3}}, [](const Inputs& x) { return (x[0] + 2.0) * (3.0 + x[0]); }});
  rows.push_back({"operator-", "numbers", {{3}}, [](const Inputs& x) { return (x[0] - 2.0) * (3.0 - x[0]); }});
  rows.push_back({"operator*", "numbers", {{3}}, [](const Inputs& x) { return (x[0] * 2.0) + (3.0 * x[0]); }});
  rows.push_back({"operator/", "numbers", {{3}}, [](const Inputs& x) { return (x[0] / 2.0) + (3.0 / x[0]); }, 0.5, 2});

  rows.push_back({"sum", "all", {{3, 4}}, [](const Inputs& x) { return sum(x[0]); }});
  rows.push_back({"mean", "all", {{3, 4}}, [](const Inputs& x) { return mean(x[0]); }});
  for (int dim = -3; dim < 3; ++dim) {
    for (const bool keepdim : {false, true}) {
      const auto options = ReduceOptions{.keepdim = keepdim};
      const std::string what = cat("dim ", dim, ", keepdim ", keepdim);
      rows.push_back({"sum", what, {{2, 3, 4}}, [=](const Inputs& x) { return sum(x[0], dim, options); }});
      rows.push_back({"mean", what, {{2, 3, 4}}, [=](const Inputs& x) { return mean(x[0], dim, options); }});
    }
  }

  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      rows.push_back({"matmul",
                      cat("transposed ", ta, tb),
                      {ta ? Shape{4, 3} : Shape{3, 4}, tb ? Shape{5, 4} : Shape{4, 5}},
                      [=](const Inputs& x) { return matmul(x[0], x[1], {.transpose_a = ta, .transpose_b = tb}); }});
    }
  }
  rows.push_back(
      {"matmul", "leading dimensions", {{2, 3, 4}, {4, 5}}, [](const Inputs& x) { return matmul(x[0], x[1]); }});
  rows.push_back({"matmul", "with itself", {{3, 3}}, [](const Inputs& x) { return matmul(x[0], x[0]); }});
  const auto affine = [](const Inputs& x) { return linear(x[0], x[1], x[2]); };
  rows.push_back({"linear", "", {{3, 4}, {5, 4}, {5}}, affine});
  rows.push_back({"linear", "one sample", {{4}, {5, 4}, {5}}, affine});
  rows.push_back({"linear", "leading dimensions", {{2, 3, 4}, {5, 4}, {5}}, affine});
  rows.push_back({"linear", "no bias", {{3, 4}, {5, 4}}, [](const Inputs& x) { return linear(x[0], x[1]); }});

  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    rows.push_back({"mse_loss", cat("reduction ", static_cast<int>(reduction)), {{3, 4}, {3, 4}}, [=](const Inputs& x) {
                      return mse_loss(x[0], x[1], reduction);
                    }});
  }

  rows.push_back({"view", "", {{3, 4}}, [](const Inputs& x) { return square(view(x[0], {2, -1})); }});
  rows.push_back({"rows", "", {{5, 3}}, [](const Inputs& x) { return square(fusegrad::rows(x[0], 1, 4)); }});
  rows.push_back({"rows", "twice", {{5}}, [](const Inputs& x) {
                    return fusegrad::rows(x[0], 0, 3) * fusegrad::rows(x[0], 2, 5);
                  }});
  rows.push_back({"to", "the same dtype and device", {{3}}, [](const Inputs& x) {
                    return square(to(to(x[0], DType::f64), kCPU));
                  }});
  return rows;
}

class GradcheckTable : public testing::TestWithParam<Row> {};

TEST_P(GradcheckTable, BackwardAgreesWithDifferences) {
  const Row& row = GetParam();
  std::mt19937 random(7);
  std::uniform_real_distribution<double> value(row.low, row.high);
  Inputs inputs;
  for (const Shape& shape : row.shapes) {
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (double& v : values) v = value(random);
    inputs.push_back(tensor(std::span<const double>(values), shape, {.dtype = DType::f64, .requires_grad = true}));
  }
  const GradcheckResult result = gradcheck(row.function, inputs);
  EXPECT_TRUE(result.passed) << result.message;
  for (const Tensor& input : inputs) EXPECT_TRUE(input.grad().defined());
}

std::string row_name(const testing::TestParamInfo<Row>& info) {
  std::string name = cat(info.index, "_", info.param.op);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

void PrintTo(const Row& row, std::ostream* out) { *out << row.op << " " << row.what; }

INSTANTIATE_TEST_SUITE_P(Operations, GradcheckTable, testing::ValuesIn(table()), row_name);

TEST(Gradcheck, EveryPublicOperationHasARow) {
  std::ifstream in(std::string(FUSEGRAD_SOURCE_DIR) + "/autograd/ops.h");
  ASSERT_TRUE(in);
  std::set<std::string> checked;
  for (const Row& row : table()) checked.insert(row.op);
  int found = 0;
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kResult = "Tensor ";  // declarations start their line, comments do not
    if (!line.starts_with(kResult)) continue;
    const std::string name = line.substr(kResult.size(), line.find('(') - kResult.size());
    EXPECT_TRUE(checked.contains(name)) << name << " has no gradcheck row";
    ++found;
  }
  EXPECT_GT(found, 30);
}

TEST(Gradcheck, FailsForAWrongBackward) {
  const auto wrong = [](const Inputs& x) {
    const Tensor y = clone(x[0].detach());
    return record("wrong", y, {x[0]}, [](const Tensor& grad_y, const NeededGrads&) { return Grads{grad_y * 1.001}; });
  };
  const GradcheckResult result = gradcheck(wrong, {ones({3}, {.dtype = DType::f64, .requires_grad = true})});
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.message.find("input 0, element 0"), std::string::npos) << result.message;
}

TEST(Gradcheck, WantsF64) {
  EXPECT_THROW(gradcheck([](const Inputs& x) { return square(x[0]); }, {ones({3}, {.requires_grad = true})}),
               DTypeError);
}

}  // namespace
}  // namespace fusegrad
