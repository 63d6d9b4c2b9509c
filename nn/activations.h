#pragma once
// Activations as modules, for use in a Sequential.

#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/module.h>

namespace fusegrad::nn {

/// max(x, 0).
class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

/// 1 / (1 + e⁻ˣ).
class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return fusegrad::tanh(x); }
};

/// x·Φ(x), exact.
class GELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return gelu(x); }
};

}  // namespace fusegrad::nn
