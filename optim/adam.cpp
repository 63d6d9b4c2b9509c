// Adam and AdamW with a kernel for every step of the formula.

#include <fusegrad/autograd/creation.h>
#include <fusegrad/kernels/adam.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/optim/adam.h>

namespace fusegrad::optim {
using kernels::adam_step;
using kernels::AdamStep;
using kernels::converted;
using math::WeightDecay;

Adam::Adam(const std::vector<Tensor>& params, const AdamOptions& options)
    : Adam(std::vector<AdamParamGroup>{{.params = params}}, options) {}

Adam::Adam(const std::vector<AdamParamGroup>& groups, const AdamOptions& options) {
  add_groups(groups, options, WeightDecay::l2);
}

AdamW::AdamW(const std::vector<Tensor>& params, const AdamWOptions& options)
    : AdamW(std::vector<AdamParamGroup>{{.params = params}}, options) {}

AdamW::AdamW(const std::vector<AdamParamGroup>& groups, const AdamWOptions& options) {
  add_groups(groups, options.as_adam(), WeightDecay::decoupled);
}

void Adam::step() {
  clocks_.resize(parameters().size());
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    if (parameters()[i].grad().defined()) step_parameter(i);
  }
}

void Adam::step_parameter(std::size_t index) {
  const Tensor& parameter = parameters()[index];
  require_gradient_dtype(parameter, parameter.grad());
  const math::AdamGroup group = kernel_group(group_of(index));
  Moments& state = moments(index);
  clocks_[index] = math::advanced(clocks_[index], group);
  const math::AdamCoefficients<double> c = math::adam_coefficients(group, clocks_[index]);

  // 16-bit parameters are worked on in f32 and rounded once, at the end.
  const DType dtype = math_dtype(parameter.dtype());
  const Tensor p = converted(parameter, dtype);
  Tensor g = converted(parameter.grad(), dtype);
  if (group.maximize) {
    const Tensor negated = empty_like(g);
    adam_step(AdamStep::negate, {.out = negated, .a = g, .b = {}, .c = {}});
    g = negated;
  }
  if (group.decay == WeightDecay::l2) {
    const Tensor decayed = empty_like(g);
    adam_step(AdamStep::l2_decay, {.out = decayed, .a = g, .b = p, .c = {}, .x = c.decay});
    g = decayed;
  }
  if (group.decay == WeightDecay::decoupled) {
    adam_step(AdamStep::decoupled_decay, {.out = p, .a = p, .b = {}, .c = {}, .x = c.decay});
  }
  adam_step(AdamStep::first_moment,
            {.out = state.exp_avg, .a = state.exp_avg, .b = g, .c = {}, .x = c.one_minus_beta1});
  adam_step(AdamStep::second_moment,
            {.out = state.exp_avg_sq, .a = state.exp_avg_sq, .b = g, .c = {}, .x = c.beta2, .y = c.one_minus_beta2});
  Tensor second = state.exp_avg_sq;
  if (group.amsgrad) {
    second = state.max_exp_avg_sq;
    adam_step(AdamStep::maximum, {.out = second, .a = second, .b = state.exp_avg_sq, .c = {}});
  }
  const Tensor denominator = empty_like(p);
  adam_step(AdamStep::denominator,
            {.out = denominator, .a = second, .b = {}, .c = {}, .x = c.sqrt_correction2, .y = c.eps});
  adam_step(AdamStep::apply, {.out = p, .a = p, .b = state.exp_avg, .c = denominator, .x = c.step_size});
  if (!p.is_same(parameter)) kernels::copy(p, parameter);
  parameter.bump_version();
}

}  // namespace fusegrad::optim
