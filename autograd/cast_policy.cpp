#include <array>

#include <fusegrad/autograd/cast_policy.h>
#include <fusegrad/kernels/fill.h>

namespace fusegrad {
namespace {

thread_local std::array<CastPolicy, 2> policies;

}  // namespace

CastPolicy cast_policy(DeviceType device) { return policies[static_cast<std::size_t>(device)]; }

void set_cast_policy(DeviceType device, CastPolicy policy) { policies[static_cast<std::size_t>(device)] = policy; }

Tensor lowered(const Tensor& x) {
  if (!x.defined()) return x;
  const CastPolicy policy = cast_policy(x.device().type);
  const bool castable = x.dtype() == DType::f32 || is_half(x.dtype());
  if (!policy.active || !castable || x.dtype() == policy.dtype) return x;
  const bool is_weight = x.dtype() == DType::f32 && x.is_leaf() && x.requires_grad();
  if (!is_weight) return kernels::converted(x, policy.dtype);

  WeightCopy& copy = x.record().copy;
  const bool fits = copy.value().defined() && copy.value().dtype() == policy.dtype;
  if (fits && copy.version == x.version()) return copy.value();
  if (!fits) {
    copy.set(kernels::converted(x, policy.dtype), x.version());
    return copy.value();
  }
  kernels::copy(x, copy.value());
  copy.value().bump_version();
  copy.version = x.version();
  bump_layout_generation();  // a fused optimizer may write this copy again
  return copy.value();
}

bool must_widen(const Tensor& x) { return is_half(x.dtype()) && cast_policy(x.device().type).active; }

}  // namespace fusegrad
