#pragma once
// All differentiable operations. Each lives in autograd/ops/, forward and backward side by side.
//
// Operands are on one device (`DeviceError` otherwise). Two operands of different floating dtypes meet in the wider
// one; f16 with bf16 in f32. 16-bit arithmetic is carried out in f32 and rounded once. Under autocast (amp/autocast.h)
// `linear` and `matmul` run in low precision; losses, sums, means, `exp`, `log` and `square` in f32.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

// Elementwise, one argument. ---------------------------------------------------------------------------------------
Tensor neg(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
/// x·Φ(x), exact (not the tanh approximation).
Tensor gelu(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);

// Elementwise, two arguments; shapes broadcast as in NumPy. Numbers do not widen the tensor's dtype. ----------------
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
Tensor operator-(const Tensor& x);

// Reductions. Added in double, in a fixed order; an empty mean is NaN. ----------------------------------------------
struct ReduceOptions {
  bool keepdim = false;  ///< leave the reduced dimension in place with size 1
};
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, int dim, const ReduceOptions& options = {});
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, int dim, const ReduceOptions& options = {});

// Products. ----------------------------------------------------------------------------------------------------------
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
/// a·b for a of shape [..., k] (leading dimensions are flattened for the product and kept in the result) and b of shape
/// [k, n]. A transposed operand is given as [k, m] or [n, k] and must be a matrix.
/// Throws `ShapeError` for sizes that do not fit and `DTypeError` for operands of two dtypes.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});
/// x·weightᵀ + bias for x of shape [..., in], weight [out, in] and, where defined, bias [out]; result [..., out].
/// Under autocast the product runs in low precision, and the gradients of f32 weights still arrive in f32, unrounded.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// Losses. ------------------------------------------------------------------------------------------------------------
enum class Reduction : std::uint8_t { none, mean, sum };
/// (x − target)², averaged, summed or elementwise. f32 for 16-bit operands. Throws `ShapeError` unless the shapes are
/// equal (PyTorch broadcasts and warns; a forgotten dimension is nearly always a mistake).
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

// Shape, dtype, device. -----------------------------------------------------------------------------------------------
/// The same elements under another shape; one size may be -1, to be worked out. Throws `ShapeError` if they do not fit.
Tensor view(const Tensor& x, std::span<const std::int64_t> sizes);
Tensor view(const Tensor& x, std::initializer_list<std::int64_t> sizes);
/// Rows [begin, end) of dimension 0, sharing memory.
Tensor rows(const Tensor& x, std::int64_t begin, std::int64_t end);
/// Converted to `dtype`; `x` itself if it has it already.
Tensor to(const Tensor& x, DType dtype);
/// On `device`; `x` itself if it is there already.
Tensor to(const Tensor& x, Device device);
/// A copy with memory of its own.
Tensor clone(const Tensor& x);

}  // namespace fusegrad
