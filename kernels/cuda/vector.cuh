#pragma once
// A few neighbouring elements, moved between memory and registers in one access where their number allows it.

#include <cstdint>

#include <fusegrad/runtime/dtype.h>

namespace fusegrad::cuda {

/// True if `memory` can be read as vectors of `kCount` elements of T. Null can.
template <class T, int kCount>
__device__ bool is_aligned(const void* memory) {
  constexpr std::uintptr_t kBytes = sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16;
  return reinterpret_cast<std::uintptr_t>(memory) % kBytes == 0;
}

template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Vector {
  T elements[kCount];

  __device__ Vector() {}
  /// Loads; `from` is aligned as `is_aligned` says.
  __device__ explicit Vector(const T* from) { *this = *reinterpret_cast<const Vector*>(from); }
  __device__ void store(T* to) const { *reinterpret_cast<Vector*>(to) = *this; }

  __device__ T& operator[](int i) { return elements[i]; }
  __device__ const T& operator[](int i) const { return elements[i]; }

  template <class To>
  __device__ Vector<To, kCount> convert_to() const {
    Vector<To, kCount> out;
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = convert<To>(elements[i]);
    return out;
  }
};

}  // namespace fusegrad::cuda
