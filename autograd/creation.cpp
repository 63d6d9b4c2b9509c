#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/random.h>

namespace fusegrad {
namespace {

Tensor finish(Tensor x, const TensorOptions& options) {
  if (options.requires_grad) x.requires_grad_();
  return x;
}

template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape, const TensorOptions& options) {
  if (static_cast<std::int64_t>(values.size()) != shape.numel()) {
    throw ShapeError({.op = "tensor",
                      .got = cat(values.size(), " values for shape ", shape.str()),
                      .want = cat(shape.numel(), " values"),
                      .way_out = ""});
  }
  Tensor host = Tensor::empty(shape, kDTypeOf<T>);
  std::copy(values.begin(), values.end(), host.data<T>());
  if (host.dtype() == options.dtype && options.device.is_cpu()) return finish(host, options);
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  kernels::copy(host, x);
  return finish(x, options);
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return finish(Tensor::empty(shape, options.dtype, options.device), options);
}

Tensor zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0.0, options); }

Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1.0, options); }

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  kernels::fill(x, value);
  return finish(x, options);
}

Tensor empty_like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }

Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), {.dtype = x.dtype(), .device = x.device()}); }

Tensor tensor(std::span<const double> values, const Shape& shape, const TensorOptions& options) {
  return from_values(values, shape, options);
}

Tensor tensor(std::span<const float> values, const Shape& shape, const TensorOptions& options) {
  return from_values(values, shape, options);
}

Tensor tensor(std::initializer_list<double> values, const Shape& shape, const TensorOptions& options) {
  return from_values(std::span<const double>(values.begin(), values.size()), shape, options);
}

Tensor tensor(std::initializer_list<double> values, const TensorOptions& options) {
  return tensor(values, {static_cast<std::int64_t>(values.size())}, options);
}

Tensor rand(const Shape& shape, const TensorOptions& options) {
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  uniform_(x);
  return finish(x, options);
}

Tensor randn(const Shape& shape, const TensorOptions& options) {
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  normal_(x);
  return finish(x, options);
}

Tensor rand(const Shape& shape, CpuGenerator& generator, const TensorOptions& options) {
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  kernels::uniform(x, 0, 1, generator);
  return finish(x, options);
}

Tensor rand(const Shape& shape, CudaGenerator& generator, const TensorOptions& options) {
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  kernels::uniform(x, 0, 1, generator);
  return finish(x, options);
}

Tensor randn(const Shape& shape, CpuGenerator& generator, const TensorOptions& options) {
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  kernels::normal(x, 0, 1, generator);
  return finish(x, options);
}

Tensor randn(const Shape& shape, CudaGenerator& generator, const TensorOptions& options) {
  Tensor x = Tensor::empty(shape, options.dtype, options.device);
  kernels::normal(x, 0, 1, generator);
  return finish(x, options);
}

}  // namespace fusegrad
