#pragma once
// Three ways to walk over the elements of all parameters: a launch a parameter, one launch over a table of them, and
// one launch over small tiles with a vector for every thread.

#include <fusegrad/bench/ladder/passes.cuh>
#include <fusegrad/kernels/cuda/launch.cuh>

namespace fusegrad::ladder {

inline constexpr int kThreads = 256;

/// Every launch of a rung goes through here.
template <class... Parameters, class... Args>
void start(Problem& problem, std::int64_t blocks, void (*kernel)(Parameters...), const Args&... args) {
  if (blocks == 0) return;
  ++problem.launches;
  cuda::launch(kCUDA, blocks, kThreads, kernel, args...);
}

template <class Pass>
__global__ void __launch_bounds__(kThreads) walk_row(Row row, Pass pass) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < row.numel) pass.template apply<1>(row, i);
}

/// A launch for every parameter, an element for every thread.
template <class Pass>
void over_each_row(Problem& problem, const Pass& pass) {
  for (const Row& row : problem.rows.host()) {
    start(problem, (row.numel + kThreads - 1) / kThreads, walk_row<Pass>, row, pass);
  }
}

template <class Pass>
__global__ void __launch_bounds__(kThreads) walk_chunks(const Row* rows, const kernels::Piece* chunks, Pass pass) {
  const kernels::Piece chunk = chunks[blockIdx.x];
  const Row row = rows[chunk.tensor];
  const std::int64_t begin = chunk.index * math::kChunk;
  const std::int64_t end = row.numel < begin + math::kChunk ? row.numel : begin + math::kChunk;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) pass.template apply<1>(row, i);
}

/// One launch for all parameters: a block a chunk of 16384 elements, which its threads walk over one by one.
template <class Pass>
void over_chunks(Problem& problem, const Pass& pass) {
  start(problem, problem.chunks.size(), walk_chunks<Pass>, problem.rows.data(), problem.chunks.data(), pass);
}

/// Four elements of a tile for every thread. Rows begin at multiples of 256 bytes (they are tensors of their own).
template <class Pass>
__device__ void walk_tile(const Row* rows, const kernels::Piece& tile, const Pass& pass) {
  const Row& row = rows[tile.tensor];
  const std::int64_t i = tile.index * kTile + threadIdx.x * 4;
  if (i + 4 <= row.numel) {
    pass.template apply<4>(row, i);
  } else {
    for (std::int64_t k = i; k < row.numel; ++k) pass.template apply<1>(row, k);
  }
}

template <class Pass>
__global__ void __launch_bounds__(kThreads) walk_tiles(const Row* rows, const kernels::Piece* tiles, Pass pass) {
  walk_tile(rows, tiles[blockIdx.x], pass);
}

/// One launch for all parameters: a block a tile of 1024 elements, so that at any moment the GPU works on addresses
/// close to each other, with accesses of 16 bytes.
template <class Pass>
void over_tiles(Problem& problem, const Pass& pass) {
  start(problem, problem.tiles.size(), walk_tiles<Pass>, problem.rows.data(), problem.tiles.data(), pass);
}

}  // namespace fusegrad::ladder
