#pragma once
// Compares an operation's backward with difference quotients of its forward.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

struct GradcheckOptions {
  double step = 1e-6;       ///< distance of the two points of the central difference
  double tolerance = 1e-6;  ///< largest allowed |analytic − numeric| / max(1, |numeric|)
};

struct GradcheckResult {
  bool passed = true;
  double worst = 0;     ///< the largest deviation met, measured as the tolerance is
  std::string message;  ///< where it failed
};

/// Checks d function / d inputs for every input that requires a gradient: each element's gradient against the central
/// difference (f(x + h) − f(x − h)) / 2h, both weighted with a fixed non-uniform vector over the elements of the
/// result. Inputs must be f64 leaves (`DTypeError` otherwise): in f32 the quotient's own error would hide mistakes. The
/// error of the quotient is about h²·|f‴| + 1e-16·|f|/h, i.e. around 1e-10 for the default step.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& function,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace fusegrad
