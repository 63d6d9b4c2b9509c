#pragma once
// The one way to launch a kernel: on the current stream of a device, with the launch checked.

#include <cstdint>

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <fusegrad/runtime/cuda/check.h>
#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad::cuda {

/// The most blocks that CUDA takes in one launch.
inline constexpr std::int64_t kMostBlocks = 2147483647;

namespace detail {

inline void require_block_count(std::int64_t blocks) {
  if (blocks <= kMostBlocks) return;
  throw DeviceError(
      {.op = "launch", .got = cat(blocks, " blocks"), .want = cat("at most ", kMostBlocks), .way_out = ""});
}

template <class... Parameters, class... Args>
void launch_with(cudaLaunchAttribute attribute, Device device, std::int64_t blocks, int threads,
                 void (*kernel)(Parameters...), const Args&... args) {
  if (blocks == 0) return;
  require_block_count(blocks);
  const DeviceGuard guard(device.index);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(current_stream(device).handle());
  config.attrs = &attribute;
  config.numAttrs = 1;
  FUSEGRAD_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args...));
}

}  // namespace detail

/// Launches `kernel(args...)` with one-dimensional blocks. Zero blocks are no launch. Throws `DeviceError` if there are
/// more than `kMostBlocks` of them, or if the launch fails.
template <class... Parameters, class... Args>
void launch(Device device, std::int64_t blocks, int threads, void (*kernel)(Parameters...), const Args&... args) {
  if (blocks == 0) return;
  detail::require_block_count(blocks);
  const DeviceGuard guard(device.index);
  const auto stream = static_cast<cudaStream_t>(current_stream(device).handle());
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(args...);
  FUSEGRAD_CUDA_CHECK(cudaGetLastError());
}

/// Lets the next launch of the stream begin, if it was made by `launch_early`, as soon as all blocks of this one have
/// come here. Does nothing below compute capability 9.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// In a kernel launched by `launch_early`: waits until the launch before has ended and its writes are visible.
__device__ inline void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Like `launch`, but the kernel may begin while the launch before it still runs; it calls `wait_for_launch_before`
/// ahead of the first access to anything that one writes. Hides the time that a launch takes.
template <class... Parameters, class... Args>
void launch_early(Device device, std::int64_t blocks, int threads, void (*kernel)(Parameters...), const Args&... args) {
  if (device_properties(device.index).compute_capability_major < 9) {
    return launch(device, blocks, threads, kernel, args...);
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  detail::launch_with(attribute, device, blocks, threads, kernel, args...);
}

/// How the blocks of a launch can wait for each other.
enum class GridBarrier : std::uint8_t {
  none,     ///< one block: it waits for its threads
  cluster,  ///< at most `kMostClusterBlocks`, on neighbouring multiprocessors; compute capability 9 and later
  grid      ///< as many as are resident at once
};
inline constexpr std::int64_t kMostClusterBlocks = 8;

/// Waits until all threads of all blocks are here, and shows them what the others wrote before.
__device__ inline void wait_for_all_blocks(GridBarrier barrier) {
  switch (barrier) {
    case GridBarrier::none:
      return __syncthreads();
    case GridBarrier::cluster:
#if __CUDA_ARCH__ >= 900
      cooperative_groups::this_cluster().sync();
#endif
      return;
    case GridBarrier::grid:
      return cooperative_groups::this_grid().sync();
  }
}

/// Launches a kernel whose blocks wait for each other in this way. With `grid`, throws `DeviceError` if they are not
/// all resident at once; see cudaOccupancyMaxActiveBlocksPerMultiprocessor.
template <class... Parameters, class... Args>
void launch_with_barrier(GridBarrier barrier, Device device, std::int64_t blocks, int threads,
                         void (*kernel)(Parameters...), const Args&... args) {
  if (barrier == GridBarrier::none) return launch(device, blocks, threads, kernel, args...);
  cudaLaunchAttribute attribute{};
  if (barrier == GridBarrier::cluster) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  } else {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  detail::launch_with(attribute, device, blocks, threads, kernel, args...);
}

namespace detail {

inline constexpr int kThreads = 256;

template <class Element>
__global__ void __launch_bounds__(kThreads) elementwise(std::int64_t count, Element element) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    element(i);
  }
}

}  // namespace detail

/// Runs `element(i)` for every i in [0, count) on the device; 64-bit indices, any count.
template <class Element>
void for_each_index(Device device, std::int64_t count, const Element& element) {
  if (count <= 0) return;
  constexpr std::int64_t kBlocksPerMultiprocessor = 32;
  const std::int64_t most = device_properties(device.index).multiprocessors * kBlocksPerMultiprocessor;
  const std::int64_t needed = (count + detail::kThreads - 1) / detail::kThreads;
  launch(device, needed < most ? needed : most, detail::kThreads, detail::elementwise<Element>, count, element);
}

}  // namespace fusegrad::cuda
