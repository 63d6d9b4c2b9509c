#pragma once
// What a rung of the ladder is: the whole optimizer phase of mixed precision, done in its own way. From gradients of a
// scaled loss to updated parameters, moments and f16 weight copies, with the gradients' norm limited, and the scale
// moved; or, where a gradient is inf or NaN, nothing but the scale moved.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <fusegrad/kernels/math/adam.h>
#include <fusegrad/kernels/math/grad_scaler.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::ladder {

// All rungs do the same work.
inline constexpr math::AdamGroup kAdam{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
inline constexpr math::ScalerOptions kScaler{};
inline constexpr double kMaxNorm = 1.0;

/// What a phase leaves behind, to be compared by bits.
struct Outcome {
  std::vector<Tensor> param;       ///< f32
  std::vector<Tensor> exp_avg;     ///< f32
  std::vector<Tensor> exp_avg_sq;  ///< f32
  std::vector<Tensor> copy;        ///< f16
  double scale = 0;
};

/// A rung at work on one set of parameters.
class Runner {
 public:
  virtual ~Runner() = default;
  /// The gradients of the next phase, one a parameter, f32.
  virtual void set_gradients(const std::vector<Tensor>& gradients) = 0;
  virtual void phase() = 0;
  /// Kernels that the last phase launched.
  [[nodiscard]] virtual std::int64_t launches() = 0;
  [[nodiscard]] virtual Outcome outcome() = 0;
};

struct Rung {
  int number;
  std::string_view name;
  int bytes;  ///< that a parameter costs: all that is read and written, each time it is
  /// Makes the rung's runner on these parameters (f32, on the GPU, not shared).
  std::function<std::unique_ptr<Runner>(std::vector<Tensor>)> make;
};

/// All rungs, from the bottom.
std::vector<Rung> all_rungs();

/// The same phase on the CPU, as the formulas of kernels/math are written, one element after the other.
std::unique_ptr<Runner> reference(std::vector<Tensor> parameters);

}  // namespace fusegrad::ladder
