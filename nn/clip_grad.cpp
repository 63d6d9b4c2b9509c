#include <cmath>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/kernels/grad_scaler.h>
#include <fusegrad/nn/clip_grad.h>

namespace fusegrad::nn {
namespace {

std::vector<Tensor> gradients_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> grads;
  for (const Tensor& parameter : parameters) {
    if (Tensor grad = parameter.grad(); grad.defined()) grads.push_back(std::move(grad));
  }
  return grads;
}

void require(bool valid, std::string_view op, std::string_view option, double value, std::string_view want) {
  if (valid) return;
  throw ValueError({.op = std::string(op), .got = cat(option, " = ", value), .want = std::string(want), .way_out = ""});
}

}  // namespace

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, const ClipNormOptions& options) {
  require(max_norm >= 0, "clip_grad_norm_", "max_norm", max_norm, "0 or more");
  require(options.norm_type > 0, "clip_grad_norm_", "norm_type", options.norm_type, "a number above 0, or infinity");
  const std::vector<Tensor> grads = gradients_of(parameters);
  if (grads.empty()) return zeros({}, {.dtype = DType::f64});

  kernels::TensorList list;
  list.assign(grads, "clip_grad_norm_");
  Tensor norm = empty({}, {.dtype = DType::f64, .device = list.device()});
  const Tensor coefficient = empty_like(norm);
  kernels::check_gradients(list, {.norm = kernels::norm_kind(options.norm_type),
                                  .p = options.norm_type,
                                  .norm_out = norm.data<double>(),
                                  .max_norm = max_norm,
                                  .clip_coefficient = coefficient.data<double>()});
  if (options.error_if_nonfinite) {
    const double value = norm.item<double>();
    require(std::isfinite(value), "clip_grad_norm_", "the gradient norm", value, "a finite norm");
  }
  kernels::multiply_gradients(list, coefficient.data<double>());
  for (const Tensor& grad : grads) grad.bump_version();
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  require(clip_value >= 0, "clip_grad_value_", "clip_value", clip_value, "0 or more");
  const std::vector<Tensor> grads = gradients_of(parameters);
  if (grads.empty()) return;
  kernels::TensorList list;
  list.assign(grads, "clip_grad_value_");
  kernels::clamp_gradients(list, clip_value);
  for (const Tensor& grad : grads) grad.bump_version();
}

}  // namespace fusegrad::nn
