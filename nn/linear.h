#pragma once
// The affine layer.

#include <fusegrad/nn/module.h>

namespace fusegrad::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
  Device device = kCPU;
};

/// y = x·weightᵀ + bias for x of shape [..., in_features].
///
/// Parameters: `weight` [out_features, in_features] and `bias` [out_features], both uniform in ±1/√in_features, drawn
/// in this order from the device's default generator: the numbers that PyTorch's Linear gets from the same seed.
class Linear : public Module {
 public:
  /// Throws `ValueError` for a negative number of features.
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) override;

  [[nodiscard]] const Tensor& weight() const { return weight_; }
  /// Undefined without a bias.
  [[nodiscard]] const Tensor& bias() const { return bias_; }

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace fusegrad::nn
