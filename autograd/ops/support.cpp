#include <fusegrad/autograd/ops/support.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/reduce.h>

namespace fusegrad::ops {

Tensor expand(const Tensor& x, const Shape& shape) {
  const Tensor one = Tensor::empty({}, x.dtype(), x.device());
  kernels::fill(one, 1.0);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  kernels::binary(kernels::Binary::mul, x, one, y);
  return y;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (shape.numel() == 1) {
    Tensor total = Tensor::empty(shape, x.dtype(), x.device());
    kernels::sum_all(x, 1.0, total);
    return total;
  }
  // From the outermost dimension inwards; runs of neighbouring summed dimensions go in one pass.
  const int lacking = x.dims() - shape.dims();
  const auto summed = [&](int dim) { return dim < lacking || (shape[dim - lacking] == 1 && x.size(dim) != 1); };
  Tensor result = x;
  std::int64_t outer = 1;
  for (int dim = 0; dim < x.dims();) {
    if (!summed(dim)) {
      outer *= x.size(dim++);
      continue;
    }
    std::int64_t reduced = 1;
    while (dim < x.dims() && summed(dim)) reduced *= x.size(dim++);
    std::int64_t inner = 1;
    for (int rest = dim; rest < x.dims(); ++rest) inner *= x.size(rest);
    const Tensor next = Tensor::empty({outer, inner}, x.dtype(), x.device());
    kernels::sum_dim(result, {.outer = outer, .reduced = reduced, .inner = inner}, 1.0, next);
    result = next;
  }
  return result.alias(shape);
}

}  // namespace fusegrad::ops
