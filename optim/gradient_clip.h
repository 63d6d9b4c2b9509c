#pragma once
// What a trainer or a gradient scaler is asked to clip.

namespace fusegrad::optim {

/// Clipping of one step's gradients, after unscaling: first by norm, then by value. 0 leaves that one out.
struct GradientClip {
  double max_norm = 0;   ///< limit of the p-norm of all gradients as one vector
  double norm_type = 2;  ///< p, above 0; infinity for the largest absolute value
  double max_value = 0;  ///< limit of every element's absolute value

  [[nodiscard]] bool wanted() const { return max_norm > 0 || max_value > 0; }
};

}  // namespace fusegrad::optim
