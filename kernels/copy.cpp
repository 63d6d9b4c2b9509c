#include <fusegrad/kernels/fill.h>

namespace fusegrad::kernels {

void copy(const Tensor& src, const Tensor& dst) {
  if (src.numel() == 0) return;
  if (src.device() != dst.device()) {
    Tensor converted = src;
    if (src.dtype() != dst.dtype()) {
      converted = Tensor::empty(src.shape(), dst.dtype(), src.device());
      copy(src, converted);
    }
    return copy_bytes(dst.raw(), dst.device(), converted.raw(), src.device(), dst.bytes());
  }
  if (src.dtype() == dst.dtype()) return copy_bytes(dst.raw(), dst.device(), src.raw(), src.device(), dst.bytes());
  if constexpr (kCudaBuilt) {
    if (dst.device().is_cuda()) return cuda::copy(src, dst);
  }
  cpu::copy(src, dst);
}

Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  copy(x, y);
  return y;
}

}  // namespace fusegrad::kernels
