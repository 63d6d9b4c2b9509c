#pragma once
// Uniform and normal random numbers: the same as PyTorch's `uniform_` and `normal_` (so `rand` and `randn`) after the
// same `manual_seed`, for both of its generators. The generator decides the numbers and the tensor's device only where
// they are computed.
//
// Of a CpuGenerator, uniforms, and f32 normals in tensors of 16 elements or more, equal PyTorch's on an x86-64
// processor with AVX2 bit for bit. Other normals go through the C library's log, sine and cosine, so their last bits
// are that library's (with glibc 2.36 they are equal too). Of a CudaGenerator, uniforms are equal bit for bit, and so
// are normals on a GPU, but for the last bits in f64; those that the CPU computes lie within the error of a GPU's fast
// sine and cosine, about 1e-6 · std.
//
// A launch recorded into a CUDA graph keeps its offset: each replay draws the same numbers again.

#include <fusegrad/kernels/math/distribution.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

namespace cpu {
void uniform(const Tensor& y, double from, double to, CpuGenerator& generator);
void normal(const Tensor& y, double mean, double std, CpuGenerator& generator);
void philox_uniform(const Tensor& y, double from, double to, const math::PhiloxLaunch& launch);
void philox_normal(const Tensor& y, double mean, double std, const math::PhiloxLaunch& launch);
}  // namespace cpu
namespace cuda {
void philox_uniform(const Tensor& y, double from, double to, const math::PhiloxLaunch& launch);
void philox_normal(const Tensor& y, double mean, double std, const math::PhiloxLaunch& launch);
}  // namespace cuda

/// Fills `y`, of any shape, floating dtype and device, with uniform numbers of [from, to), in row-major order; in a
/// 16-bit dtype, or where from and to are a few units in the last place apart, rounding may give `to` itself. `from`
/// and `to` are first rounded to the dtype of `y`. Throws `ValueError` if from > to, or if one of them or to − from is
/// not finite in that dtype; `DTypeError` for i64. An error leaves tensor and generator as they were.
void uniform(const Tensor& y, double from, double to, CpuGenerator& generator);
/// The numbers of the CUDA generator: never `to` itself, unless from = to.
void uniform(const Tensor& y, double from, double to, CudaGenerator& generator);

/// Fills `y`, of any shape, floating dtype and device, with normal numbers. Fewer than 16 elements are made one at a
/// time, and a second of a pair that is left over waits in the generator; from 16 elements on they are made in blocks
/// of 16. Throws `ValueError` if std is negative or NaN; `DTypeError` for i64. An error leaves tensor and generator as
/// they were.
void normal(const Tensor& y, double mean, double std, CpuGenerator& generator);
/// The numbers of the CUDA generator; of these nothing waits.
void normal(const Tensor& y, double mean, double std, CudaGenerator& generator);

}  // namespace fusegrad::kernels
