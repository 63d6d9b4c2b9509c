#pragma once
// Elementwise functions of one argument and their derivatives. `value(x)` is the function; `slope(x, y)` its derivative
// at x, given y = value(x). Both work in float or double.

#include <cmath>

#include <fusegrad/runtime/host_device.h>

namespace fusegrad::math {

struct Neg {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return -x;
  }
  template <class T>
  static FUSEGRAD_HD T slope(T, T) {
    return T(-1);
  }
};

/// max(x, 0); NaN stays. The slope at 0 is 0.
struct Relu {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return x < T(0) ? T(0) : x;
  }
  template <class T>
  static FUSEGRAD_HD T slope(T, T y) {
    return y > T(0) ? T(1) : T(0);
  }
};

/// 1 / (1 + e⁻ˣ).
struct Sigmoid {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return T(1) / (T(1) + std::exp(-x));
  }
  template <class T>
  static FUSEGRAD_HD T slope(T, T y) {
    return y * (T(1) - y);
  }
};

struct Tanh {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return std::tanh(x);
  }
  template <class T>
  static FUSEGRAD_HD T slope(T, T y) {
    return T(1) - y * y;
  }
};

/// x·Φ(x) with the exact normal distribution function (Hendrycks and Gimpel, 2016), PyTorch's default GELU.
struct Gelu {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return x * cdf(x);
  }
  template <class T>
  static FUSEGRAD_HD T slope(T x, T) {
    constexpr T kInvSqrt2Pi = T(0.39894228040143267794);
    return cdf(x) + x * kInvSqrt2Pi * std::exp(T(-0.5) * x * x);
  }

 private:
  template <class T>
  static FUSEGRAD_HD T cdf(T x) {
    constexpr T kInvSqrt2 = T(0.70710678118654752440);
    return T(0.5) * (T(1) + std::erf(x * kInvSqrt2));
  }
};

struct Exp {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return std::exp(x);
  }
  template <class T>
  static FUSEGRAD_HD T slope(T, T y) {
    return y;
  }
};

struct Log {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return std::log(x);
  }
  template <class T>
  static FUSEGRAD_HD T slope(T x, T) {
    return T(1) / x;
  }
};

struct Sqrt {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return std::sqrt(x);
  }
  template <class T>
  static FUSEGRAD_HD T slope(T, T y) {
    return T(0.5) / y;
  }
};

struct Square {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return x * x;
  }
  template <class T>
  static FUSEGRAD_HD T slope(T x, T) {
    return T(2) * x;
  }
};

/// |x|. The slope at 0 is 0; NaN stays NaN.
struct Abs {
  template <class T>
  static FUSEGRAD_HD T value(T x) {
    return std::fabs(x);
  }
  template <class T>
  static FUSEGRAD_HD T slope(T x, T) {
    return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
  }
};

}  // namespace fusegrad::math
