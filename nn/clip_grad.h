#pragma once
// Clipping of gradients by separate passes over them. The fused optimizers clip in their own pass with the same bits.

#include <vector>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::nn {

struct ClipNormOptions {
  double norm_type = 2;  ///< p of the p-norm, above 0; infinity for the largest absolute value
  bool error_if_nonfinite =
      false;  ///< throw `ValueError`, gradients untouched, if the norm is inf or NaN (waits for it)
};

/// Multiplies every gradient of `parameters` by min(1, max_norm / (norm + 1e-6)), where `norm` is the p-norm of all of
/// them as one vector. Always multiplies, also by 1, so that nothing waits for the GPU; an infinite norm turns finite
/// gradients into 0 and a NaN norm all into NaN. Parameters without a gradient are left out.
///
/// Returns the norm before clipping: one f64 element on the gradients' device (on the CPU if there are none). Summed in
/// double, it overflows only where no double could hold it.
/// Throws `ValueError` for a negative or NaN `max_norm` or a norm type that is not above 0.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, const ClipNormOptions& options = {});

/// Limits every element of every gradient to ±`clip_value`; NaN stays. Throws `ValueError` for a negative or NaN value.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace fusegrad::nn
