// Sums and means.

#include <fusegrad/autograd/cast_policy.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/autograd/ops/support.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/reduce.h>

namespace fusegrad {
namespace {

using ops::expand;

Tensor scaled(const Tensor& x, double divisor) {
  if (divisor == 1.0) return x;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::binary_scalar(kernels::Binary::div, x, divisor, kernels::Side::right, y);
  return y;
}

Tensor reduce_all(std::string_view name, const Tensor& given, double divisor) {
  const Tensor x = must_widen(given) ? to(given, DType::f32) : given;
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  kernels::sum_all(x, divisor, y);
  return record(name, y, {x}, [divisor, shape = x.shape()](const Tensor& grad_y, const NeededGrads&) {
    return Grads{expand(scaled(grad_y, divisor), shape)};
  });
}

Tensor reduce_dim(std::string_view name, const Tensor& given, int dim, double divisor, const ReduceOptions& options) {
  const Tensor x = must_widen(given) ? to(given, DType::f32) : given;
  const Shape& shape = x.shape();
  const int at = shape.wrap(dim);
  const Shape before = shape.slice(0, at);
  const Shape after = shape.slice(at + 1, shape.dims());
  Shape kept = before.append(1);
  Shape dropped = before;
  for (std::int64_t size : after) {
    kept = kept.append(size);
    dropped = dropped.append(size);
  }
  Tensor y = Tensor::empty(options.keepdim ? kept : dropped, x.dtype(), x.device());
  if (y.numel() != 0) {
    kernels::sum_dim(x, {.outer = before.numel(), .reduced = shape[at], .inner = after.numel()}, divisor, y);
  }
  return record(name, y, {x}, [divisor, shape, kept](const Tensor& grad_y, const NeededGrads&) {
    return Grads{expand(scaled(grad_y.alias(kept), divisor), shape)};
  });
}

}  // namespace

Tensor sum(const Tensor& x) { return reduce_all("sum", x, 1.0); }

Tensor sum(const Tensor& x, int dim, const ReduceOptions& options) { return reduce_dim("sum", x, dim, 1.0, options); }

Tensor mean(const Tensor& x) { return reduce_all("mean", x, static_cast<double>(x.numel())); }

Tensor mean(const Tensor& x, int dim, const ReduceOptions& options) {
  return reduce_dim("mean", x, dim, static_cast<double>(x.size(dim)), options);
}

}  // namespace fusegrad
