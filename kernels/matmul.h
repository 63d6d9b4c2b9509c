#pragma once
// Matrix product. cuBLASLt computes it on a GPU; on the CPU oneDNN where it was found, else a plain blocked loop.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

/// Whether an operand is used as it is stored or transposed.
enum class Op : std::uint8_t { none, transpose };

/// out = a·b, with each operand transposed on request, plus `bias` on every row where it is defined.
/// `a` and `b` are matrices of one floating dtype; 16-bit ones multiply exactly and add in f32 (for some sizes cuBLASLt
/// rounds the sum to 16 bits before it adds the bias; otherwise there is one rounding, at the end). `out` is of the
/// same dtype, or f32 for 16-bit operands; `bias` has the dtype of `a` and as many elements as `out` has columns.
struct MatmulArgs {
  Tensor a;
  Tensor b;
  Op op_a = Op::none;
  Op op_b = Op::none;
  Tensor bias;
};

/// Rows, columns and inner length of a product.
struct MatmulSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};
inline MatmulSize matmul_size(const MatmulArgs& args) {
  const bool transposed_a = args.op_a == Op::transpose;
  return {.m = args.a.size(transposed_a ? 1 : 0),
          .n = args.b.size(args.op_b == Op::transpose ? 0 : 1),
          .k = args.a.size(transposed_a ? 0 : 1)};
}

namespace cpu {
void matmul(const MatmulArgs& args, const Tensor& out);
}  // namespace cpu
namespace cuda {
void matmul(const MatmulArgs& args, const Tensor& out);
}  // namespace cuda

inline void matmul(const MatmulArgs& args, const Tensor& out) {
  if (out.numel() == 0) return;
  if constexpr (kCudaBuilt) {
    if (out.device().is_cuda()) return cuda::matmul(args, out);
  }
  cpu::matmul(args, out);
}

}  // namespace fusegrad::kernels
