#pragma once
// Sums, over everything in the fixed order of math/reduction.h, or over one dimension.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

/// A tensor seen as [outer, reduced, inner]; the middle dimension is summed away.
struct ReduceShape {
  std::int64_t outer = 1;
  std::int64_t reduced = 1;
  std::int64_t inner = 1;
};

namespace cpu {
void sum_all(const Tensor& x, double divisor, const Tensor& y);
void sum_dim(const Tensor& x, const ReduceShape& shape, double divisor, const Tensor& y);
}  // namespace cpu
namespace cuda {
void sum_all(const Tensor& x, double divisor, const Tensor& y);
void sum_dim(const Tensor& x, const ReduceShape& shape, double divisor, const Tensor& y);
}  // namespace cuda

/// y = (Σ x) / divisor, one element. Adds and divides in double, whatever the dtypes of x and y (both floating), so a
/// mean over many f16 elements neither overflows nor stalls.
inline void sum_all(const Tensor& x, double divisor, const Tensor& y) {
  if constexpr (kCudaBuilt) {
    if (x.device().is_cuda()) return cuda::sum_all(x, divisor, y);
  }
  cpu::sum_all(x, divisor, y);
}

/// y[o, i] = (Σ_r x[o, r, i]) / divisor, added in double in a fixed order.
inline void sum_dim(const Tensor& x, const ReduceShape& shape, double divisor, const Tensor& y) {
  if constexpr (kCudaBuilt) {
    if (x.device().is_cuda()) return cuda::sum_dim(x, shape, divisor, y);
  }
  cpu::sum_dim(x, shape, divisor, y);
}

}  // namespace fusegrad::kernels
