// Views, conversions and copies.

#include <algorithm>
#include <array>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/fill.h>

namespace fusegrad {
namespace {

[[noreturn]] void refuse_view(const Tensor& x, std::span<const std::int64_t> sizes) {
  std::string asked;
  for (std::int64_t size : sizes) asked += cat(asked.empty() ? "[" : ", ", size);
  throw ShapeError({.op = "view",
                    .got = cat(asked.empty() ? "[" : asked, "] for a tensor of shape ", x.shape().str()),
                    .want = cat("sizes whose product is ", x.numel(), ", at most one of them -1"),
                    .way_out = ""});
}

}  // namespace

Tensor view(const Tensor& x, std::span<const std::int64_t> sizes) {
  std::array<std::int64_t, Shape::kMaxDims> known{};
  if (sizes.size() > known.size()) refuse_view(x, sizes);
  std::copy(sizes.begin(), sizes.end(), known.begin());
  const std::span<std::int64_t> result(known.data(), sizes.size());
  const auto open = std::find(result.begin(), result.end(), -1);
  if (open != result.end()) {
    *open = 1;
    if (std::any_of(result.begin(), result.end(), [](std::int64_t size) { return size < 0; })) refuse_view(x, sizes);
    const std::int64_t rest = Shape(result).numel();
    if (rest == 0 || x.numel() % rest != 0) refuse_view(x, sizes);
    *open = x.numel() / rest;
  }
  if (std::any_of(result.begin(), result.end(), [](std::int64_t size) { return size < 0; })) refuse_view(x, sizes);
  const Shape shape(result);
  if (shape.numel() != x.numel()) refuse_view(x, sizes);
  return record("view", x.alias(shape), {x},
                [shape = x.shape()](const Tensor& grad_y, const NeededGrads&) { return Grads{grad_y.alias(shape)}; });
}

Tensor view(const Tensor& x, std::initializer_list<std::int64_t> sizes) {
  return view(x, std::span(sizes.begin(), sizes.size()));
}

Tensor rows(const Tensor& x, std::int64_t begin, std::int64_t end) {
  if (x.dims() == 0 || begin < 0 || end < begin || end > x.size(0)) {
    throw ShapeError({.op = "rows",
                      .got = cat("rows ", begin, " to ", end, " of ", x.shape().str()),
                      .want = "0 <= begin <= end <= size(0)",
                      .way_out = ""});
  }
  const Shape inner = x.shape().slice(1, x.dims());
  Shape shape{end - begin};
  for (std::int64_t size : inner) shape = shape.append(size);
  const std::int64_t first = begin * inner.numel();
  return record("rows", x.alias(shape, first), {x},
                [first, part = shape, whole = x.shape()](const Tensor& grad_y, const NeededGrads&) {
                  const Tensor grad_x = zeros(whole, {.dtype = grad_y.dtype(), .device = grad_y.device()});
                  kernels::copy(grad_y, grad_x.alias(part, first));
                  return Grads{grad_x};
                });
}

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = kernels::converted(x, dtype);
  if (!is_floating(dtype)) return y;
  return record("to", y, {x}, [dtype = x.dtype()](const Tensor& grad_y, const NeededGrads&) {
    return Grads{kernels::converted(grad_y, dtype)};
  });
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  const auto moved = [](const Tensor& from, Device target) {
    Tensor y = Tensor::empty(from.shape(), from.dtype(), target);
    kernels::copy(from, y);
    return y;
  };
  return record("to", moved(x, device), {x}, [moved, device = x.device()](const Tensor& grad_y, const NeededGrads&) {
    return Grads{moved(grad_y, device)};
  });
}

Tensor clone(const Tensor& x) {
  const Tensor y = empty_like(x);
  kernels::copy(x, y);
  return record("clone", y, {x}, [](const Tensor& grad_y, const NeededGrads&) { return Grads{grad_y}; });
}

}  // namespace fusegrad
