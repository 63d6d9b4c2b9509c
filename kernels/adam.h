#pragma once
// Adam in two forms: each step as a kernel of its own, and all steps of all parameters in one launch. Formulas:
// math/adam.h.

#include <fusegrad/kernels/math/adam.h>
#include <fusegrad/kernels/math/grad_scaler.h>
#include <fusegrad/kernels/tensor_list.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

// One step at a time.
// --------------------------------------------------------------------------------------------------

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

// All at once.
// ------------------------------------------------------------------------------------------------------------

/// One parameter with its state, as kernels see it. Parameter and gradient dtypes: equal, or an f32 parameter with a
/// 16-bit gradient, or any parameter with an f32 gradient. Moments are f32, or f64 for an f64 parameter.
struct AdamTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* max_exp_avg_sq = nullptr;  ///< null without AMSGrad
  void* copy = nullptr;            ///< low-precision copy to write beside an f32 parameter, or null
  std::int64_t numel = 0;
  std::int32_t group = 0;
  std::int32_t clock = 0;  ///< index of its clock
  DType param_dtype = DType::f32;
  DType grad_dtype = DType::f32;
  DType copy_dtype = DType::f16;
  bool operator==(const AdamTensor&) const = default;
};

/// One launch's worth of parameters. Everything it points to is on one device.
struct FusedAdamArgs {
  Device device;
  const DeviceArray<AdamTensor>& tensors;
  const DeviceArray<Chunk>& chunks;
  const DeviceArray<math::AdamGroup>& groups;
  math::AdamClock* clocks;                       ///< advanced by the launch, unless the step is skipped
  math::AdamCoefficients<double>* coefficients;  ///< scratch, one row a tensor
  math::GradScalars grad;
};

/// True if `fused_adam` takes this combination.
bool fused_adam_takes(DType param, DType grad);

namespace cpu {
void adam_step(AdamStep step, const AdamStepArgs& args);
void fused_adam(const FusedAdamArgs& args);
}  // namespace cpu
namespace cuda {
void adam_step(AdamStep step, const AdamStepArgs& args);
void fused_adam(const FusedAdamArgs& args);
}  // namespace cuda

inline void adam_step(AdamStep step, const AdamStepArgs& args) {
  if constexpr (kCudaBuilt) {
    if (args.out.device().is_cuda()) return cuda::adam_step(step, args);
  }
  cpu::adam_step(step, args);
}

/// Updates every listed parameter and its moments, in place. With `grad.found_inf` nonzero nothing changes at all.
inline void fused_adam(const FusedAdamArgs& args) {
  if constexpr (kCudaBuilt) {
    if (args.device.is_cuda()) return cuda::fused_adam(args);
  }
  cpu::fused_adam(args);
}

}  // namespace fusegrad::kernels
