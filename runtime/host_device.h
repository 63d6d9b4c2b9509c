#pragma once
// One spelling for functions that nvcc compiles for both sides and a plain compiler for one.

#if defined(__CUDACC__)
#define FUSEGRAD_HD __host__ __device__ __forceinline__
#else
#define FUSEGRAD_HD inline
#endif
