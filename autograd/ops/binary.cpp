// Elementwise functions of two arguments, with broadcasting.

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/autograd/ops/support.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>

namespace fusegrad {
namespace {

using kernels::Binary;
using kernels::converted;
using kernels::Side;
using ops::sum_to;

// Unrecorded op(a, b) on operands of one dtype.
Tensor compute(Binary op, const Tensor& a, const Tensor& b, std::string_view name) {
  Tensor out = Tensor::empty(broadcast(a.shape(), b.shape(), name), a.dtype(), a.device());
  kernels::binary(op, a, b, out);
  return out;
}

Tensor compute(Binary op, const Tensor& a, double scalar, Side side) {
  Tensor out = empty_like(a);
  kernels::binary_scalar(op, a, scalar, side, out);
  return out;
}

Tensor negated(const Tensor& x) { return compute(Binary::mul, x, -1.0, Side::right); }

Tensor apply(std::string_view name, Binary op, const Tensor& a, const Tensor& b) {
  require_same_device({a, b}, name);
  const DType dtype = promote(a.dtype(), b.dtype());
  const Tensor left = converted(a, dtype);
  const Tensor right = converted(b, dtype);
  Tensor y = compute(op, left, right, name);
  if (!needs_record({a, b})) return y;

  const bool saves = op == Binary::mul || op == Binary::div;
  const SavedTensor saved_a(name, saves ? left : Tensor());
  const SavedTensor saved_b(name, saves ? right : Tensor());
  return record(name, y, {a, b},
                [=, shape_a = a.shape(), shape_b = b.shape(), dtype_a = a.dtype(), dtype_b = b.dtype()](
                    const Tensor& grad_y, const NeededGrads& needed) {
                  Tensor grad_a;
                  Tensor grad_b;
                  switch (op) {
                    case Binary::add:
                      grad_a = grad_b = grad_y;
                      break;
                    case Binary::sub:
                      grad_a = grad_y;
                      if (needed[1]) grad_b = negated(grad_y);
                      break;
                    case Binary::mul:
                      if (needed[0]) grad_a = compute(Binary::mul, grad_y, saved_b.get(), name);
                      if (needed[1]) grad_b = compute(Binary::mul, grad_y, saved_a.get(), name);
                      break;
                    case Binary::div: {
                      const Tensor per_b = compute(Binary::div, grad_y, saved_b.get(), name);
                      grad_a = per_b;
                      if (needed[1]) {
                        const Tensor ratio = compute(Binary::div, saved_a.get(), saved_b.get(), name);
                        grad_b = negated(compute(Binary::mul, per_b, ratio, name));
                      }
                      break;
                    }
                  }
                  const auto finished = [&](std::size_t input, const Tensor& grad, const Shape& shape, DType own) {
                    if (!needed[input]) return Tensor();
                    if (grad.shape() == shape) return converted(grad, own);
                    const Tensor summed = needed.output(input, shape, grad.dtype(), grad.device());
                    sum_to(grad, summed);
                    return converted(summed, own);
                  };
                  return Grads{finished(0, grad_a, shape_a, dtype_a), finished(1, grad_b, shape_b, dtype_b)};
                });
}

Tensor apply(std::string_view name, Binary op, const Tensor& a, double scalar, Side side) {
  Tensor y = compute(op, a, scalar, side);
  if (!needs_record({a})) return y;
  const bool number_over_tensor = op == Binary::div && side == Side::left;
  const SavedTensor saved_a(name, number_over_tensor ? a : Tensor());
  const SavedTensor saved_y(name, number_over_tensor ? y : Tensor());
  return record(name, y, {a}, [=](const Tensor& grad_y, const NeededGrads&) {
    switch (op) {
      case Binary::add:
        return Grads{grad_y};
      case Binary::sub:
        return Grads{side == Side::right ? grad_y : negated(grad_y)};
      case Binary::mul:
        return Grads{compute(Binary::mul, grad_y, scalar, Side::right)};
      case Binary::div:
        break;
    }
    if (!number_over_tensor) return Grads{compute(Binary::div, grad_y, scalar, Side::right)};
    const Tensor slope = compute(Binary::div, saved_y.get(), saved_a.get(), name);  // d(s/a)/da = -(s/a)/a
    return Grads{negated(compute(Binary::mul, grad_y, slope, name))};
  });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return apply("add", Binary::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return apply("sub", Binary::sub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return apply("mul", Binary::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return apply("div", Binary::div, a, b); }

Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }

Tensor operator+(const Tensor& a, double b) { return apply("add", Binary::add, a, b, Side::right); }
Tensor operator-(const Tensor& a, double b) { return apply("sub", Binary::sub, a, b, Side::right); }
Tensor operator*(const Tensor& a, double b) { return apply("mul", Binary::mul, a, b, Side::right); }
Tensor operator/(const Tensor& a, double b) { return apply("div", Binary::div, a, b, Side::right); }
Tensor operator+(double a, const Tensor& b) { return apply("add", Binary::add, b, a, Side::left); }
Tensor operator-(double a, const Tensor& b) { return apply("sub", Binary::sub, b, a, Side::left); }
Tensor operator*(double a, const Tensor& b) { return apply("mul", Binary::mul, b, a, Side::left); }
Tensor operator/(double a, const Tensor& b) { return apply("div", Binary::div, b, a, Side::left); }

}  // namespace fusegrad
