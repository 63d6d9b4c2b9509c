// Elementwise functions of one argument. Formulas and derivatives: kernels/math/unary.h.

#include <fusegrad/autograd/cast_policy.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/unary.h>

namespace fusegrad {
namespace {

using kernels::Unary;

Tensor apply(std::string_view name, Unary op, const Tensor& x) {
  Tensor y = empty_like(x);
  kernels::unary(op, x, y);
  if (!needs_record({x})) return y;
  return record(name, y, {x},
                [op, x = SavedTensor(name, x), y = SavedTensor(name, y)](const Tensor& grad_y, const NeededGrads&) {
                  const Tensor grad_x = empty_like(grad_y);
                  kernels::unary_backward(op, x.get(), y.get(), grad_y, grad_x);
                  return Grads{grad_x};
                });
}

// Functions whose 16-bit results lose too much: f32 under autocast.
Tensor apply_widened(std::string_view name, Unary op, const Tensor& x) {
  return apply(name, op, must_widen(x) ? to(x, DType::f32) : x);
}

}  // namespace

Tensor neg(const Tensor& x) { return apply("neg", Unary::neg, x); }
Tensor relu(const Tensor& x) { return apply("relu", Unary::relu, x); }
Tensor sigmoid(const Tensor& x) { return apply("sigmoid", Unary::sigmoid, x); }
Tensor tanh(const Tensor& x) { return apply("tanh", Unary::tanh, x); }
Tensor gelu(const Tensor& x) { return apply("gelu", Unary::gelu, x); }
Tensor exp(const Tensor& x) { return apply_widened("exp", Unary::exp, x); }
Tensor log(const Tensor& x) { return apply_widened("log", Unary::log, x); }
Tensor sqrt(const Tensor& x) { return apply("sqrt", Unary::sqrt, x); }
Tensor square(const Tensor& x) { return apply_widened("square", Unary::square, x); }
Tensor abs(const Tensor& x) { return apply("abs", Unary::abs, x); }
Tensor operator-(const Tensor& x) { return neg(x); }

}  // namespace fusegrad
