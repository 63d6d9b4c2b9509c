#pragma once
// Fill, and copy with conversion.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

namespace cpu {
void fill(const Tensor& y, double value);
void copy(const Tensor& src, const Tensor& dst);
}  // namespace cpu
namespace cuda {
void fill(const Tensor& y, double value);
void copy(const Tensor& src, const Tensor& dst);
}  // namespace cuda

/// Sets every element of `y`, of any dtype, to `value`.
inline void fill(const Tensor& y, double value) {
  if constexpr (kCudaBuilt) {
    if (y.device().is_cuda()) return cuda::fill(y, value);
  }
  cpu::fill(y, value);
}

/// Copies the elements of `src` to `dst` in order, converting the dtype and crossing devices where they differ. The two
/// hold equally many elements. Between devices, the conversion runs on the source's.
void copy(const Tensor& src, const Tensor& dst);

/// `x` in `dtype`: itself if it is so already, else a converted copy.
Tensor converted(const Tensor& x, DType dtype);

}  // namespace fusegrad::kernels
