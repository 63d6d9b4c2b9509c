#pragma once
// Turns a failed CUDA call into a DeviceError that shows the call.

#include <cuda_runtime_api.h>

#include <fusegrad/runtime/error.h>

namespace fusegrad::cuda {

/// Throws `DeviceError` unless `status` is success. `call` is what was called.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw DeviceError({.op = call,
                     .got = cat(cudaGetErrorName(status), ", ", cudaGetErrorString(status)),
                     .want = "cudaSuccess",
                     .way_out = "An earlier kernel may be at fault; run under compute-sanitizer"});
}

}  // namespace fusegrad::cuda

#define FUSEGRAD_CUDA_CHECK(call) ::fusegrad::cuda::check((call), #call)
