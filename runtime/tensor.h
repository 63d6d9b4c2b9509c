#pragma once
// Tensor: reference-counted storage with a shape, and room for what training hangs on it.
//
// A Tensor is a handle, like PyTorch's: copies name the same tensor, and `const` protects the handle, not the elements.
// It is always row-major and contiguous. Arithmetic lives above, in <fusegrad/autograd/ops.h>.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fusegrad/runtime/device.h>
#include <fusegrad/runtime/dtype.h>
#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/shape.h>

namespace fusegrad {

class Tensor;
class Node;              // autograd/node.h
struct AutogradRecord;   // below
struct BackwardOptions;  // autograd/engine.h

/// What a Tensor handle points to.
struct TensorImpl {
  std::shared_ptr<Storage> storage;
  std::size_t byte_offset = 0;
  Shape shape;
  DType dtype = DType::f32;
  std::unique_ptr<AutogradRecord> record;

  TensorImpl();
  ~TensorImpl();
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;
};

class Tensor {
 public:
  /// An undefined tensor: no storage, no shape. Most functions throw `StateError` on it.
  Tensor() = default;

  /// Uninitialised elements. Throws `DeviceError` if the device is not there or is full.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = kCPU);

  [[nodiscard]] bool defined() const { return impl_ != nullptr; }
  [[nodiscard]] const Shape& shape() const { return impl("shape").shape; }
  [[nodiscard]] std::int64_t size(int dim) const { return shape()[dim]; }
  [[nodiscard]] int dims() const { return shape().dims(); }
  [[nodiscard]] std::int64_t numel() const { return shape().numel(); }
  [[nodiscard]] DType dtype() const { return impl("dtype").dtype; }
  [[nodiscard]] Device device() const { return impl("device").storage->device(); }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(numel()) * element_size(dtype()); }

  /// The first element. Null when there is none.
  [[nodiscard]] void* raw() const;
  /// The first element, typed. Throws `DTypeError` unless `T` is the tensor's element type.
  template <class T>
  [[nodiscard]] T* data() const {
    require_dtype(kDTypeOf<T>, "data");
    return static_cast<T*>(raw());
  }
  /// All elements of a CPU tensor. Throws `DeviceError` for another device, `DTypeError` for another type.
  template <class T>
  [[nodiscard]] std::span<T> span() const {
    require_cpu("span");
    return {data<T>(), static_cast<std::size_t>(numel())};
  }

  /// The element of a one-element tensor, converted to `T`. From a GPU it waits; counts as a host synchronisation.
  template <class T>
  [[nodiscard]] T item() const;
  /// All elements, converted to `T`. From a GPU it waits; counts as a host synchronisation.
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const;

  /// Grows with every in-place write. Views share it.
  [[nodiscard]] std::uint64_t version() const { return impl("version").storage->version(); }
  void bump_version() const { impl("bump_version").storage->bump_version(); }

  /// Another tensor over the same storage, without autograd: `shape` elements from `first_element` on.
  [[nodiscard]] Tensor alias(const Shape& shape, std::int64_t first_element = 0) const;
  /// The same elements without autograd. In-place writes show in both.
  [[nodiscard]] Tensor detach() const { return alias(shape()); }
  /// Puts other elements behind every handle of this tensor (shape, dtype and device become those of `source`), as
  /// `Module::to` does. The gradient is dropped if it no longer fits.
  void set_data(const Tensor& source) const;
  [[nodiscard]] bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  /// True if no other handle, view or saved tensor reaches these elements.
  [[nodiscard]] bool is_sole_owner() const { return impl_.use_count() == 1 && impl_->storage.use_count() == 1; }
  /// Identity, for use as a key.
  [[nodiscard]] const TensorImpl* id() const { return impl_.get(); }

