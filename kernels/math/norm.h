#pragma once
// What one gradient adds to a norm, how sums combine, and what the total becomes. Everything is in double: the square
// of a float is exact there, and neither 1e30·65536 overflows nor 1e-30 vanishes.

#include <cmath>

#include <fusegrad/kernels/math/ieee.h>

namespace fusegrad::math {

/// No norm is wanted: the pass only looks for inf and NaN.
struct NoNorm {
  FUSEGRAD_HD double accumulate(double sum, double) const { return sum; }
  FUSEGRAD_HD double combine(double a, double) const { return a; }
  FUSEGRAD_HD double total(double sum) const { return sum; }
};

struct L2Norm {
  FUSEGRAD_HD double accumulate(double sum, double g) const { return fma(g, g, sum); }
  FUSEGRAD_HD double combine(double a, double b) const { return a + b; }
  FUSEGRAD_HD double total(double sum) const { return sqrt(sum); }
};

struct L1Norm {
  FUSEGRAD_HD double accumulate(double sum, double g) const { return sum + (g < 0 ? -g : g); }
  FUSEGRAD_HD double combine(double a, double b) const { return a + b; }
  FUSEGRAD_HD double total(double sum) const { return sum; }
};

struct MaxNorm {
  FUSEGRAD_HD double accumulate(double largest, double g) const { return combine(largest, g < 0 ? -g : g); }
  FUSEGRAD_HD double combine(double a, double b) const { return a != a || a >= b ? a : b; }
  FUSEGRAD_HD double total(double largest) const { return largest; }
};

/// (Σ |g|ᵖ)^(1/p). Powers are the platform's, so the last bits may differ between devices.
struct PNorm {
  double p = 2;
  FUSEGRAD_HD double accumulate(double sum, double g) const { return sum + std::pow(g < 0 ? -g : g, p); }
  FUSEGRAD_HD double combine(double a, double b) const { return a + b; }
  FUSEGRAD_HD double total(double sum) const { return std::pow(sum, 1.0 / p); }
};

}  // namespace fusegrad::math
