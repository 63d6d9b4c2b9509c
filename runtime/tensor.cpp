#include <algorithm>

#include <fusegrad/runtime/stream.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

TensorImpl::TensorImpl() = default;
TensorImpl::~TensorImpl() = default;

TensorImpl& Tensor::impl(std::string_view op) const {
  if (impl_ == nullptr) {
    throw StateError({.op = std::string(op),
                      .got = "an undefined tensor",
                      .want = "a tensor with elements",
                      .way_out = "A default-constructed Tensor and the gradient of a tensor without one are undefined; "
                                 "ask defined() first"});
  }
  return *impl_;
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor tensor;
  tensor.impl_ = std::make_shared<TensorImpl>();
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.numel(), static_cast<std::int64_t>(element_size(dtype)), &bytes)) {
    throw ShapeError({.op = "empty", .got = shape.str(), .want = "fewer than 2^63 bytes", .way_out = ""});
  }
  tensor.impl_->storage = std::make_shared<Storage>(static_cast<std::size_t>(bytes), device);
  tensor.impl_->shape = shape;
  tensor.impl_->dtype = dtype;
  return tensor;
}

void* Tensor::raw() const {
  const TensorImpl& self = impl("data");
  void* base = self.storage->data();
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + self.byte_offset;
}

Tensor Tensor::alias(const Shape& shape, std::int64_t first_element) const {
  const TensorImpl& self = impl("view");
  if (first_element < 0 || shape.numel() > self.shape.numel() - first_element) {
    throw ShapeError({.op = "view",
                      .got = cat(shape.str(), " from element ", first_element, " of ", self.shape.str()),
                      .want = "a range inside the tensor",
                      .way_out = ""});
  }
  Tensor view;
  view.impl_ = std::make_shared<TensorImpl>();
  view.impl_->storage = self.storage;
  view.impl_->byte_offset = self.byte_offset + static_cast<std::size_t>(first_element) * element_size(self.dtype);
  view.impl_->shape = shape;
  view.impl_->dtype = self.dtype;
  return view;
}

void Tensor::set_data(const Tensor& source) const {
  TensorImpl& self = impl("set_data");
  const TensorImpl& other = source.impl("set_data");
  if (!is_leaf()) {
    throw StateError({.op = "set_data", .got = "the result of an operation", .want = "a leaf", .way_out = ""});
  }
  const bool grad_fits = self.shape == other.shape && self.storage->device() == other.storage->device();
  const bool memory_fits = grad_fits && self.dtype == other.dtype;
  self.storage = other.storage;
  self.byte_offset = other.byte_offset;
  self.shape = other.shape;
  self.dtype = other.dtype;
  if (self.record != nullptr) {
    if (!grad_fits) self.record->gradient.set({});
    if (!memory_fits) self.record->gradient.release();
    self.record->copy.set({}, 0);
  }
  bump_layout_generation();
}

AutogradRecord& Tensor::record() const {
  TensorImpl& self = impl("record");
  if (self.record == nullptr) self.record = std::make_unique<AutogradRecord>();
  return *self.record;
}

bool Tensor::requires_grad() const {
  return has_record() && (impl_->record->requires_grad || impl_->record->grad_fn != nullptr);
}

Tensor& Tensor::requires_grad_(bool requires_grad) {
  if (!is_leaf()) {
    throw StateError({.op = "requires_grad_",
                      .got = "the result of an operation",
                      .want = "a leaf",
                      .way_out = "Cut it off first: x.detach().requires_grad_()"});
  }
  if (requires_grad && !is_floating(dtype())) {
    throw DTypeError({.op = "requires_grad_", .got = "i64", .want = "a floating dtype", .way_out = ""});
  }
  record().requires_grad = requires_grad;
  return *this;
}

Tensor Tensor::grad() const { return has_record() ? impl_->record->gradient.get() : Tensor(); }

