#include <algorithm>
#include <cmath>

#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/nn/init.h>

namespace fusegrad::nn::init {

void uniform_(const Tensor& x, double from, double to) {
  const NoGrad guard;
  fusegrad::uniform_(x, from, to);
}

void normal_(const Tensor& x, double mean, double std) {
  const NoGrad guard;
  fusegrad::normal_(x, mean, std);
}

void constant_(const Tensor& x, double value) {
  const NoGrad guard;
  fill_(x, value);
}

void kaiming_uniform_(const Tensor& weight, const KaimingOptions& options) {
  if (weight.dims() < 2 || weight.size(1) == 0) {
    throw ShapeError({.op = "kaiming_uniform_",
                      .got = weight.shape().str(),
                      .want = "at least two dimensions and a fan-in above 0",
                      .way_out = ""});
  }
  // In double and in this order, as PyTorch computes it: the bound's rounding shows in the last bit of the weights.
  const double gain = std::sqrt(2.0 / (1.0 + options.negative_slope * options.negative_slope));
  const std::int64_t fan_in = weight.numel() / std::max<std::int64_t>(1, weight.size(0));
  const double std = gain / std::sqrt(static_cast<double>(fan_in));
  const double bound = std::sqrt(3.0) * std;
  init::uniform_(weight, -bound, bound);
}

}  // namespace fusegrad::nn::init
