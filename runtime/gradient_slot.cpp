// What a leaf keeps for its gradient, and the count of all changes of where things lie.

#include <atomic>
#include <utility>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {
namespace {

std::atomic<std::uint64_t> generation{0};

bool fits(const Tensor& memory, const Shape& shape, DType dtype, Device device) {
  return memory.defined() && memory.shape() == shape && memory.dtype() == dtype && memory.device() == device;
}

}  // namespace

std::uint64_t layout_generation() { return generation.load(std::memory_order_relaxed); }

void bump_layout_generation() { generation.fetch_add(1, std::memory_order_relaxed); }

void WeightCopy::set(const Tensor& value, std::uint64_t value_version) {
  if (value_.defined() || value.defined()) bump_layout_generation();
  value_ = value;
  version = value_version;
}

void GradientSlot::set(Tensor grad) {
  if (grad_.defined() || grad.defined()) bump_layout_generation();
  grad_ = std::move(grad);
  kept_ = Tensor();
}

void GradientSlot::zero() {
  if (!grad_.defined()) return;  // what an earlier one left stays
  // A gradient that autograd was told to follow is not to come back as another one.
  const bool keeps = !place_.defined() && grad_.is_sole_owner() && !grad_.has_record();
  Tensor last = std::move(grad_);
  grad_ = Tensor();
  if (keeps) kept_ = std::move(last);
  bump_layout_generation();
}

Tensor GradientSlot::take(const Shape& shape, DType dtype, Device device) {
  if (grad_.defined()) return {};
  if (place_.defined()) return fits(place_, shape, dtype, device) ? place_.detach() : Tensor();
  return fits(kept_, shape, dtype, device) ? std::exchange(kept_, {}) : Tensor();
}

bool GradientSlot::is_in_place(const Tensor& grad) const {
  return place_.defined() && grad.raw() == place_.raw() && fits(place_, grad.shape(), grad.dtype(), grad.device());
}

void GradientSlot::arrange(Tensor place, std::optional<DType> f32_dtype) {
  release();
  place_ = std::move(place);
  f32_dtype_ = f32_dtype;
}

void GradientSlot::release() {
  kept_ = Tensor();
  place_ = Tensor();
}

}  // namespace fusegrad