void Tensor::set_grad(const Tensor& grad) const {
  if (grad.defined()) {
    require_same_shape(*this, grad, "set_grad");
    require_same_device({*this, grad}, "set_grad");
    if (!is_floating(grad.dtype())) {
      throw DTypeError({.op = "set_grad", .got = "i64", .want = "a floating dtype", .way_out = ""});
    }
  }
  record().gradient.set(grad);
}

void Tensor::zero_grad() const {
  const TensorImpl& self = impl("zero_grad");
  if (self.record != nullptr) self.record->gradient.zero();
}

std::shared_ptr<Node> Tensor::grad_fn() const { return has_record() ? impl_->record->grad_fn : nullptr; }

void Tensor::require_dtype(DType dtype, std::string_view op) const {
  if (this->dtype() == dtype) return;
  throw DTypeError({.op = std::string(op),
                    .got = cat("a tensor of ", name(this->dtype())),
                    .want = std::string(name(dtype)),
                    .way_out = cat("Convert first: to(x, DType::", name(dtype), ")")});
}

void Tensor::require_cpu(std::string_view op) const {
  if (device().is_cpu()) return;
  throw DeviceError({.op = std::string(op),
                     .got = cat("a tensor on ", device().str()),
                     .want = "a tensor on the CPU",
                     .way_out = "Copy it first: to(x, kCPU), or to_vector()"});
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  if (device().is_cpu()) count_host_sync();  // from a GPU copy_bytes counts it
  const std::size_t count = static_cast<std::size_t>(numel());
  return visit(dtype(), [&]<class E>(TypeTag<E>) {
    std::vector<E> elements(count);
    copy_bytes(elements.data(), kCPU, raw(), device(), bytes());
    if constexpr (std::is_same_v<E, T>) {
      return elements;
    } else {
      std::vector<T> out(count);
      std::transform(elements.begin(), elements.end(), out.begin(), convert<T, E>);
      return out;
    }
  });
}

template <class T>
T Tensor::item() const {
  if (numel() != 1) {
    throw ShapeError({.op = "item",
                      .got = cat("a tensor of shape ", shape().str()),
                      .want = "exactly one element",
                      .way_out = "Use to_vector() for all of them"});
  }
  return to_vector<T>().front();
}

template std::vector<float> Tensor::to_vector<float>() const;
template std::vector<double> Tensor::to_vector<double>() const;
template std::vector<std::int64_t> Tensor::to_vector<std::int64_t>() const;
template std::vector<Float16> Tensor::to_vector<Float16>() const;
template std::vector<BFloat16> Tensor::to_vector<BFloat16>() const;
template float Tensor::item<float>() const;
template double Tensor::item<double>() const;
template std::int64_t Tensor::item<std::int64_t>() const;

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  constexpr std::int64_t kShown = 16;
  const Tensor head = alias({std::min(numel(), kShown)});
  std::string text = "tensor(";
  for (double value : head.to_vector<double>()) text += cat(value, ", ");
  if (numel() > kShown) text += "…, ";
  return cat(text, "shape ", shape().str(), ", ", name(dtype()), ", ", device().str(), ")");
}

Device require_same_device(std::initializer_list<Tensor> tensors, std::string_view op) {
  const Tensor* first = nullptr;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    if (tensor.device() != first->device()) {
      throw DeviceError({.op = std::string(op),
                         .got = cat("tensors on ", first->device().str(), " and ", tensor.device().str()),
                         .want = "all of them on one device",
                         .way_out = "Move one with to(x, device)"});
    }
  }
  return first == nullptr ? kCPU : first->device();
}

void require_same_shape(const Tensor& a, const Tensor& b, std::string_view op) {
  if (a.shape() == b.shape()) return;
  throw ShapeError({.op = std::string(op),
                    .got = cat(a.shape().str(), " and ", b.shape().str()),
                    .want = "equal shapes",
                    .way_out = ""});
}

}  // namespace fusegrad
