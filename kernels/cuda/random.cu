// The numbers of the CUDA generator, drawn where it draws them in PyTorch. The formulas stand in math/distribution.h;
// here is only the loop. The launch is PyTorch's, since it is part of the result: 256 threads a block, so many blocks
// that each thread makes one element, but never more than the GPU holds at once; then threads go round again.

#include <fusegrad/kernels/random.h>
#include <fusegrad/runtime/cuda/check.h>
#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad::kernels::cuda {
namespace {

constexpr int kBlockThreads = 256;

template <class T, class Distribution>
__global__ void __launch_bounds__(kBlockThreads)
    philox_kernel(const math::PhiloxLaunch launch, const Distribution distribution, T* out) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  for (std::int64_t round = 0; round < launch.rounds; ++round) {
    math::philox_store(launch, distribution, thread, round, out);
  }
}

template <class T, class Distribution>
void philox_fill(const Tensor& y, const math::PhiloxLaunch& launch, const Distribution& distribution) {
  const fusegrad::cuda::DeviceGuard guard(y.device().index);
  const auto stream = static_cast<cudaStream_t>(current_stream(y.device()).handle());
  const unsigned blocks = static_cast<unsigned>(launch.threads / kBlockThreads);
  philox_kernel<<<blocks, kBlockThreads, 0, stream>>>(launch, distribution, y.data<T>());
  FUSEGRAD_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void philox_uniform(const Tensor& y, double from, double to, const math::PhiloxLaunch& launch) {
  visit_floating(y.dtype(), "uniform",
                 [&]<class T>(TypeTag<T>) { philox_fill<T>(y, launch, math::make_uniform<T>(from, to)); });
}

void philox_normal(const Tensor& y, double mean, double std, const math::PhiloxLaunch& launch) {
  visit_floating(y.dtype(), "normal",
                 [&]<class T>(TypeTag<T>) { philox_fill<T>(y, launch, math::make_normal<T>(mean, std)); });
}

}  // namespace fusegrad::kernels::cuda
