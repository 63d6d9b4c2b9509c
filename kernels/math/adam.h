#pragma once
// Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019), written once.
//
// An update is a chain of small steps, each a functor below. The unfused optimizer runs each step as a kernel of its
// own over whole tensors; the fused one chains them in registers (`adam_element`). Every step uses only operations that
// IEEE 754 rounds exactly, with every fma written out, so both give the same bits, on every device.
//
// Everything here is in a math type T: float (also for 16-bit parameters) or double.

#include <cstdint>
#include <type_traits>

#include <fusegrad/kernels/math/ieee.h>

namespace fusegrad::math {

// The steps. Arguments are up to three elements and two scalars; unused ones are ignored. ----------------------------

/// g ← −g: ascend instead of descend.
struct AdamNegate {
  template <class T>
  static FUSEGRAD_HD T value(T g, T, T, T, T) {
    return -g;
  }
};

/// g ← g + λp, the L2 penalty's gradient.
struct AdamL2Decay {
  template <class T>
  static FUSEGRAD_HD T value(T g, T p, T, T lambda, T) {
    return fma(lambda, p, g);
  }
};

/// p ← p − lr·λ·p, decay apart from the gradient.
struct AdamDecoupledDecay {
  template <class T>
  static FUSEGRAD_HD T value(T p, T, T, T lr_lambda, T) {
    return fma(-lr_lambda, p, p);
  }
};

/// m ← m + (1 − β₁)(g − m).
struct AdamFirstMoment {
  template <class T>
  static FUSEGRAD_HD T value(T m, T g, T, T one_minus_beta1, T) {
    return fma(one_minus_beta1, g - m, m);
  }
};

/// v ← β₂v + (1 − β₂)g².
struct AdamSecondMoment {
  template <class T>
  static FUSEGRAD_HD T value(T v, T g, T, T beta2, T one_minus_beta2) {
    return fma(beta2, v, one_minus_beta2 * (g * g));
  }
};

/// v̂ ← max(v̂, v), for AMSGrad (Reddi, Kale and Kumar, 2018). NaN stays.
struct AdamMaximum {
  template <class T>
  static FUSEGRAD_HD T value(T v_max, T v, T, T, T) {
    return v_max >= v || v_max != v_max ? v_max : v;
  }
};

/// d = √v / √(1 − β₂ᵗ) + ε.
struct AdamDenominator {
  template <class T>
  static FUSEGRAD_HD T value(T v, T, T, T sqrt_correction2, T eps) {
    return div(sqrt(v), sqrt_correction2) + eps;
  }
};

/// p ← p − lr/(1 − β₁ᵗ) · m/d.
struct AdamApply {
  template <class T>
  static FUSEGRAD_HD T value(T p, T m, T denominator, T step_size, T) {
    return fma(-step_size, div(m, denominator), p);
  }
};

// Scalars of a step.
// ----------------------------------------------------------------------------------------------------

enum class WeightDecay : std::uint8_t { none, l2, decoupled };

/// The options of one parameter group, as kernels see them.
struct AdamGroup {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  WeightDecay decay = WeightDecay::none;
  bool maximize = false;
  bool amsgrad = false;
  bool operator==(const AdamGroup&) const = default;
};

/// How often one parameter has stepped, with β₁ᵗ and β₂ᵗ as running products: a power function would round differently
/// on every device.
struct AdamClock {
  std::int64_t step = 0;
  double beta1_power = 1;
  double beta2_power = 1;
};

/// The clock one step later.
FUSEGRAD_HD AdamClock advanced(const AdamClock& clock, const AdamGroup& group) {
  return {clock.step + 1, clock.beta1_power * group.beta1, clock.beta2_power * group.beta2};
}

/// What the elements of one parameter share in one step.
template <class T>
struct AdamCoefficients {
  T decay = 0;  ///< λ for L2, lr·λ for decoupled decay
  T one_minus_beta1 = 0;
  T beta2 = 0;
  T one_minus_beta2 = 0;
  T sqrt_correction2 = 0;  ///< √(1 − β₂ᵗ)
  T eps = 0;
  T step_size = 0;  ///< lr / (1 − β₁ᵗ)
};

/// Computed in double. `clock` has already advanced.
FUSEGRAD_HD AdamCoefficients<double> adam_coefficients(const AdamGroup& group, const AdamClock& clock) {
  const double decay = group.decay == WeightDecay::decoupled ? group.lr * group.weight_decay : group.weight_decay;
  return {decay,
          1.0 - group.beta1,
          group.beta2,
          1.0 - group.beta2,
          sqrt(1.0 - clock.beta2_power),
          group.eps,
          div(group.lr, 1.0 - clock.beta1_power)};
}

/// Each coefficient rounded once to the math type of the parameter.
template <class T>
FUSEGRAD_HD AdamCoefficients<T> rounded(const AdamCoefficients<double>& c) {
  return {static_cast<T>(c.decay),           static_cast<T>(c.one_minus_beta1),  static_cast<T>(c.beta2),
          static_cast<T>(c.one_minus_beta2), static_cast<T>(c.sqrt_correction2), static_cast<T>(c.eps),
          static_cast<T>(c.step_size)};
}

/// The step that a parameter is about to make, worked out before it is known whether it will be made: the clock after
/// it, and the coefficients in both math types.
struct AdamPending {
  AdamClock clock;
  AdamCoefficients<double> in_f64;
  AdamCoefficients<float> in_f32;

  template <class T>
  [[nodiscard]] FUSEGRAD_HD const AdamCoefficients<T>& coefficients() const {
    if constexpr (std::is_same_v<T, double>) {
      return in_f64;
    } else {
      return in_f32;
    }
  }
};

FUSEGRAD_HD AdamPending pending_step(const AdamClock& clock, const AdamGroup& group) {
  const AdamClock next = advanced(clock, group);
  const AdamCoefficients<double> coefficients = adam_coefficients(group, next);
  return {next, coefficients, rounded<float>(coefficients)};
}

/// One element, all steps: updates p, m, v and, with AMSGrad, v_max from the unscaled and clipped gradient g.
template <bool kAmsgrad, class T>
FUSEGRAD_HD void adam_element(T& p, T g, T& m, T& v, T& v_max, const AdamCoefficients<T>& c, WeightDecay decay,
                              bool maximize) {
  const T zero = 0;
  g = maximize ? AdamNegate::value(g, zero, zero, zero, zero) : g;
  g = decay == WeightDecay::l2 ? AdamL2Decay::value(g, p, zero, c.decay, zero) : g;
  p = decay == WeightDecay::decoupled ? AdamDecoupledDecay::value(p, zero, zero, c.decay, zero) : p;
  m = AdamFirstMoment::value(m, g, zero, c.one_minus_beta1, zero);
  v = AdamSecondMoment::value(v, g, zero, c.beta2, c.one_minus_beta2);
  if constexpr (kAmsgrad) v_max = AdamMaximum::value(v_max, v, zero, zero, zero);
  const T second = kAmsgrad ? v_max : v;
  const T denominator = AdamDenominator::value(second, zero, zero, c.sqrt_correction2, c.eps);
  p = AdamApply::value(p, m, denominator, c.step_size, zero);
}

}  // namespace fusegrad::math
