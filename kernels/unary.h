#pragma once
// Elementwise functions of one argument.

#include <string_view>
#include <utility>

#include <fusegrad/kernels/math/unary.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

enum class Unary : std::uint8_t { neg, relu, sigmoid, tanh, gelu, exp, log, sqrt, square, abs };

/// Calls `body` with the functor (math/unary.h) of `op`. The one list of them.
template <class Body>
void visit_unary(Unary op, Body&& body) {
  switch (op) {
    case Unary::neg:
      return body(math::Neg{});
    case Unary::relu:
      return body(math::Relu{});
    case Unary::sigmoid:
      return body(math::Sigmoid{});
    case Unary::tanh:
      return body(math::Tanh{});
    case Unary::gelu:
      return body(math::Gelu{});
    case Unary::exp:
      return body(math::Exp{});
    case Unary::log:
      return body(math::Log{});
    case Unary::sqrt:
      return body(math::Sqrt{});
    case Unary::square:
      return body(math::Square{});
    case Unary::abs:
      return body(math::Abs{});
  }
}

namespace cpu {
void unary(Unary op, const Tensor& x, const Tensor& y);
void unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x);
}  // namespace cpu
namespace cuda {
void unary(Unary op, const Tensor& x, const Tensor& y);
void unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x);
}  // namespace cuda

/// y = op(x), elementwise; x and y have one floating dtype, 16-bit ones compute in f32.
inline void unary(Unary op, const Tensor& x, const Tensor& y) {
  if constexpr (kCudaBuilt) {
    if (x.device().is_cuda()) return cuda::unary(op, x, y);
  }
  cpu::unary(op, x, y);
}

/// grad_x = grad_y · op'(x), given y = op(x). All of one floating dtype.
inline void unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x) {
  if constexpr (kCudaBuilt) {
    if (x.device().is_cuda()) return cuda::unary_backward(op, x, y, grad_y, grad_x);
  }
  cpu::unary_backward(op, x, y, grad_y, grad_x);
}

}  // namespace fusegrad::kernels
