#pragma once
// Initialisation of parameters. Written in place without a graph; numbers come from the device's default generator.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::nn::init {

/// Uniform in [from, to).
void uniform_(const Tensor& x, double from, double to);
/// Normal with this mean and standard deviation.
void normal_(const Tensor& x, double mean, double std);
void constant_(const Tensor& x, double value);

struct KaimingOptions {
  double negative_slope = 0;  ///< of the leaky ReLU that follows; √5 gives Linear's ±1/√fan_in
};

/// Uniform in ±√3·gain/√fan_in with gain = √(2 / (1 + slope²)) and fan_in = size(1) (He et al., 2015). Throws
/// `ShapeError` unless `weight` has at least two dimensions and a fan-in above 0.
void kaiming_uniform_(const Tensor& weight, const KaimingOptions& options = {});

}  // namespace fusegrad::nn::init
