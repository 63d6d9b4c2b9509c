#pragma once
// Elementwise functions of two arguments.

#include <fusegrad/runtime/host_device.h>

namespace fusegrad::math {

struct Add {
  template <class T>
  static FUSEGRAD_HD T value(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static FUSEGRAD_HD T value(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static FUSEGRAD_HD T value(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static FUSEGRAD_HD T value(T a, T b) {
    return a / b;
  }
};

}  // namespace fusegrad::math
