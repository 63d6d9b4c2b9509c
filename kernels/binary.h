#pragma once
// Elementwise functions of two arguments, with broadcasting.

#include <array>

#include <fusegrad/kernels/math/binary.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

enum class Binary : std::uint8_t { add, sub, mul, div };

/// Calls `body` with the functor (math/binary.h) of `op`. The one list of them.
template <class Body>
void visit_binary(Binary op, Body&& body) {
  switch (op) {
    case Binary::add:
      return body(math::Add{});
    case Binary::sub:
      return body(math::Sub{});
    case Binary::mul:
      return body(math::Mul{});
    case Binary::div:
      return body(math::Div{});
  }
}

/// How the elements of the result find those of the operands: sizes from the innermost dimension outwards, neighbouring
/// dimensions merged where both operands allow it, and per operand a stride that is 0 where it broadcasts.
struct BroadcastPlan {
  int dims = 0;
  std::array<std::int64_t, Shape::kMaxDims> size{};
  std::array<std::int64_t, Shape::kMaxDims> stride_a{};
  std::array<std::int64_t, Shape::kMaxDims> stride_b{};
};
BroadcastPlan plan_broadcast(const Shape& a, const Shape& b, const Shape& out);

/// Which side the number stands on.
enum class Side : std::uint8_t { left, right };

namespace cpu {
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out, const BroadcastPlan& plan);
void binary_scalar(Binary op, const Tensor& a, double scalar, Side side, const Tensor& out);
}  // namespace cpu
namespace cuda {
void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out, const BroadcastPlan& plan);
void binary_scalar(Binary op, const Tensor& a, double scalar, Side side, const Tensor& out);
}  // namespace cuda

/// out = op(a, b). All of one floating dtype (16-bit ones compute in f32); `out` has the broadcast shape and may be `a`
/// or `b` itself where the shapes are equal.
inline void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) {
  if (out.numel() == 0) return;
  const BroadcastPlan plan = plan_broadcast(a.shape(), b.shape(), out.shape());
  if constexpr (kCudaBuilt) {
    if (out.device().is_cuda()) return cuda::binary(op, a, b, out, plan);
  }
  cpu::binary(op, a, b, out, plan);
}

/// out = op(a, scalar), or op(scalar, a) with the scalar on the left. One floating dtype; `out` may be `a` itself.
inline void binary_scalar(Binary op, const Tensor& a, double scalar, Side side, const Tensor& out) {
  if constexpr (kCudaBuilt) {
    if (out.device().is_cuda()) return cuda::binary_scalar(op, a, scalar, side, out);
  }
  cpu::binary_scalar(op, a, scalar, side, out);
}

}  // namespace fusegrad::kernels
