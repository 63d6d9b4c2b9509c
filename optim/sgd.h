#pragma once
// Stochastic gradient descent, with momentum (Sutskever et al., 2013; PyTorch's variant).

#include <vector>

#include <fusegrad/optim/optimizer.h>

namespace fusegrad::optim {

struct SGDOptions {
  double lr = 1e-3;         ///< 0 or more
  double momentum = 0;      ///< 0 or more
  double dampening = 0;     ///< 0 with nesterov
  double weight_decay = 0;  ///< 0 or more; enters the gradient
  bool nesterov = false;    ///< needs momentum > 0
  bool maximize = false;
};

/// g ← ∇ + λp (−∇ to maximize); b ← μb + (1 − dampening)g, the first time b ← g; g ← g + μb with Nesterov, else g ← b
/// if μ ≠ 0; p ← p − lr·g. Buffers are in f32 (f64 for f64 parameters).
class SGD : public Optimizer {
 public:
  /// Throws `ValueError` for options out of range, and as `Optimizer::add_group`.
  explicit SGD(const std::vector<Tensor>& params, const SGDOptions& options = {});
  [[nodiscard]] std::string_view name() const override { return "SGD"; }
  using Optimizer::step;
  void step() override;

  /// Tensors are named "state.<i>.momentum_buffer".
  [[nodiscard]] StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  SGDOptions options_;
  std::vector<Tensor> buffers_;
};

}  // namespace fusegrad::optim
