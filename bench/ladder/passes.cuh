#pragma once
// What is done to elements, apart from how they are walked over (walks.cuh). A pass handles `kCount` neighbouring
// elements of a row, from `i` on: one on the lower rungs, four on the upper.

#include <fusegrad/bench/ladder/problem.h>
#include <fusegrad/kernels/cuda/vector.cuh>

namespace fusegrad::ladder {

using cuda::Vector;

/// g ← g / scale; notes an inf or NaN.
struct Unscale {
  float inverse_scale;
  float* found_inf;
  template <int kCount>
  __device__ void apply(const Row& row, std::int64_t i) const {
    Vector<float, kCount> g(row.grad + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      g[j] = math::scaled_gradient<float>(g[j], inverse_scale);
      if (!math::is_finite(g[j])) *found_inf = 1.0f;
    }
    g.store(row.grad + i);
  }
};

/// g ← clip · g.
struct Clip {
  const double* coefficient;
  template <int kCount>
  __device__ void apply(const Row& row, std::int64_t i) const {
    const auto clip = static_cast<float>(*coefficient);
    Vector<float, kCount> g(row.grad + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) g[j] = math::scaled_gradient<float>(g[j], clip);
    g.store(row.grad + i);
  }
};

/// The update of p, m and v, by numbers that the host knows.
struct Update {
  math::AdamCoefficients<float> coefficients;
  template <int kCount>
  __device__ void apply(const Row& row, std::int64_t i) const {
    const Vector<float, kCount> g(row.grad + i);
    Vector<float, kCount> p(row.param + i);
    Vector<float, kCount> m(row.exp_avg + i);
    Vector<float, kCount> v(row.exp_avg_sq + i);
    float unused = 0;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      math::adam_element<false>(p[j], g[j], m[j], v[j], unused, coefficients, math::WeightDecay::none, false);
    }
    p.store(row.param + i);
    m.store(row.exp_avg + i);
    v.store(row.exp_avg_sq + i);
  }
};

/// copy ← p in f16.
struct CopyWeights {
  template <int kCount>
  __device__ void apply(const Row& row, std::int64_t i) const {
    const Vector<float, kCount> p(row.param + i);
    p.template convert_to<Float16>().store(row.copy + i);
  }
};

/// The same as `Unscale` and `Clip`, by what a thread of the GPU has decided.
struct UnscaleAndClip {
  const Decision* decision;
  template <int kCount>
  __device__ void apply(const Row& row, std::int64_t i) const {
    if (decision->skip) return;
    Vector<float, kCount> g(row.grad + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      g[j] = math::scaled_gradient<float>(math::scaled_gradient<float>(g[j], decision->inverse_scale), decision->clip);
    }
    g.store(row.grad + i);
  }
};

/// The update by what a thread of the GPU has decided; `kGradients`: unscales and clips on the way; `kCopy`: writes the
/// weight copy, too.
template <bool kGradients, bool kCopy>
struct DecidedUpdate {
  const Decision* decision;
  template <int kCount>
  __device__ void apply(const Row& row, std::int64_t i) const {
    if (decision->skip) return;
    Vector<float, kCount> g(row.grad + i);
    Vector<float, kCount> p(row.param + i);
    Vector<float, kCount> m(row.exp_avg + i);
    Vector<float, kCount> v(row.exp_avg_sq + i);
    float unused = 0;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if constexpr (kGradients) {
        g[j] =
            math::scaled_gradient<float>(math::scaled_gradient<float>(g[j], decision->inverse_scale), decision->clip);
      }
      math::adam_element<false>(p[j], g[j], m[j], v[j], unused, decision->coefficients, math::WeightDecay::none, false);
    }
    p.store(row.param + i);
    m.store(row.exp_avg + i);
    v.store(row.exp_avg_sq + i);
    if constexpr (kCopy) p.template convert_to<Float16>().store(row.copy + i);
  }
};

}  // namespace fusegrad::ladder
