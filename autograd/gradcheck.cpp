#include <algorithm>
#include <cmath>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/gradcheck.h>
#include <fusegrad/autograd/inplace.h>

namespace fusegrad {
namespace {

// Weights that make a transposed or misplaced gradient element show.
Tensor weights_like(const Tensor& y) {
  std::vector<double> weights(static_cast<std::size_t>(y.numel()));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5 + std::fmod(0.37 * static_cast<double>(i), 1.0);
  return tensor(std::span<const double>(weights), y.shape(), {.dtype = y.dtype(), .device = y.device()});
}

double weighted_sum(const Tensor& y, const std::vector<double>& weights) {
  const std::vector<double> values = y.to_vector<double>();
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) total += values[i] * weights[i];
  return total;
}

}  // namespace

GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& function,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  for (const Tensor& input : inputs) {
    input.require_dtype(DType::f64, "gradcheck");
    input.set_grad({});
  }
  const Tensor y = function(inputs);
  const Tensor weights = weights_like(y);
  const std::vector<double> weight_values = weights.to_vector<double>();
  y.backward(weights);

  GradcheckResult result;
  for (std::size_t which = 0; which < inputs.size(); ++which) {
    const Tensor& input = inputs[which];
    if (!input.requires_grad()) continue;
    const std::vector<double> original = input.to_vector<double>();
    const std::vector<double> analytic =
        input.grad().defined() ? input.grad().to_vector<double>() : std::vector<double>(original.size(), 0.0);
    for (std::size_t i = 0; i < original.size(); ++i) {
      const NoGrad guard;
      const auto value_at = [&](double x) {
        std::vector<double> moved = original;
        moved[i] = x;
        copy_(input, tensor(std::span<const double>(moved), input.shape(), {.dtype = DType::f64}));
        return weighted_sum(function(inputs), weight_values);
      };
      const double numeric =
          (value_at(original[i] + options.step) - value_at(original[i] - options.step)) / (2 * options.step);
      const double deviation = std::fabs(analytic[i] - numeric) / std::max(1.0, std::fabs(numeric));
      if (!(deviation <= result.worst)) result.worst = deviation;
      if (!(deviation <= options.tolerance) && result.passed) {
        result.passed = false;
        result.message =
            cat("input ", which, ", element ", i, ": backward gives ", analytic[i], ", differences give ", numeric);
      }
    }
    const NoGrad guard;
    copy_(input, tensor(std::span<const double>(original), input.shape(), {.dtype = DType::f64}));
  }
  return result;
}

}  // namespace fusegrad
