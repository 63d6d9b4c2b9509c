#pragma once
// The memory that rungs 1 to 8 work on, and who decides: on the lower rungs the host, which has to wait for the GPU to
// know whether to step; on the upper ones a thread of the GPU.

#include <fusegrad/bench/ladder/rung.h>
#include <fusegrad/kernels/check_workspace.h>
#include <fusegrad/kernels/tensor_list.h>

namespace fusegrad::ladder {

/// One parameter, as kernels see it.
struct Row {
  float* param;
  float* grad;
  float* exp_avg;
  float* exp_avg_sq;
  float* denominator;  ///< scratch of rung 1
  Float16* copy;
  std::int64_t numel;
  std::int64_t first_chunk;  ///< of all parameters' chunks
  bool operator==(const Row&) const = default;
};

/// All that a step is decided by.
struct Decision {
  math::ScalerState scaler;  ///< after the step
  math::AdamClock clock;     ///< after the step
  bool skip = false;
  float inverse_scale = 1;  ///< of this step
  float clip = 1;
  math::AdamCoefficients<float> coefficients;
};

/// The next decision, from the one before and from what was found in the gradients.
FUSEGRAD_HD Decision decided(const Decision& before, bool nonfinite, double norm) {
  constexpr math::AdamGroup adam = kAdam;  // device code has no access to the constants of a namespace
  constexpr math::ScalerOptions scaler = kScaler;
  Decision now = before;
  now.skip = nonfinite;
  now.inverse_scale = before.scaler.inverse;
  now.clip = static_cast<float>(math::clip_coefficient(norm, kMaxNorm));
  now.scaler = math::updated(before.scaler, nonfinite, scaler);
  if (!nonfinite) {
    now.clock = math::advanced(before.clock, adam);
    now.coefficients = math::rounded<float>(math::adam_coefficients(adam, now.clock));
  }
  return now;
}

/// Elements of a tile, the unit of the passes from rung 4 on: a vector of four for each of 256 threads.
inline constexpr std::int64_t kTile = 1024;

struct Problem {
  explicit Problem(std::vector<Tensor> parameters);

  std::vector<Tensor> param;
  std::vector<Tensor> grad;
  std::vector<Tensor> exp_avg;
  std::vector<Tensor> exp_avg_sq;
  std::vector<Tensor> denominator;
  std::vector<Tensor> copy;

  DeviceArray<Row> rows;
  DeviceArray<kernels::Piece> chunks;  ///< of math::kChunk elements
  DeviceArray<kernels::Piece> tiles;   ///< of kTile elements
  kernels::CheckWorkspace workspace;
  kernels::CheckScratch scratch;

  Decision host;     ///< rungs 1 to 4 decide here
  Tensor found_inf;  ///< f32; they read it back
  Tensor clip;       ///< f64
  std::unique_ptr<Storage> device_memory;
  bool on_device = false;

  std::int64_t launches = 0;

  /// Where rungs 5 to 8 decide.
  [[nodiscard]] Decision* device() {
    on_device = true;
    return static_cast<Decision*>(device_memory->data());
  }
};

/// The runner of a rung that is a function.
std::unique_ptr<Runner> make_runner(std::vector<Tensor> parameters, void (*phase)(Problem&));

// The rungs, each in a file of its own.
void kernel_per_operation(Problem& problem);
void fused_update(Problem& problem);
void table(Problem& problem);
void vectors(Problem& problem);
void device_decides(Problem& problem);
void clip_inside(Problem& problem);
void copy_inside(Problem& problem);
void one_launch(Problem& problem);
std::unique_ptr<Runner> make_library(std::vector<Tensor> parameters);

}  // namespace fusegrad::ladder
