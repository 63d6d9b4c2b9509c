// y = x·Wᵀ + b, the affine map of a Linear layer, as one operation: one product forward, two and a column sum back.

#include <fusegrad/autograd/cast_policy.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/matmul.h>
#include <fusegrad/kernels/reduce.h>

namespace fusegrad {
namespace {

using kernels::Op;

void require_fitting(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.dims() != 2 || x.dims() < 1 || x.size(-1) != weight.size(1)) {
    throw ShapeError({.op = "linear",
                      .got = cat("input ", x.shape().str(), " and weight ", weight.shape().str()),
                      .want = "input [..., in] and weight [out, in]",
                      .way_out = ""});
  }
  if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
    throw ShapeError({.op = "linear",
                      .got = cat("bias ", bias.shape().str(), " with weight ", weight.shape().str()),
                      .want = cat("bias [", weight.size(0), "]"),
                      .way_out = ""});
  }
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require_same_device({x, weight, bias}, "linear");
  require_fitting(x, weight, bias);
  const std::int64_t in = weight.size(1);
  const std::int64_t out = weight.size(0);
  std::int64_t count = 1;
  for (int d = 0; d + 1 < x.dims(); ++d) count *= x.size(d);

  const Tensor x_low = lowered(x).alias({count, in});
  const Tensor w_low = lowered(weight);
  const Tensor b_low = lowered(bias);
  w_low.require_dtype(x_low.dtype(), "linear (the weight)");
  if (b_low.defined()) b_low.require_dtype(x_low.dtype(), "linear (the bias)");

  const Tensor product = Tensor::empty({count, out}, x_low.dtype(), x.device());
  kernels::matmul({.a = x_low, .b = w_low, .op_a = Op::none, .op_b = Op::transpose, .bias = b_low}, product);
  const Tensor y = product.alias(x.shape().slice(0, x.dims() - 1).append(out));
  if (!needs_record({x, weight, bias.defined() ? bias : x})) return y;

  const auto backward = [count, in, out, shape = x.shape(), x_dtype = x.dtype(), w_dtype = weight.dtype(),
                         b_dtype = bias.defined() ? bias.dtype() : DType::f32, saved_x = SavedTensor("linear", x_low),
                         saved_w = SavedTensor("linear", w_low)](const Tensor& grad_y, const NeededGrads& needed) {
    // A product of 16-bit operands may leave in f32: gradients of values that were cast from f32 are not rounded.
    const auto result = [&](std::size_t input, const Shape& size, DType own) {
      const bool widens = is_half(grad_y.dtype()) && needed.dtype(input, own) == DType::f32;
      return needed.output(input, size, widens ? DType::f32 : grad_y.dtype(), grad_y.device());
    };
    const Tensor grad = grad_y.alias({count, out});
    Grads grads(3);
    if (needed[0]) {
      grads[0] = result(0, shape, x_dtype);
      kernels::matmul({.a = grad, .b = saved_w.get(), .op_a = Op::none, .op_b = Op::none, .bias = {}},
                      grads[0].alias({count, in}));
    }
    if (needed[1]) {
      grads[1] = result(1, {out, in}, w_dtype);
      kernels::matmul({.a = grad, .b = saved_x.get(), .op_a = Op::transpose, .op_b = Op::none, .bias = {}}, grads[1]);
    }
    if (needed[2]) {
      grads[2] = needed.output(2, {out}, needed.dtype(2, b_dtype), grad.device());
      if (out != 0) kernels::sum_dim(grad, {.outer = 1, .reduced = count, .inner = out}, 1.0, grads[2]);
    }
    return grads;
  };
  return record("linear", y, {x, weight, bias}, backward);
}

}  // namespace fusegrad
