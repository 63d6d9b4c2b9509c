#pragma once
// The reading passes: the norm of all gradients and whether one is inf or NaN. Every rung sums in the one order of
// <fusegrad/kernels/math/reduction.h>, or its bits would not be comparable.

#include <fusegrad/bench/ladder/walks.cuh>
#include <fusegrad/kernels/cuda/grad_check.cuh>

namespace fusegrad::ladder {

/// Looks at one chunk of one row and keeps the findings.
__device__ inline void look_at_chunk(const Row& row, std::int64_t index, float inverse_scale,
                                     const kernels::CheckScratch& scratch) {
  const std::int64_t begin = index * math::kChunk;
  const std::int64_t end = row.numel < begin + math::kChunk ? row.numel : begin + math::kChunk;
  kernels::cuda::check_chunk(row.grad, begin, end, inverse_scale, math::L2Norm{}, scratch, row.first_chunk + index);
}

// For the host's rungs: gradients are unscaled already. -----------------------------------------------------------

inline __global__ void __launch_bounds__(kThreads) norm_of_row(Row row, kernels::CheckScratch scratch) {
  look_at_chunk(row, blockIdx.x, 1.0f, scratch);
}

inline __global__ void __launch_bounds__(kThreads)
    norm_of_chunks(const Row* rows, const kernels::Piece* chunks, kernels::CheckScratch scratch) {
  const kernels::Piece chunk = chunks[blockIdx.x];
  look_at_chunk(rows[chunk.tensor], chunk.index, 1.0f, scratch);
}

inline __global__ void __launch_bounds__(kThreads)
    clip_coefficient_of(kernels::CheckScratch scratch, std::int64_t chunks, double* coefficient) {
  const kernels::cuda::Findings found = kernels::cuda::all_findings(scratch, chunks, math::L2Norm{});
  if (threadIdx.x == 0) *coefficient = math::clip_coefficient(found.norm, kMaxNorm);
}

/// Zero before `Unscale` may set it.
inline void forget_found_inf(Problem& problem) { zero_bytes(problem.found_inf.raw(), kCUDA, sizeof(float)); }

/// Waits for the GPU, reads what it found, and decides on the host. False: the step is skipped.
inline bool host_decides(Problem& problem) {
  const bool nonfinite = problem.found_inf.item<float>() != 0.0f;
  problem.host = decided(problem.host, nonfinite, 0);
  return !nonfinite;
}

// For the rungs on which a thread of the GPU decides. ----------------------------------------------------------------

inline __global__ void __launch_bounds__(kThreads)
    look(const Row* rows, const kernels::Piece* chunks, const Decision* decision, kernels::CheckScratch scratch) {
  const kernels::Piece chunk = chunks[blockIdx.x];
  look_at_chunk(rows[chunk.tensor], chunk.index, decision->scaler.inverse, scratch);
}

inline __global__ void __launch_bounds__(kThreads)
    decide(kernels::CheckScratch scratch, std::int64_t chunks, Decision* decision) {
  const kernels::cuda::Findings found = kernels::cuda::all_findings(scratch, chunks, math::L2Norm{});
  if (threadIdx.x == 0) *decision = decided(*decision, found.nonfinite, found.norm);
}

/// Two launches: look at all scaled gradients, then decide. Nothing goes back to the host.
inline void look_and_decide(Problem& problem) {
  start(problem, problem.chunks.size(), look, problem.rows.data(), problem.chunks.data(),
        static_cast<const Decision*>(problem.device()), problem.scratch);
  start(problem, 1, decide, problem.scratch, problem.chunks.size(), problem.device());
}

}  // namespace fusegrad::ladder
