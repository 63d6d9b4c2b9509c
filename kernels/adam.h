#pragma once
// Adam with each step of the formula (math/adam.h) as a kernel of its own. All at once: fused_adam.h.

#include <fusegrad/kernels/math/adam.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

enum class AdamStep : std::uint8_t {
  negate,
  l2_decay,
  decoupled_decay,
  first_moment,
  second_moment,
  maximum,
  denominator,
  apply
};

/// Calls `body` with the functor (math/adam.h) of `step`. The one list of them.
template <class Body>
void visit_adam_step(AdamStep step, Body&& body) {
  switch (step) {
    case AdamStep::negate:
      return body(math::AdamNegate{});
    case AdamStep::l2_decay:
      return body(math::AdamL2Decay{});
    case AdamStep::decoupled_decay:
      return body(math::AdamDecoupledDecay{});
    case AdamStep::first_moment:
      return body(math::AdamFirstMoment{});
    case AdamStep::second_moment:
      return body(math::AdamSecondMoment{});
    case AdamStep::maximum:
      return body(math::AdamMaximum{});
    case AdamStep::denominator:
      return body(math::AdamDenominator{});
    case AdamStep::apply:
      return body(math::AdamApply{});
  }
}

/// out = step(a, b, c; x, y), elementwise. Tensors are f32 or f64, all alike and of equal size; `b` and `c` may be
/// undefined where the step does not use them. `out` may be `a`. x and y are rounded to the dtype.
struct AdamStepArgs {
  Tensor out;
  Tensor a;
  Tensor b;
  Tensor c;
  double x = 0;
  double y = 0;
};

namespace cpu {
void adam_step(AdamStep step, const AdamStepArgs& args);
}  // namespace cpu
namespace cuda {
void adam_step(AdamStep step, const AdamStepArgs& args);
}  // namespace cuda

inline void adam_step(AdamStep step, const AdamStepArgs& args) {
  if constexpr (kCudaBuilt) {
    if (args.out.device().is_cuda()) return cuda::adam_step(step, args);
  }
  cpu::adam_step(step, args);
}

}  // namespace fusegrad::kernels
