// Matrix product.

#include <fusegrad/autograd/cast_policy.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/matmul.h>

namespace fusegrad {
namespace {

using kernels::Op;

Op flipped(Op op) { return op == Op::none ? Op::transpose : Op::none; }

// Writes a·b to `out`, whose shape may have more dimensions than the product.
void product(const Tensor& a, Op op_a, const Tensor& b, Op op_b, const Tensor& out) {
  const kernels::MatmulArgs args{.a = a, .b = b, .op_a = op_a, .op_b = op_b, .bias = {}};
  const kernels::MatmulSize size = kernels::matmul_size(args);
  kernels::matmul(args, out.alias({size.m, size.n}));
}

// The gradient dtype of a 16-bit product's operand: its own, or f32 unrounded where the operand was cast from f32.
DType grad_dtype(DType operand, DType product) {
  return is_half(product) && operand == DType::f32 ? DType::f32 : product;
}

void require_matrix(const Tensor& x, std::string_view which) {
  if (x.dims() == 2) return;
  throw ShapeError({.op = "matmul",
                    .got = cat(which, " of shape ", x.shape().str()),
                    .want = "a matrix (two dimensions)",
                    .way_out = "Leading dimensions are allowed only in an untransposed first operand; use view()"});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  require_same_device({a, b}, "matmul");
  require_matrix(b, "the second operand");
  if (options.transpose_a || a.dims() < 2) require_matrix(a, "the first operand");
  const Op op_a = options.transpose_a ? Op::transpose : Op::none;
  const Op op_b = options.transpose_b ? Op::transpose : Op::none;
  const std::int64_t inner_a = a.size(options.transpose_a ? 0 : -1);
  const std::int64_t inner_b = b.size(options.transpose_b ? 1 : 0);
  if (inner_a != inner_b) {
    throw ShapeError({.op = "matmul",
                      .got = cat(a.shape().str(), options.transpose_a ? " transposed" : "", " times ", b.shape().str(),
                                 options.transpose_b ? " transposed" : ""),
                      .want = "equal inner sizes",
                      .way_out = "Transpose an operand with {.transpose_a = true} or {.transpose_b = true}"});
  }
  const Tensor left_all = lowered(a);
  const Tensor right = lowered(b);
  right.require_dtype(left_all.dtype(), "matmul");

  const std::int64_t columns = b.size(options.transpose_b ? 0 : 1);
  const Shape shape =
      options.transpose_a ? Shape{a.size(1), columns} : a.shape().slice(0, a.dims() - 1).append(columns);
  std::int64_t leading = 1;
  for (int d = 0; d + 1 < a.dims(); ++d) leading *= a.size(d);
  const Tensor left = options.transpose_a ? left_all : left_all.alias({leading, inner_a});
  const DType dtype = left.dtype();
  const Tensor y = Tensor::empty(shape, dtype, a.device());
  product(left, op_a, right, op_b, y);
  if (!needs_record({a, b})) return y;
  return record("matmul", y, {a, b},
                [op_a, op_b, shape_a = a.shape(), shape_b = b.shape(), leading, columns, dtype, dtype_a = a.dtype(),
                 dtype_b = b.dtype(), left = SavedTensor("matmul", left),
                 right = SavedTensor("matmul", right)](const Tensor& grad_y, const NeededGrads& needed) {
                  const Tensor grad = op_a == Op::transpose ? grad_y : grad_y.alias({leading, columns});
                  const auto output = [&](std::size_t input, const Shape& size, DType own) {
                    return needed.output(input, size, grad_dtype(needed.dtype(input, own), dtype), grad.device());
                  };
                  Tensor grad_a;
                  Tensor grad_b;
                  if (needed[0]) {
                    grad_a = output(0, shape_a, dtype_a);
                    if (op_a == Op::none) {
                      product(grad, Op::none, right.get(), flipped(op_b), grad_a);
                    } else {
                      product(right.get(), op_b, grad, Op::transpose, grad_a);
                    }
                  }
                  if (needed[1]) {
                    grad_b = output(1, shape_b, dtype_b);
                    if (op_b == Op::none) {
                      product(left.get(), flipped(op_a), grad, Op::none, grad_b);
                    } else {
                      product(grad, Op::transpose, left.get(), op_a, grad_b);
                    }
                  }
                  return Grads{grad_a, grad_b};
                });
}

}  // namespace fusegrad
