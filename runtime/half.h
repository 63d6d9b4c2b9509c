#pragma once
// The two 16-bit floating types. Conversions round to nearest, ties to even, keep subnormals and infinities, and turn
// every NaN into a quiet one. The host versions are branch-free integer code, so that loops over them vectorise; the
// device versions are the hardware's own instructions. They agree on every value; NaN payloads are not promised.

#include <bit>
#include <cstdint>

#include <fusegrad/runtime/host_device.h>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace fusegrad {

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits; largest finite value 65504.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  FUSEGRAD_HD explicit Float16(float value);
  FUSEGRAD_HD explicit Float16(double value);
  FUSEGRAD_HD explicit operator float() const;
  FUSEGRAD_HD explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }

  static FUSEGRAD_HD Float16 from_bits(std::uint16_t bits) {
    Float16 value;
    value.bits = bits;
    return value;
  }
};

/// The upper half of a float: 1 sign, 8 exponent and 7 fraction bits.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  FUSEGRAD_HD explicit BFloat16(float value);
  FUSEGRAD_HD explicit BFloat16(double value);
  FUSEGRAD_HD explicit operator float() const;
  FUSEGRAD_HD explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }

  static FUSEGRAD_HD BFloat16 from_bits(std::uint16_t bits) {
    BFloat16 value;
    value.bits = bits;
    return value;
  }
};

namespace detail {

FUSEGRAD_HD std::uint32_t float_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

FUSEGRAD_HD float bits_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// Rounding a double to float first and to 16 bits second can go wrong on a tie. Rounding to odd in the first step
// avoids it: an inexact float keeps its lowest bit set, so it never looks like a tie (Boldo and Melquiond, 2008).
FUSEGRAD_HD float double_to_float_round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  std::uint32_t bits = float_bits(nearest);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  if (back != value && finite) {
    const bool too_large = (back > value) == (value > 0);
    if (too_large) bits -= 1;  // towards zero
    bits |= 1;
  } else if (!finite && back == back && value - value == 0) {
    bits -= 1;  // a finite double that overflowed: the largest finite float, whose fraction is odd
  }
  return bits_float(bits);
}

// Conversion by exponent arithmetic: subnormal halves are rounded by adding a float whose last place is the half's.
FUSEGRAD_HD std::uint16_t float_to_float16_bits(float value) {
  const std::uint32_t all = float_bits(value);
  const std::uint32_t sign = (all >> 16) & 0x8000u;
  const std::uint32_t magnitude = all & 0x7fffffffu;
  constexpr std::uint32_t kNormal = 113u << 23;          // 2^-14, the smallest normal half
  constexpr std::uint32_t kOverflow = 0x477ff000u;       // 65520, the first float that rounds to infinity
  constexpr std::uint32_t kSubnormalMagic = 126u << 23;  // 0.5, whose last place is 2^-24
  const std::uint32_t subnormal = float_bits(bits_float(magnitude) + bits_float(kSubnormalMagic)) - kSubnormalMagic;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const std::uint32_t finite = magnitude < kNormal ? subnormal : normal;
  return static_cast<std::uint16_t>((magnitude >= kOverflow ? special : finite) | sign);
}

FUSEGRAD_HD float float16_bits_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t shifted = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  const std::uint32_t exponent = shifted & (0x1fu << 23);
  const std::uint32_t normal = shifted + (112u << 23);
  const std::uint32_t special = shifted + (224u << 23);
  const std::uint32_t subnormal = float_bits(bits_float(normal + (1u << 23)) - bits_float(113u << 23));
  const std::uint32_t finite = exponent == 0 ? subnormal : normal;
  const std::uint32_t quiet = shifted > (0x1fu << 23) ? (1u << 22) : 0u;
  return bits_float((exponent == (0x1fu << 23) ? special : finite) | quiet | sign);
}

FUSEGRAD_HD std::uint16_t float_to_bfloat16_bits(float value) {
  const std::uint32_t all = float_bits(value);
  const bool nan = (all & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = (all + 0x7fffu + ((all >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(nan ? ((all >> 16) & 0x8000u) | 0x7fc0u : rounded);
}

}  // namespace detail

FUSEGRAD_HD Float16::Float16(float value) {
#if defined(__CUDA_ARCH__)
  bits = __half_as_ushort(__float2half_rn(value));
#else
  bits = detail::float_to_float16_bits(value);
#endif
}

FUSEGRAD_HD Float16::Float16(double value) : Float16(detail::double_to_float_round_to_odd(value)) {}

FUSEGRAD_HD Float16::operator float() const {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(bits));
#else
  return detail::float16_bits_to_float(bits);
#endif
}

FUSEGRAD_HD BFloat16::BFloat16(float value) {
#if defined(__CUDA_ARCH__)
  bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  bits = detail::float_to_bfloat16_bits(value);
#endif
}

FUSEGRAD_HD BFloat16::BFloat16(double value) : BFloat16(detail::double_to_float_round_to_odd(value)) {}

FUSEGRAD_HD BFloat16::operator float() const { return detail::bits_float(static_cast<std::uint32_t>(bits) << 16); }

}  // namespace fusegrad
