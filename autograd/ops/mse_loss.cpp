// Mean squared error.

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/mse.h>

namespace fusegrad {

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  require_same_device({x, target}, "mse_loss");
  if (x.shape() != target.shape()) {
    throw ShapeError({.op = "mse_loss",
                      .got = cat("input ", x.shape().str(), " and target ", target.shape().str()),
                      .want = "equal shapes",
                      .way_out = "If broadcasting is meant, say so: mean(square(input - target))"});
  }
  const bool averaged = reduction == Reduction::mean;
  const double divisor = averaged ? static_cast<double>(x.numel()) : 1.0;
  const DType dtype = math_dtype(promote(x.dtype(), target.dtype()));
  const Tensor loss = Tensor::empty(reduction == Reduction::none ? x.shape() : Shape{}, dtype, x.device());
  if (reduction == Reduction::none) {
    kernels::mse_none(x, target, loss);
  } else {
    kernels::mse(x, target, divisor, loss);
  }
  if (!needs_record({x, target})) return loss;
  return record("mse_loss", loss, {x, target},
                [factor = 2.0 / divisor, x = SavedTensor("mse_loss", x), target = SavedTensor("mse_loss", target)](
                    const Tensor& grad_loss, const NeededGrads& needed) {
                  Grads grads(2);
                  for (std::size_t i = 0; i < 2; ++i) {
                    if (!needed[i]) continue;
                    grads[i] = empty_like(i == 0 ? x.get() : target.get());
                    kernels::mse_backward(x.get(), target.get(), i == 0 ? factor : -factor, grad_loss, grads[i]);
                  }
                  return grads;
                });
}

}  // namespace fusegrad
