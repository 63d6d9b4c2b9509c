#pragma once
// From random words to uniform numbers, and from pairs of these to pairs of normal numbers (Box and Muller, 1958).
//
// On the host, float logarithms, sines and cosines are the polynomials of the Cephes library (S. Moshier) with every
// fma written out, not the C library's functions: they vectorise, give the same bits on every processor and with every
// C library, and PyTorch's CPU generator uses the same ones. On the device they are the functions that cuRAND uses.

#include <cmath>
#include <cstdint>

#include <fusegrad/kernels/math/ieee.h>
#include <fusegrad/kernels/math/philox.h>
#include <fusegrad/runtime/half.h>

namespace fusegrad::math {

inline constexpr float kTwoPiFloat = 6.2831855f;
inline constexpr double kPi = 3.14159265358979323846;

/// A sine and a cosine, or the two normals made from them.
template <class T>
struct SineCosine {
  T sine = 0;
  T cosine = 0;
};

/// ln x for a normal x > 0, to about one unit in the last place.
inline float polynomial_log(float x) {
  // x = m · 2^e with m in [√½, √2).
  const std::uint32_t bits = detail::float_bits(x);
  const float half_to_one = detail::bits_float((bits & 0x007fffffu) | 0x3f000000u);
  const bool small = half_to_one < 0.707106781186547524f;
  const float e = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126) - (small ? 1.0f : 0.0f);
  const float m = (half_to_one - 1.0f) + (small ? half_to_one : 0.0f);
  const float square = m * m;
  float p = 7.0376836292e-2f;
  p = fma(p, m, -1.1514610310e-1f);
  p = fma(p, m, 1.1676998740e-1f);
  p = fma(p, m, -1.2420140846e-1f);
  p = fma(p, m, 1.4249322787e-1f);
  p = fma(p, m, -1.6668057665e-1f);
  p = fma(p, m, 2.0000714765e-1f);
  p = fma(p, m, -2.4999993993e-1f);
  p = fma(p, m, 3.3333331174e-1f);
  // ln 2 is added in two parts, the small one first.
  p = fma(p * m, square, e * -2.12194440e-4f);
  p = fma(square, -0.5f, p);
  return fma(e, 0.693359375f, m + p);
}

/// sin x and cos x for 0 ≤ x ≤ 8192, to about one unit in the last place of 1.
inline SineCosine<float> polynomial_sine_cosine(float x) {
  // The octant, rounded up to an even one; what remains of x is in ±π/4.
  const std::int32_t octant = (static_cast<std::int32_t>(x * 1.27323954473516f) + 1) & ~1;
  const float turns = static_cast<float>(octant);
  float rest = fma(turns, -0.78515625f, x);
  rest = fma(turns, -2.4187564849853515625e-4f, rest);
  rest = fma(turns, -3.77489497744594108e-8f, rest);
  const float square = rest * rest;
  float cosine = fma(2.443315711809948e-5f, square, -1.388731625493765e-3f);
  cosine = fma(cosine, square, 4.166664568298827e-2f);
  cosine = fma(cosine * square, square, square * -0.5f) + 1.0f;
  float sine = fma(-1.9515295891e-4f, square, 8.3321608736e-3f);
  sine = fma(sine, square, -1.6666654611e-1f);
  sine = fma(sine * square, rest, rest);
  const bool swapped = (octant & 2) != 0;
  const float sine_sign = (octant & 4) != 0 ? -1.0f : 1.0f;
  const float cosine_sign = ((octant + 2) & 4) != 0 ? -1.0f : 1.0f;
  return {sine_sign * (swapped ? cosine : sine), cosine_sign * (swapped ? sine : cosine)};
}

// The CPU generator's. ------------------------------------------------------------------------------------------------

/// Two uniforms in [0, 1) to two normals; the first takes the cosine.
inline SineCosine<float> cpu_normal_pair(float u1, float u2) {
  const float radius = sqrt(-2.0f * polynomial_log(1.0f - u1));
  const SineCosine<float> angle = polynomial_sine_cosine(kTwoPiFloat * u2);
  return {radius * angle.sine, radius * angle.cosine};
}

/// The same in double, by the C library's functions.
inline SineCosine<double> cpu_normal_pair(double u1, double u2) {
  const double radius = sqrt(-2.0 * std::log(1.0 - u1));
  const double angle = 2.0 * kPi * u2;
  return {radius * std::sin(angle), radius * std::cos(angle)};
}

// The CUDA generator's, as in cuRAND. -------------------------------------------------------------------------------

/// One word to (0, 1].
FUSEGRAD_HD float unit_interval(std::uint32_t word) {
  constexpr float kStep = 2.3283064e-10f;  // 2^-32
  return fma(static_cast<float>(word), kStep, kStep / 2);
}

/// Two words to (0, 1]: 53 bits of them.
FUSEGRAD_HD double unit_interval(std::uint32_t low, std::uint32_t high) {
  constexpr double kStep = 1.1102230246251565e-16;  // 2^-53
  const std::uint64_t bits = std::uint64_t{low} ^ (std::uint64_t{high} << 21);
  return fma(static_cast<double>(bits), kStep, kStep / 2);
}

/// Two words to two normals; the first takes the sine.
FUSEGRAD_HD SineCosine<float> cuda_normal_pair(std::uint32_t a, std::uint32_t b) {
  constexpr float kStep = 2.3283064e-10f * kTwoPiFloat;
  const float u = unit_interval(a);
  const float angle = fma(static_cast<float>(b), kStep, kStep / 2);
#if defined(__CUDA_ARCH__)
  const float radius = sqrt(-2.0f * logf(u));
  SineCosine<float> pair;
  __sincosf(angle, &pair.sine, &pair.cosine);
#else
  const float radius = sqrt(-2.0f * polynomial_log(u));
  const SineCosine<float> pair = polynomial_sine_cosine(angle);
#endif
  return {pair.sine * radius, pair.cosine * radius};
}

/// Four words to two normals in double; the first takes the sine.
FUSEGRAD_HD SineCosine<double> cuda_normal_pair(const PhiloxWords& words) {
  constexpr double kStep = 1.1102230246251565e-16;  // 2^-53
  const double u = unit_interval(words.x, words.y);
  const std::uint64_t bits = std::uint64_t{words.z} ^ (std::uint64_t{words.w} << 21);
  const double half_turns = fma(static_cast<double>(bits), 2 * kStep, kStep);  // the angle divided by π
  const double radius = sqrt(-2.0 * std::log(u));
#if defined(__CUDA_ARCH__)
  SineCosine<double> pair;
  sincospi(half_turns, &pair.sine, &pair.cosine);
#else
  const SineCosine<double> pair{std::sin(half_turns * kPi), std::cos(half_turns * kPi)};
#endif
  return {pair.sine * radius, pair.cosine * radius};
}

}  // namespace fusegrad::math
