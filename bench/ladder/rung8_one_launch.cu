// Rung 8: one cooperative launch. Its blocks look at the gradients, wait for each other, decide each for itself (all to
// the same effect) and update. Best for a small model, whose time is the time of launches.

#include <algorithm>

#include <cooperative_groups.h>

#include <fusegrad/bench/ladder/looks.cuh>

namespace fusegrad::ladder {
namespace {

__global__ void __launch_bounds__(kThreads, 4)
    whole_phase(const Row* rows, const kernels::Piece* chunks, std::int64_t chunk_count, const kernels::Piece* tiles,
                std::int64_t tile_count, Decision* decision, kernels::CheckScratch scratch) {
  __shared__ Decision mine;
  if (threadIdx.x == 0) mine = *decision;
  __syncthreads();
  for (std::int64_t c = blockIdx.x; c < chunk_count; c += gridDim.x) {
    look_at_chunk(rows[chunks[c].tensor], chunks[c].index, mine.scaler.inverse, scratch);
  }
  cooperative_groups::this_grid().sync();
  const kernels::cuda::Findings found = kernels::cuda::all_findings(scratch, chunk_count, math::L2Norm{});
  if (threadIdx.x == 0) {
    mine = decided(mine, found.nonfinite, found.norm);
    if (blockIdx.x == 0) *decision = mine;  // all blocks have read the old one: they are past the barrier
  }
  __syncthreads();
  for (std::int64_t t = blockIdx.x; t < tile_count; t += gridDim.x) {
    walk_tile(rows, tiles[t], DecidedUpdate<true, true>{&mine});
  }
}

std::int64_t resident_blocks() {
  static const std::int64_t blocks = [] {
    int per_multiprocessor = 0;
    FUSEGRAD_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, whole_phase, kThreads, 0));
    return per_multiprocessor * cuda::device_properties(kCUDA.index).multiprocessors;
  }();
  return blocks;
}

}  // namespace

void one_launch(Problem& problem) {
  ++problem.launches;
  cuda::launch_with_barrier(cuda::GridBarrier::grid, kCUDA, std::min(problem.tiles.size(), resident_blocks()), kThreads,
                            whole_phase, problem.rows.data(), problem.chunks.data(), problem.chunks.size(),
                            problem.tiles.data(), problem.tiles.size(), problem.device(), problem.scratch);
}

}  // namespace fusegrad::ladder
