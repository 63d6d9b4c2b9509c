#pragma once
// The scalar formulas of mixed precision: how a gradient is unscaled and clipped, and how the loss scale moves. Written
// once; the separate kernels and the fused optimizer call the same functions in the same order.

#include <cstdint>
#include <limits>

#include <fusegrad/kernels/math/ieee.h>
#include <fusegrad/runtime/dtype.h>

namespace fusegrad::math {

/// 1 / scale, taken in double and rounded to float.
FUSEGRAD_HD float inverse_scale(float scale) { return static_cast<float>(div(1.0, static_cast<double>(scale))); }

/// A gradient of storage type G times `factor`, as it is after having been stored: bf16 gradients are rounded to bf16,
/// because a separate pass over them would have stored bf16. f16 gradients stay in float: there is no separate pass
/// over them (`unscale_` refuses f16), and f16 could not hold an unscaled gradient anyway.
template <class G>
FUSEGRAD_HD MathType<G> scaled_gradient(MathType<G> g, MathType<G> factor) {
  const MathType<G> product = g * factor;
  if constexpr (std::is_same_v<G, BFloat16>) return static_cast<float>(BFloat16(product));
  return product;
}

/// g limited to ±limit; NaN stays.
template <class M>
FUSEGRAD_HD M clamped(M g, M limit) {
  return g > limit ? limit : (g < -limit ? -limit : g);
}

/// max_norm / (norm + 1e-6), at most 1. NaN stays.
FUSEGRAD_HD double clip_coefficient(double norm, double max_norm) {
  const double coefficient = div(max_norm, norm + 1e-6);
  return coefficient > 1.0 ? 1.0 : coefficient;
}

/// What is done to every gradient before the update. A missing piece is left out.
struct GradScalars {
  const float* inverse_scale = nullptr;
  const float* found_inf = nullptr;  ///< nonzero: the step is skipped
  const double* clip_coefficient = nullptr;
  double clip_value = 0;  ///< 0: no clipping by value
};

/// `GradScalars` with the device scalars read. A missing piece has the value that changes no bit of a number, so that
/// the loop over elements needs no branch.
struct GradValues {
  float inverse_scale = 1;
  double clip = 1;
  double limit = std::numeric_limits<double>::infinity();
};

FUSEGRAD_HD GradValues read_values(const GradScalars& scalars) {
  GradValues values;
  if (scalars.inverse_scale != nullptr) values.inverse_scale = *scalars.inverse_scale;
  if (scalars.clip_coefficient != nullptr) values.clip = *scalars.clip_coefficient;
  if (scalars.clip_value > 0) values.limit = scalars.clip_value;
  return values;
}

/// The same in the math type of the gradients.
template <class M>
struct GradFactors {
  M inverse_scale;
  M clip;
  M limit;
  FUSEGRAD_HD explicit GradFactors(const GradValues& values)
      : inverse_scale(static_cast<M>(values.inverse_scale)),
        clip(static_cast<M>(values.clip)),
        limit(static_cast<M>(values.limit)) {}
};

/// The gradient that the optimizer's formula sees: unscaled, clipped by norm, clipped by value.
template <class G>
FUSEGRAD_HD MathType<G> transformed_gradient(G raw, const GradFactors<MathType<G>>& f) {
  const MathType<G> g = scaled_gradient<G>(convert<MathType<G>>(raw), f.inverse_scale);
  const MathType<G> limited = clamped(scaled_gradient<G>(g, f.clip), f.limit);
  if constexpr (std::is_same_v<G, BFloat16>) return static_cast<float>(BFloat16(limited));
  return limited;
}

/// How the scale moves.
struct ScalerOptions {
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
};

/// The scaler's state.
struct ScalerState {
  float scale = 65536.0f;
  float inverse = 1.0f / 65536.0f;  ///< 1 / scale, kept beside it so that no pass over gradients divides
  std::int64_t growth_tracker = 0;  ///< good steps since the scale last moved
  std::int64_t skipped = 0;         ///< steps that met a non-finite gradient, ever
  std::int64_t skipped_in_a_row = 0;
};

/// The state after a step. Growth that would overflow is left out (as in PyTorch), and so is a back-off below the
/// smallest normal float: a scale of 0, or one whose inverse is infinite, would never recover.
FUSEGRAD_HD ScalerState updated(ScalerState s, bool found_inf, const ScalerOptions& options) {
  const auto move_to = [&s](double scale) {
    const float rounded = static_cast<float>(scale);
    if (is_finite(rounded) && rounded >= std::numeric_limits<float>::min()) {
      s.scale = rounded;
      s.inverse = inverse_scale(rounded);
    }
  };
  if (found_inf) {
    move_to(static_cast<double>(s.scale) * options.backoff_factor);
    s.growth_tracker = 0;
    ++s.skipped;
    ++s.skipped_in_a_row;
    return s;
  }
  s.skipped_in_a_row = 0;
  if (++s.growth_tracker == options.growth_interval) {
    move_to(static_cast<double>(s.scale) * options.growth_factor);
    s.growth_tracker = 0;
  }
  return s;
}

}  // namespace fusegrad::math
