// Rung 1: a kernel an operation and a launch a parameter, as the formula reads. Every operation fetches its operands
// from memory and puts its result back, and the host waits to learn whether the step is taken.

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {
namespace {

using Coefficients = math::AdamCoefficients<float>;

// One operation of the formula in kernels/math/adam.h, result ← f(a, b), for one element.
struct FirstMoment {
  Coefficients c;
  template <int>
  __device__ void apply(const Row& row, std::int64_t i) const {
    row.exp_avg[i] = math::AdamFirstMoment::value(row.exp_avg[i], row.grad[i], 0.0f, c.one_minus_beta1, 0.0f);
  }
};

struct SecondMoment {
  Coefficients c;
  template <int>
  __device__ void apply(const Row& row, std::int64_t i) const {
    row.exp_avg_sq[i] = math::AdamSecondMoment::value(row.exp_avg_sq[i], row.grad[i], 0.0f, c.beta2, c.one_minus_beta2);
  }
};

struct Denominator {
  Coefficients c;
  template <int>
  __device__ void apply(const Row& row, std::int64_t i) const {
    row.denominator[i] = math::AdamDenominator::value(row.exp_avg_sq[i], 0.0f, 0.0f, c.sqrt_correction2, c.eps);
  }
};

struct Apply {
  Coefficients c;
  template <int>
  __device__ void apply(const Row& row, std::int64_t i) const {
    row.param[i] = math::AdamApply::value(row.param[i], row.exp_avg[i], row.denominator[i], c.step_size, 0.0f);
  }
};

}  // namespace

void kernel_per_operation(Problem& problem) {
  forget_found_inf(problem);
  over_each_row(problem, Unscale{problem.host.scaler.inverse, problem.found_inf.data<float>()});
  for (const Row& row : problem.rows.host()) {
    start(problem, (row.numel + math::kChunk - 1) / math::kChunk, norm_of_row, row, problem.scratch);
  }
  start(problem, 1, clip_coefficient_of, problem.scratch, problem.chunks.size(), problem.clip.data<double>());
  over_each_row(problem, Clip{problem.clip.data<double>()});
  if (!host_decides(problem)) return;
  const Coefficients& c = problem.host.coefficients;
  over_each_row(problem, FirstMoment{c});
  over_each_row(problem, SecondMoment{c});
  over_each_row(problem, Denominator{c});
  over_each_row(problem, Apply{c});
  over_each_row(problem, CopyWeights{});
}

}  // namespace fusegrad::ladder
