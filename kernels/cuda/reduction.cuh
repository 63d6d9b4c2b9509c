#pragma once
// The summation order of <fusegrad/kernels/math/reduction.h> on a GPU. A block of 256 threads reduces a chunk: thread t
// holds lanes 4t to 4t+3; neighbouring lanes are combined inside the thread, then neighbouring threads inside a warp,
// then neighbouring warps. Bits equal those of <fusegrad/kernels/cpu/reduction.h>.

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/cuda/vector.cuh>
#include <fusegrad/kernels/math/reduction.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::cuda {

inline constexpr int kReduceThreads = 256;
inline constexpr int kLanesPerThread = math::kLanes / kReduceThreads;
static_assert(kLanesPerThread == 4);

/// Combines the lanes of a block: 4t to 4t+3 are `lanes` of thread t. All 256 threads call it; the result is thread
/// 0's. It ends with a barrier, so that it can be called again. Zero is neutral for `combine`.
template <class Combine>
__device__ double combine_lanes(const double (&lanes)[kLanesPerThread], const Combine& combine) {
  __shared__ double warps[kReduceThreads / 32];
  double value = combine(combine(lanes[0], lanes[1]), combine(lanes[2], lanes[3]));
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    value = combine(value, __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(distance)));
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int width = kReduceThreads / 32; width > 1; width /= 2) {
      for (int w = 0; w < width / 2; ++w) warps[w] = combine(warps[2 * w], warps[2 * w + 1]);
    }
    value = warps[0];
  }
  __syncthreads();
  return value;
}

/// Calls `visit(lane, element)` for the elements of this thread's lanes in [begin, end), in order. Many loads are under
/// way at once: `kRows` rows of lanes, as vectors where the address allows it.
template <int kRows = 8, class T, class Visit>
__device__ void for_each_lane(const T* elements, std::int64_t begin, std::int64_t end, const Visit& visit) {
  using Four = Vector<T, kLanesPerThread>;
  std::int64_t row = begin + static_cast<std::int64_t>(threadIdx.x) * kLanesPerThread;
  if (is_aligned<T, kLanesPerThread>(elements + begin)) {
    for (; row + (kRows - 1) * math::kLanes + kLanesPerThread <= end; row += kRows * math::kLanes) {
      Four four[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) four[r] = Four(elements + row + r * math::kLanes);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int j = 0; j < kLanesPerThread; ++j) visit(j, four[r][j]);
      }
    }
    for (; row + kLanesPerThread <= end; row += math::kLanes) {
      const Four four(elements + row);
#pragma unroll
      for (int j = 0; j < kLanesPerThread; ++j) visit(j, four[j]);
    }
  }
  for (; row < end; row += math::kLanes) {
#pragma unroll
    for (int j = 0; j < kLanesPerThread; ++j) {
      if (row + j < end) visit(j, elements[row + j]);
    }
  }
}

/// Combines `load(i)` (a double) over [begin, end) as one chunk. All 256 threads call it; the result is thread 0's.
template <class Load, class Combine>
__device__ double reduce_chunk(std::int64_t begin, std::int64_t end, const Load& load, const Combine& combine) {
  double lanes[kLanesPerThread] = {0, 0, 0, 0};
  const std::int64_t first = begin + static_cast<std::int64_t>(threadIdx.x) * kLanesPerThread;
  for (std::int64_t row = first; row < end; row += math::kLanes) {
#pragma unroll
    for (int j = 0; j < kLanesPerThread; ++j) {
      if (row + j < end) lanes[j] = combine(lanes[j], load(row + j));
    }
  }
  return combine_lanes(lanes, combine);
}

namespace detail {

template <class Load, class Combine>
__global__ void __launch_bounds__(kReduceThreads)
    partials(std::int64_t count, Load load, Combine combine, double* out) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * math::kChunk;
  const std::int64_t end = begin + math::kChunk < count ? begin + math::kChunk : count;
  const double value = reduce_chunk(begin, end, load, combine);
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}

template <class Load, class Combine, class Finish>
__global__ void __launch_bounds__(kReduceThreads) total(std::int64_t count, Load load, Combine combine, Finish finish) {
  const double value = reduce_chunk(0, count, load, combine);
  if (threadIdx.x == 0) finish(value);
}

struct ReadPartial {
  const double* values;
  __device__ double operator()(std::int64_t i) const { return values[i]; }
};

}  // namespace detail

struct Add {
  __device__ double operator()(double a, double b) const { return a + b; }
};

/// Combines `load(i)` over [0, count) and calls `finish(total)` on the device, once.
template <class Load, class Finish, class Combine = Add>
void reduce(Device device, std::int64_t count, const Load& load, const Finish& finish, const Combine& combine = {}) {
  const std::int64_t chunks = (count + math::kChunk - 1) / math::kChunk;
  if (chunks <= 1) {
    return launch(device, 1, kReduceThreads, detail::total<Load, Combine, Finish>, count, load, combine, finish);
  }
  const Tensor partial = Tensor::empty({chunks}, DType::f64, device);
  launch(device, chunks, kReduceThreads, detail::partials<Load, Combine>, count, load, combine, partial.data<double>());
  launch(device, 1, kReduceThreads, detail::total<detail::ReadPartial, Combine, Finish>, chunks,
         detail::ReadPartial{partial.data<double>()}, combine, finish);
}

}  // namespace fusegrad::cuda
