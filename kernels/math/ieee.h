#pragma once
// The operations that IEEE 754 rounds exactly, with the rounding written into the name on the device, so that no
// compiler flag can change it. Optimizer and scaler formulas use these and + − ×; that is why they give the same bits
// on every device.

#include <cmath>

#include <fusegrad/runtime/host_device.h>

namespace fusegrad::math {

/// a·b + c, rounded once.
FUSEGRAD_HD float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}
FUSEGRAD_HD double fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

/// √a, rounded once.
FUSEGRAD_HD float sqrt(float a) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(a);
#else
  return __builtin_sqrtf(a);
#endif
}
FUSEGRAD_HD double sqrt(double a) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(a);
#else
  return __builtin_sqrt(a);
#endif
}

/// a / b, rounded once.
FUSEGRAD_HD float div(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
FUSEGRAD_HD double div(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}

/// True for zeros, subnormal and normal numbers; false for infinities and NaN.
FUSEGRAD_HD bool is_finite(float a) { return a - a == 0.0f; }
FUSEGRAD_HD bool is_finite(double a) { return a - a == 0.0; }

}  // namespace fusegrad::math
