#include <cmath>

#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/init.h>
#include <fusegrad/nn/linear.h>

namespace fusegrad::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options) {
  if (in_features < 0 || out_features < 0) {
    throw ValueError({.op = "Linear",
                      .got = cat(in_features, " in and ", out_features, " out features"),
                      .want = "0 or more of each",
                      .way_out = ""});
  }
  weight_ = register_parameter("weight", Tensor::empty({out_features, in_features}, options.dtype, options.device));
  if (options.bias) bias_ = register_parameter("bias", Tensor::empty({out_features}, options.dtype, options.device));
  if (in_features == 0) {
    if (options.bias) init::uniform_(bias_, 0.0, 0.0);
    return;
  }
  init::kaiming_uniform_(weight_, {.negative_slope = std::sqrt(5.0)});
  if (options.bias) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
    init::uniform_(bias_, -bound, bound);
  }
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight_, bias_); }

}  // namespace fusegrad::nn