  // What autograd keeps. ------------------------------------------------------------------------------------------
  /// True for a leaf that asked for gradients and for results computed from one.
  [[nodiscard]] bool requires_grad() const;
  /// Asks for gradients. Throws `DTypeError` for i64, `StateError` for the result of an operation.
  Tensor& requires_grad_(bool requires_grad = true);
  /// True unless the tensor is the result of a recorded operation.
  [[nodiscard]] bool is_leaf() const { return grad_fn() == nullptr; }
  /// The gradient accumulated so far; undefined if there is none.
  [[nodiscard]] Tensor grad() const;
  /// Sets or, with an undefined tensor, drops the gradient. Throws unless its shape and device are the tensor's.
  void set_grad(const Tensor& grad) const;
  /// Drops the gradient but keeps its memory for the next one, unless somebody else reaches that memory.
  void zero_grad() const;
  /// The operation this tensor came from, or null.
  [[nodiscard]] std::shared_ptr<Node> grad_fn() const;
  [[nodiscard]] AutogradRecord& record() const;
  [[nodiscard]] bool has_record() const { return defined() && impl_->record != nullptr; }
  /// Computes gradients of all leaves this tensor depends on; see <fusegrad/autograd/engine.h>.
  void backward(const Tensor& gradient = {}) const;
  void backward(const Tensor& gradient, const BackwardOptions& options) const;

  /// Elements and type, for people; waits for a GPU. Long tensors are shortened.
  [[nodiscard]] std::string str() const;

  void require_dtype(DType dtype, std::string_view op) const;
  void require_cpu(std::string_view op) const;

 private:
  [[nodiscard]] TensorImpl& impl(std::string_view op) const;
  std::shared_ptr<TensorImpl> impl_;
};

/// Grows whenever anywhere in the program a gradient is set, dropped or becomes present, `set_data` puts other elements
/// behind a tensor, or a weight copy is made, replaced or brought up to date. While it stands still, the gradients that
/// exist, and where they, their parameters and the weight copies lie, are the same as before. In-place writes and
/// additions do not move it (see `Tensor::version`).
std::uint64_t layout_generation();
void bump_layout_generation();

/// A low-precision copy of a weight. It is the weight's value while `version` is the weight's version.
class WeightCopy {
 public:
  WeightCopy() = default;
  WeightCopy(const WeightCopy&) = delete;
  WeightCopy& operator=(const WeightCopy&) = delete;

  [[nodiscard]] const Tensor& value() const { return value_; }
  /// Puts another copy in place, or none.
  void set(const Tensor& value, std::uint64_t value_version);

  std::uint64_t version = 0;

 private:
  Tensor value_;
};

/// The gradient of a leaf, and the memory in which the next one will lie: what an earlier gradient left there, or a
/// fixed place in a buffer that holds many gradients.
class GradientSlot {
 public:
  GradientSlot() = default;
  GradientSlot(const GradientSlot&) = delete;
  GradientSlot& operator=(const GradientSlot&) = delete;

  /// The gradient; undefined if there is none.
  [[nodiscard]] const Tensor& get() const { return grad_; }
  /// Sets or, with an undefined tensor, drops the gradient. Memory kept for it is given up; a fixed place stays.
  void set(Tensor grad);
  /// Drops the gradient and keeps its memory, unless somebody else reaches it.
  void zero();

  /// The memory for a first gradient of this shape and dtype; undefined if there is none that fits or a gradient
  /// exists already. Kept memory leaves the slot, so that it is handed out once.
  [[nodiscard]] Tensor take(const Shape& shape, DType dtype, Device device);
  /// True if `grad` was written to the fixed place.
  [[nodiscard]] bool is_in_place(const Tensor& grad) const;
  /// The fixed place; undefined if there is none.
  [[nodiscard]] const Tensor& place() const { return place_; }

  /// The dtype of the gradient of an `own` leaf: its own, unless another one was asked for.
  [[nodiscard]] DType dtype(DType own) const { return own == DType::f32 ? f32_dtype_.value_or(own) : own; }
  /// Arranges where gradients lie from now on: in `place` (undefined: in memory of their own), and those of an f32 leaf
  /// in `f32_dtype`. The gradient that exists stays as it is.
  void arrange(Tensor place, std::optional<DType> f32_dtype);
  /// Gives up kept memory and place.
  void release();

 private:
  Tensor grad_;
  Tensor kept_;
  Tensor place_;
  std::optional<DType> f32_dtype_;
};

/// What training hangs on a tensor.
struct AutogradRecord {
  bool requires_grad = false;
  GradientSlot gradient;
  std::shared_ptr<Node> grad_fn;
  WeightCopy copy;
};

/// Throws `DeviceError` in the name of `op` unless all defined `tensors` are on one device, which it returns.
Device require_same_device(std::initializer_list<Tensor> tensors, std::string_view op);
/// Throws `ShapeError` in the name of `op` unless the shapes are equal.
void require_same_shape(const Tensor& a, const Tensor& b, std::string_view op);

}  // namespace fusegrad
