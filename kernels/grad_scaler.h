#pragma once
// Gradients of mixed precision: check, unscale, norm, clip, and the move of the scale. Each works on a list of tensors
// of any sizes and floating dtypes in one launch. Formulas: math/grad_scaler.h; order of sums: math/reduction.h.

#include <cmath>

#include <fusegrad/kernels/math/grad_scaler.h>
#include <fusegrad/kernels/tensor_list.h>

namespace fusegrad::kernels {

/// What a read-only pass over gradients finds out. Any part may be left out (null, or kind none).
struct GradCheck {
  enum class Norm : std::uint8_t { none, l2, max, l1, p };
  const float* inverse_scale = nullptr;  ///< gradients are looked at times this
  float* found_inf = nullptr;            ///< becomes 1 if an unscaled gradient is inf or NaN, else 0
  Norm norm = Norm::none;
  double p = 2;                        ///< the exponent, for kind p
  double* norm_out = nullptr;          ///< becomes (Σ |g|ᵖ)^(1/p) over all gradients as one vector, in double
  double max_norm = 0;                 ///< what the clip coefficient is for
  double* clip_coefficient = nullptr;  ///< becomes min(1, max_norm / (norm + 1e-6))

  [[nodiscard]] bool wanted() const { return found_inf != nullptr || norm != Norm::none; }
};

/// The kind of the p-norm for `p` (infinity: the maximum).
inline GradCheck::Norm norm_kind(double p) {
  if (p == 2) return GradCheck::Norm::l2;
  if (p == 1) return GradCheck::Norm::l1;
  return std::isinf(p) ? GradCheck::Norm::max : GradCheck::Norm::p;
}

/// Where the scaler's state lives: one element each, on one device.
struct ScalerPointers {
  float* scale = nullptr;
  float* inverse_scale = nullptr;
  std::int64_t* growth_tracker = nullptr;
  std::int64_t* skipped = nullptr;
  std::int64_t* skipped_in_a_row = nullptr;
};

/// A move of the scale by one step.
struct ScaleUpdate {
  ScalerPointers state;
  math::ScalerOptions options;
};

namespace cpu {
void check_gradients(TensorList& grads, const GradCheck& check);
void unscale_gradients(TensorList& grads, const float* inverse_scale, float* found_inf);
void multiply_gradients(const TensorList& grads, const double* factor);
void clamp_gradients(const TensorList& grads, double limit);
void update_scale(const ScaleUpdate& update, const DeviceArray<const float*>& found_inf);
}  // namespace cpu
namespace cuda {
void check_gradients(TensorList& grads, const GradCheck& check);
void unscale_gradients(TensorList& grads, const float* inverse_scale, float* found_inf);
void multiply_gradients(const TensorList& grads, const double* factor);
void clamp_gradients(const TensorList& grads, double limit);
void update_scale(const ScaleUpdate& update, const DeviceArray<const float*>& found_inf);
}  // namespace cuda

/// Reads every gradient once; writes only what `check` asks for. A norm over no elements is 0; a NaN gradient gives a
/// NaN norm. In `p` kinds other than max, sums are taken in double in the fixed order, so the norm neither overflows
/// nor underflows where f32 gradients are concerned, and kinds l2, l1 and max have the same bits on every device.
inline void check_gradients(TensorList& grads, const GradCheck& check) {
  if constexpr (kCudaBuilt) {
    if (grads.device().is_cuda()) return cuda::check_gradients(grads, check);
  }
  cpu::check_gradients(grads, check);
}

/// g ← g · inverse_scale for every gradient, rounded to its dtype; `found_inf` becomes 1 if a product is
/// inf or NaN, else 0.
inline void unscale_gradients(TensorList& grads, const float* inverse_scale, float* found_inf) {
  if constexpr (kCudaBuilt) {
    if (grads.device().is_cuda()) return cuda::unscale_gradients(grads, inverse_scale, found_inf);
  }
  cpu::unscale_gradients(grads, inverse_scale, found_inf);
}

/// g ← g · factor for every gradient, rounded to its dtype.
inline void multiply_gradients(const TensorList& grads, const double* factor) {
  if constexpr (kCudaBuilt) {
    if (grads.device().is_cuda()) return cuda::multiply_gradients(grads, factor);
  }
  cpu::multiply_gradients(grads, factor);
}

/// g ← min(max(g, −limit), limit) for every gradient; NaN stays.
inline void clamp_gradients(const TensorList& grads, double limit) {
  if constexpr (kCudaBuilt) {
    if (grads.device().is_cuda()) return cuda::clamp_gradients(grads, limit);
  }
  cpu::clamp_gradients(grads, limit);
}

/// Moves the scale by one step (math::updated), by what was found in the gradients of one or more optimizers.
inline void update_scale(const ScaleUpdate& update, const DeviceArray<const float*>& found_inf) {
  if constexpr (kCudaBuilt) {
    if (found_inf.device().is_cuda()) return cuda::update_scale(update, found_inf);
  }
  cpu::update_scale(update, found_inf);
}

}  // namespace fusegrad::kernels
