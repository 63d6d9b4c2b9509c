#pragma once
// Adam over all parameters at once, and with it all that mixed precision does between backward and the next forward:
// is every gradient finite, what is their norm, unscale, clip, update, write the low-precision copies, move the scale.
//
// On a GPU that is two launches for any number of tensors: one that only reads the gradients, one that updates. Small
// models take one launch, with a barrier over all blocks between the two passes. On the CPU it is the same two passes.
// Bytes an f32 parameter: 4 to check; 28 to update (read p, g, m, v; write p, m, v); 2 for a 16-bit copy; 8 for
// AMSGrad.

#include <optional>

#include <fusegrad/kernels/adam_table.h>
#include <fusegrad/kernels/grad_scaler.h>

namespace fusegrad::kernels {

/// How many launches a GPU takes. `automatic` chooses by size; the others are for tests and measurements.
enum class AdamLaunch : std::uint8_t { automatic, one, two };

/// A step of every parameter in the table. Everything pointed to is on the table's device.
struct FusedAdamArgs {
  AdamTable& table;
  math::AdamClock* clocks;  ///< advanced, unless the step is skipped
  /// What is done to the gradients. Where `check` finds a scalar out, it is that one.
  math::GradScalars grad;
  /// What is found out about the gradients first.
  GradCheck check = {};
  /// The scale moves by what `check` found, after this step has taken the old one.
  std::optional<ScaleUpdate> scale_update = {};
  AdamLaunch launch = AdamLaunch::automatic;
};

namespace cpu {
void fused_adam(const FusedAdamArgs& args);
}  // namespace cpu
namespace cuda {
void fused_adam(const FusedAdamArgs& args);
}  // namespace cuda

/// Updates every listed parameter and its moments, in place. With a non-finite gradient (`grad.found_inf`) nothing
/// changes but what `check` and `scale_update` write.
inline void fused_adam(const FusedAdamArgs& args) {
  if constexpr (kCudaBuilt) {
    if (args.table.device().is_cuda()) return cuda::fused_adam(args);
  }
  cpu::fused_adam(args);
}

}  // namespace fusegrad::kernels
