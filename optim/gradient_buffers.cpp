// Where the gradients of an optimizer's parameters lie.

#include <algorithm>
#include <utility>

#include <fusegrad/kernels/fill.h>
#include <fusegrad/optim/optimizer.h>

namespace fusegrad::optim {
namespace {

constexpr std::string_view kOp = "use_gradient_buffers";
constexpr std::size_t kBoundary = 256;  // bytes; whole vectors, cache lines and DMA transfers begin there

std::size_t rounded_up(std::size_t bytes) { return (bytes + kBoundary - 1) / kBoundary * kBoundary; }

void require_dtype_fits(const std::vector<Tensor>& parameters, const std::optional<DType>& dtype) {
  if (!dtype) return;
  if (!is_half(*dtype)) {
    throw DTypeError({.op = std::string(kOp),
                      .got = std::string(name(*dtype)),
                      .want = "f16 or bf16",
                      .way_out = "Leave dtype unset for gradients in the parameter's dtype"});
  }
  for (const Tensor& parameter : parameters) {
    if (parameter.dtype() == DType::f32) continue;
    throw DTypeError({.op = std::string(kOp),
                      .got = cat(name(*dtype), " gradients for a parameter of ", name(parameter.dtype())),
                      .want = "f32 parameters only",
                      .way_out = "Leave dtype unset for gradients in the parameter's dtype"});
  }
}

void require_one_dtype(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) {
    if (parameter.dtype() == parameters.front().dtype()) continue;
    throw DTypeError({.op = std::string(kOp),
                      .got = cat("parameters of ", name(parameters.front().dtype()), " and ", name(parameter.dtype())),
                      .want = "gradients of one dtype in a flat buffer",
                      .way_out = "Give each dtype an optimizer of its own, or leave flat off"});
  }
}

void require_one_device(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) (void)require_same_device({parameters.front(), parameter}, kOp);
}

// One buffer for the gradients of all parameters, zero, and each one's place in it.
struct FlatBuffer {
  Tensor whole;
  std::vector<Tensor> places;
};

FlatBuffer make_flat(const std::vector<Tensor>& parameters, DType dtype) {
  const std::size_t size = element_size(dtype);
  std::size_t bytes = 0;
  for (const Tensor& parameter : parameters) {
    bytes += rounded_up(static_cast<std::size_t>(parameter.numel()) * size);
  }
  // Memory of the CPU begins at a multiple of 64 only, so one boundary more is taken than needed.
  const auto elements = [size](std::size_t count) { return static_cast<std::int64_t>(count / size); };
  const Tensor memory = Tensor::empty({elements(bytes + kBoundary)}, dtype, parameters.front().device());
  const auto address = reinterpret_cast<std::uintptr_t>(memory.raw());
  FlatBuffer flat{.whole = memory.alias({elements(bytes)}, elements(rounded_up(address) - address)), .places = {}};
  kernels::fill(flat.whole, 0.0);
  std::size_t at = 0;
  for (const Tensor& parameter : parameters) {
    flat.places.push_back(flat.whole.alias(parameter.shape(), elements(at)));
    at += rounded_up(flat.places.back().bytes());
  }
  return flat;
}

}  // namespace

void Optimizer::use_gradient_buffers(const GradientBufferOptions& options) {
  require_dtype_fits(parameters_, options.dtype);
  FlatBuffer flat;
  if (options.flat) {
    require_one_device(parameters_);
    require_one_dtype(parameters_);
    flat = make_flat(parameters_, options.dtype.value_or(parameters_.front().dtype()));
  } else {
    flat.places.resize(parameters_.size());
  }

  // All memory is taken before anything changes.
  std::vector<Tensor> moved(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    const DType dtype = options.dtype.value_or(parameter.dtype());
    const bool stays = !options.flat && !parameter.record().gradient.place().defined() && grad.dtype() == dtype;
    if (stays) continue;
    moved[i] = options.flat ? flat.places[i].detach() : Tensor::empty(grad.shape(), dtype, grad.device());
    kernels::copy(grad, moved[i]);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    GradientSlot& slot = parameters_[i].record().gradient;
    slot.arrange(flat.places[i], options.dtype);
    if (moved[i].defined()) slot.set(moved[i]);
  }
  flat_gradients_ = std::move(flat.whole);
  places_ = std::move(flat.places);
}

Tensor Optimizer::flat_gradients() const {
  if (!flat_gradients_.defined()) return {};
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!parameters_[i].record().gradient.place().is_same(places_[i])) return {};
  }
  return flat_gradients_;
}

}  // namespace fusegrad::optim
