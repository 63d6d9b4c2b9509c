#pragma once
// Mean squared error and its gradient.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

namespace cpu {
void mse(const Tensor& x, const Tensor& target, double divisor, const Tensor& loss);
void mse_none(const Tensor& x, const Tensor& target, const Tensor& loss);
void mse_backward(const Tensor& x, const Tensor& target, double factor, const Tensor& grad_loss, const Tensor& grad);
}  // namespace cpu
namespace cuda {
void mse(const Tensor& x, const Tensor& target, double divisor, const Tensor& loss);
void mse_none(const Tensor& x, const Tensor& target, const Tensor& loss);
void mse_backward(const Tensor& x, const Tensor& target, double factor, const Tensor& grad_loss, const Tensor& grad);
}  // namespace cuda

/// loss = Σ (x − target)² / divisor, one element, summed in double in the order of math/reduction.h. `x` and `target`
/// are of equal size and of any floating dtypes; differences are taken in f32, or f64 where one of them is f64.
inline void mse(const Tensor& x, const Tensor& target, double divisor, const Tensor& loss) {
  if constexpr (kCudaBuilt) {
    if (x.device().is_cuda()) return cuda::mse(x, target, divisor, loss);
  }
  cpu::mse(x, target, divisor, loss);
}

/// loss = (x − target)², elementwise.
inline void mse_none(const Tensor& x, const Tensor& target, const Tensor& loss) {
  if constexpr (kCudaBuilt) {
    if (x.device().is_cuda()) return cuda::mse_none(x, target, loss);
  }
  cpu::mse_none(x, target, loss);
}

/// grad = factor · (x − target) · grad_loss, where `grad_loss` has one element or as many as `x`, in a math dtype. Give
/// 2/n as the factor for a mean, 2 for a sum, and the negative for the gradient of the target.
inline void mse_backward(const Tensor& x, const Tensor& target, double factor, const Tensor& grad_loss,
                         const Tensor& grad) {
  if constexpr (kCudaBuilt) {
    if (x.device().is_cuda()) return cuda::mse_backward(x, target, factor, grad_loss, grad);
  }
  cpu::mse_backward(x, target, factor, grad_loss, grad);
}

}  // namespace fusegrad::kernels
