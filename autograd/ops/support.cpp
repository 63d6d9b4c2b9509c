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

void sum_to(const Tensor& x, const Tensor& out) {
  const Shape& shape = out.shape();
  if (shape.numel() == 1) return kernels::sum_all(x, 1.0, out);
  // From the outermost dimension inwards; runs of neighbouring summed dimensions go in one pass, the last one to `out`.
  const int lacking = x.dims() - shape.dims();
  const auto summed = [&](int dim) { return dim < lacking || (shape[dim - lacking] == 1 && x.size(dim) != 1); };
  const auto next_summed = [&](int dim) {
    while (dim < x.dims() && !summed(dim)) ++dim;
    return dim;
  };
  Tensor from = x;
  std::int64_t outer = 1;
  int done = 0;
  for (int dim = next_summed(0); dim < x.dims(); dim = next_summed(done)) {
    while (done < dim) outer *= x.size(done++);
    std::int64_t reduced = 1;
    while (done < x.dims() && summed(done)) reduced *= x.size(done++);
    std::int64_t inner = 1;
    for (int rest = done; rest < x.dims(); ++rest) inner *= x.size(rest);
    const Shape size{outer, inner};
    const Tensor to = next_summed(done) == x.dims() ? out.alias(size) : Tensor::empty(size, x.dtype(), x.device());
    kernels::sum_dim(from, {.outer = outer, .reduced = reduced, .inner = inner}, 1.0, to);
    from = to;
  }
}

}  // namespace fusegrad::ops
