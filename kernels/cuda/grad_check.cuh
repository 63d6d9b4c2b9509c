#pragma once
// The pass that looks at gradients, as parts that kernels put together: a chunk's findings, and their sum over all
// chunks in the one order of <fusegrad/kernels/math/reduction.h>.

#include <fusegrad/kernels/cuda/reduction.cuh>
#include <fusegrad/kernels/grad_scaler.h>
#include <fusegrad/kernels/math/norm.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::combine_lanes;
using fusegrad::cuda::for_each_lane;
using fusegrad::cuda::kLanesPerThread;
using fusegrad::cuda::kReduceThreads;

/// Calls `body(elements, begin, end)` for one chunk of a tensor. `body` is generic in the element type.
template <class Body>
__device__ void with_elements(const void* data, DType dtype, std::int64_t numel, const Piece& chunk, const Body& body) {
  const std::int64_t begin = chunk.index * math::kChunk;
  const std::int64_t end = numel < begin + math::kChunk ? numel : begin + math::kChunk;
  switch (dtype) {
    case DType::f16:
      return body(static_cast<const Float16*>(data), begin, end);
    case DType::bf16:
      return body(static_cast<const BFloat16*>(data), begin, end);
    case DType::f32:
      return body(static_cast<const float*>(data), begin, end);
    case DType::f64:
      return body(static_cast<const double*>(data), begin, end);
    case DType::i64:
      return;
  }
}

/// What a pass over gradients found; equal in all threads of a block.
struct Findings {
  double norm = 0;
  bool nonfinite = false;
};

/// Looks at [begin, end) of `g`, times `inverse_scale`, and leaves the findings at `chunk` of the scratch memory.
template <class Norm, class G>
__device__ void check_chunk(const G* g, std::int64_t begin, std::int64_t end, float inverse_scale, const Norm& norm,
                            const CheckScratch& scratch, std::int64_t chunk) {
  using M = MathType<G>;
  const M factor = static_cast<M>(inverse_scale);
  double lanes[kLanesPerThread] = {0, 0, 0, 0};
  bool bad = false;
  for_each_lane(g, begin, end, [&](int lane, G element) {
    const M raw = convert<M>(element);
    bad = bad || !math::is_finite(raw * factor);
    lanes[lane] = norm.accumulate(lanes[lane], static_cast<double>(math::scaled_gradient<G>(raw, factor)));
  });
  double sum = 0;
  if constexpr (!std::is_same_v<Norm, math::NoNorm>) {
    sum = combine_lanes(lanes, [&](double a, double b) { return norm.combine(a, b); });
  }
  const int any = __syncthreads_or(bad ? 1 : 0);
  if (threadIdx.x == 0) scratch.findings[chunk] = {.norm = sum, .nonfinite = any};
}

/// The findings of all chunks together. All 256 threads of a block call it, and all get the result.
template <class Norm>
__device__ Findings all_findings(const CheckScratch& scratch, std::int64_t chunks, const Norm& norm) {
  __shared__ double total;
  int bad = 0;
  double lanes[kLanesPerThread] = {0, 0, 0, 0};
  constexpr int kRows = 2;  // as many registers as eight rows of gradients
  for_each_lane<kRows>(static_cast<const ChunkFindings*>(scratch.findings), 0, chunks,
                       [&](int lane, const ChunkFindings& found) {
                         bad |= static_cast<int>(found.nonfinite);
                         lanes[lane] = norm.combine(lanes[lane], found.norm);
                       });
  if constexpr (!std::is_same_v<Norm, math::NoNorm>) {
    const double sum = combine_lanes(lanes, [&](double a, double b) { return norm.combine(a, b); });
    if (threadIdx.x == 0) total = norm.total(sum);
  }
  const bool nonfinite = __syncthreads_or(bad) != 0;
  return {.norm = std::is_same_v<Norm, math::NoNorm> ? 0.0 : total, .nonfinite = nonfinite};
}

__device__ inline math::ScalerState read_state(const ScalerPointers& state) {
  return {*state.scale, *state.inverse_scale, *state.growth_tracker, *state.skipped, *state.skipped_in_a_row};
}

__device__ inline void write_state(const ScalerPointers& to, const math::ScalerState& state) {
  *to.scale = state.scale;
  *to.inverse_scale = state.inverse;
  *to.growth_tracker = state.growth_tracker;
  *to.skipped = state.skipped;
  *to.skipped_in_a_row = state.skipped_in_a_row;
}

/// Moves the scale. One thread of a launch calls it.
__device__ inline void move_scale(const ScaleUpdate& update, bool found_inf) {
  write_state(update.state, math::updated(read_state(update.state), found_inf, update.options));
}

/// A `ScaleUpdate` or none, in a form that travels as a kernel argument.
struct MaybeScaleUpdate {
  bool wanted = false;
  ScaleUpdate update;
};

/// Writes what was asked for. One thread of a launch calls it.
__device__ inline void publish(const Findings& findings, const GradCheck& check, const MaybeScaleUpdate& scale) {
  if (check.found_inf != nullptr) *check.found_inf = findings.nonfinite ? 1.0f : 0.0f;
  if (check.norm_out != nullptr) *check.norm_out = findings.norm;
  if (check.clip_coefficient != nullptr) {
    *check.clip_coefficient = math::clip_coefficient(findings.norm, check.max_norm);
  }
  if (scale.wanted) move_scale(scale.update, findings.nonfinite);
}

/// True in all threads of the block that comes here last of all blocks of the launch; it then sees what the others
/// wrote. The count of finished blocks wraps round to zero by itself.
__device__ inline bool is_last_block(std::uint32_t* finished) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

/// Calls `body` with the norm's functor. The one list of them.
template <class Body>
void visit_norm(const GradCheck& check, Body&& body) {
  switch (check.norm) {
    case GradCheck::Norm::none:
      return body(math::NoNorm{});
    case GradCheck::Norm::l2:
      return body(math::L2Norm{});
    case GradCheck::Norm::max:
      return body(math::MaxNorm{});
    case GradCheck::Norm::l1:
      return body(math::L1Norm{});
    case GradCheck::Norm::p:
      return body(math::PNorm{check.p});
  }
}

}  // namespace fusegrad::kernels::cuda
