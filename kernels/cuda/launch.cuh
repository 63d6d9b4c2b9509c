#pragma once
// The one way to launch a kernel: on the current stream of a device, with the launch checked.

#include <cstdint>

#include <cuda_runtime.h>

#include <fusegrad/runtime/cuda/check.h>
#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad::cuda {

/// The most blocks that CUDA takes in one launch.
inline constexpr std::int64_t kMostBlocks = 2147483647;

/// Launches `kernel(args...)` with one-dimensional blocks. Zero blocks are no launch. Throws `DeviceError` if there are
/// more than `kMostBlocks` of them, or if the launch fails.
template <class... Parameters, class... Args>
void launch(Device device, std::int64_t blocks, int threads, void (*kernel)(Parameters...), const Args&... args) {
  if (blocks == 0) return;
  if (blocks > kMostBlocks) {
    throw DeviceError(
        {.op = "launch", .got = cat(blocks, " blocks"), .want = cat("at most ", kMostBlocks), .way_out = ""});
  }
  const DeviceGuard guard(device.index);
  const auto stream = static_cast<cudaStream_t>(current_stream(device).handle());
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(args...);
  FUSEGRAD_CUDA_CHECK(cudaGetLastError());
}

/// The same for a kernel whose blocks wait for each other: all are resident at once, or the launch fails with
/// `DeviceError`. See cudaOccupancyMaxActiveBlocksPerMultiprocessor for how many can be.
template <class... Parameters, class... Args>
void launch_cooperative(Device device, std::int64_t blocks, int threads, void (*kernel)(Parameters...),
                        const Args&... args) {
  const DeviceGuard guard(device.index);
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(current_stream(device).handle());
  config.attrs = &cooperative;
  config.numAttrs = 1;
  FUSEGRAD_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args...));
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
