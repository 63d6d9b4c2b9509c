#pragma once
// Making tensors.

#include <initializer_list>
#include <span>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

class CpuGenerator;   // runtime/generator.h
class CudaGenerator;  // runtime/generator.h

/// What a new tensor is to be.
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = kCPU;
  bool requires_grad = false;
};

Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
/// Uninitialised, with the shape, dtype and device of `x`.
Tensor empty_like(const Tensor& x);
Tensor zeros_like(const Tensor& x);

/// `values` in row-major order, converted to the dtype. Throws `ShapeError` unless there are as many as `shape` holds.
Tensor tensor(std::span<const double> values, const Shape& shape, const TensorOptions& options = {});
Tensor tensor(std::span<const float> values, const Shape& shape, const TensorOptions& options = {});
Tensor tensor(std::initializer_list<double> values, const Shape& shape, const TensorOptions& options = {});
/// A vector of these values.
Tensor tensor(std::initializer_list<double> values, const TensorOptions& options = {});

/// Uniform in [0, 1), from the device's default generator (`manual_seed`); PyTorch's numbers from the same seed.
Tensor rand(const Shape& shape, const TensorOptions& options = {});
/// Standard normal, from the device's default generator.
Tensor randn(const Shape& shape, const TensorOptions& options = {});
/// The same from a generator of your own. A CPU tensor may be drawn from a CUDA generator: it gets the numbers that a
/// GPU would have drawn.
Tensor rand(const Shape& shape, CpuGenerator& generator, const TensorOptions& options = {});
Tensor rand(const Shape& shape, CudaGenerator& generator, const TensorOptions& options = {});
Tensor randn(const Shape& shape, CpuGenerator& generator, const TensorOptions& options = {});
Tensor randn(const Shape& shape, CudaGenerator& generator, const TensorOptions& options = {});

}  // namespace fusegrad
