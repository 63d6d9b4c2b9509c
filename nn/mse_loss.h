#pragma once
// Mean squared error as an object, for code that passes losses around. The function is `fusegrad::mse_loss`.

#include <fusegrad/autograd/ops.h>

namespace fusegrad::nn {

class MSELoss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  /// See `fusegrad::mse_loss`.
  Tensor operator()(const Tensor& x, const Tensor& target) const { return mse_loss(x, target, reduction_); }

 private:
  Reduction reduction_;
};

}  // namespace fusegrad::nn
