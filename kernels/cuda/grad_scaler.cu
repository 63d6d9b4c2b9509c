// Gradients of mixed precision on a GPU: one block a chunk, for any number of tensors.

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/cuda/reduction.cuh>
#include <fusegrad/kernels/grad_scaler.h>
#include <fusegrad/kernels/math/norm.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::kReduceThreads;
using fusegrad::cuda::launch;
using fusegrad::cuda::reduce_chunk;

namespace {

struct List {
  const ListedTensor* tensors;
  const Chunk* chunks;
};

List device_list(const TensorList& list) { return {list.tensors().data(), list.chunks().data()}; }

/// Calls `body(elements, begin, end)` for this block's chunk. `body` is generic in the element type.
template <class Body>
__device__ void with_chunk(const List& list, const Body& body) {
  const Chunk chunk = list.chunks[blockIdx.x];
  const ListedTensor tensor = list.tensors[chunk.tensor];
  const std::int64_t end = tensor.numel < chunk.begin + math::kChunk ? tensor.numel : chunk.begin + math::kChunk;
  switch (tensor.dtype) {
    case DType::f16:
      return body(static_cast<Float16*>(tensor.data), chunk.begin, end);
    case DType::bf16:
      return body(static_cast<BFloat16*>(tensor.data), chunk.begin, end);
    case DType::f32:
      return body(static_cast<float*>(tensor.data), chunk.begin, end);
    case DType::f64:
      return body(static_cast<double*>(tensor.data), chunk.begin, end);
    case DType::i64:
      return;
  }
}

/// Sets `*found_inf` if any thread of the block saw a non-finite product. All threads call it.
__device__ void report(bool nonfinite, float* found_inf) {
  if (__syncthreads_or(nonfinite ? 1 : 0) != 0 && threadIdx.x == 0) *found_inf = 1.0f;  // all blocks write the same
}

__global__ void __launch_bounds__(kReduceThreads) check(List list, const float* inverse_scale, float* found_inf) {
  with_chunk(list, [&]<class G>(const G* g, std::int64_t begin, std::int64_t end) {
    using M = MathType<G>;
    const M factor = inverse_scale == nullptr ? M(1) : static_cast<M>(*inverse_scale);
    bool bad = false;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kReduceThreads) {
      bad = bad || !math::is_finite(convert<M>(g[i]) * factor);
    }
    report(bad, found_inf);
  });
}

template <class Norm>
__global__ void __launch_bounds__(kReduceThreads)
    norm_partials(List list, const float* inverse_scale, float* found_inf, Norm norm, double* partial) {
  with_chunk(list, [&]<class G>(const G* g, std::int64_t begin, std::int64_t end) {
    using M = MathType<G>;
    const bool scaled = inverse_scale != nullptr;
    const M factor = scaled ? static_cast<M>(*inverse_scale) : M(1);
    bool bad = false;
    const auto load = [&](std::int64_t i) {
      const M raw = convert<M>(g[i]);
      const M value = scaled ? math::scaled_gradient<G>(raw, factor) : raw;
      bad = bad || !math::is_finite(raw * factor);
      return norm.contribution(static_cast<double>(value));
    };
    const double sum = reduce_chunk(begin, end, load, [&](double a, double b) { return norm.combine(a, b); });
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    if (found_inf != nullptr) report(bad, found_inf);
  });
}

template <class Norm>
__global__ void __launch_bounds__(kReduceThreads)
    norm_total(const double* partial, std::int64_t count, Norm norm, double* out) {
  const double sum = reduce_chunk(
      0, count, [=](std::int64_t i) { return partial[i]; }, [&](double a, double b) { return norm.combine(a, b); });
  if (threadIdx.x == 0) *out = norm.total(sum);
}

template <class Norm>
void norm_of(const TensorList& grads, const GradCheck& what, const Norm& norm) {
  const std::int64_t chunks = grads.chunk_count();
  const Tensor partial = Tensor::empty({chunks}, DType::f64, grads.device());
  launch(grads.device(), chunks, kReduceThreads, norm_partials<Norm>, device_list(grads), what.inverse_scale,
         what.found_inf, norm, partial.data<double>());
  launch(grads.device(), 1, kReduceThreads, norm_total<Norm>, static_cast<const double*>(partial.data<double>()),
         chunks, norm, what.norm_out);
}

__global__ void __launch_bounds__(kReduceThreads) unscale(List list, const float* inverse_scale, float* found_inf) {
  with_chunk(list, [&]<class G>(G* g, std::int64_t begin, std::int64_t end) {
    using M = MathType<G>;
    const M factor = static_cast<M>(*inverse_scale);
    bool bad = false;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kReduceThreads) {
      const M raw = convert<M>(g[i]);
      bad = bad || !math::is_finite(raw * factor);
      g[i] = convert<G>(math::scaled_gradient<G>(raw, factor));
    }
    report(bad, found_inf);
  });
}

__global__ void __launch_bounds__(kReduceThreads) multiply(List list, const double* factor) {
  with_chunk(list, [&]<class G>(G* g, std::int64_t begin, std::int64_t end) {
    using M = MathType<G>;
    const M rounded = static_cast<M>(*factor);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kReduceThreads) {
      g[i] = convert<G>(math::scaled_gradient<G>(convert<M>(g[i]), rounded));
    }
  });
}

__global__ void __launch_bounds__(kReduceThreads) clamp(List list, double limit) {
  with_chunk(list, [&]<class G>(G* g, std::int64_t begin, std::int64_t end) {
    using M = MathType<G>;
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kReduceThreads) {
      g[i] = convert<G>(math::clamped(convert<M>(g[i]), static_cast<M>(limit)));
    }
  });
}

__global__ void coefficient_kernel(const double* norm, double max_norm, double* coefficient) {
  *coefficient = math::clip_coefficient(*norm, max_norm);
}

__global__ void update_kernel(ScalerPointers state, const float* found_inf, math::ScalerOptions options) {
  const math::ScalerState now{*state.scale, *state.inverse_scale, *state.growth_tracker, *state.skipped,
                              *state.skipped_in_a_row};
  const math::ScalerState next = math::updated(now, *found_inf != 0.0f, options);
  *state.scale = next.scale;
  *state.inverse_scale = next.inverse;
  *state.growth_tracker = next.growth_tracker;
  *state.skipped = next.skipped;
  *state.skipped_in_a_row = next.skipped_in_a_row;
}

}  // namespace

void check_gradients(const TensorList& grads, const GradCheck& what) {
  switch (what.norm) {
    case GradCheck::Norm::none:
      if (what.found_inf == nullptr) return;
      return launch(grads.device(), grads.chunk_count(), kReduceThreads, check, device_list(grads), what.inverse_scale,
                    what.found_inf);
    case GradCheck::Norm::l2:
      return norm_of(grads, what, math::L2Norm{});
    case GradCheck::Norm::max:
      return norm_of(grads, what, math::MaxNorm{});
    case GradCheck::Norm::l1:
      return norm_of(grads, what, math::L1Norm{});
    case GradCheck::Norm::p:
      return norm_of(grads, what, math::PNorm{what.p});
  }
}

void unscale_gradients(const TensorList& grads, const float* inverse_scale, float* found_inf) {
  launch(grads.device(), grads.chunk_count(), kReduceThreads, unscale, device_list(grads), inverse_scale, found_inf);
}

void multiply_gradients(const TensorList& grads, const double* factor) {
  launch(grads.device(), grads.chunk_count(), kReduceThreads, multiply, device_list(grads), factor);
}

void clamp_gradients(const TensorList& grads, double limit) {
  launch(grads.device(), grads.chunk_count(), kReduceThreads, clamp, device_list(grads), limit);
}

void clip_coefficient(Device device, const double* norm, double max_norm, double* coefficient) {
  launch(device, 1, 1, coefficient_kernel, norm, max_norm, coefficient);
}

void update_scale(Device device, const ScalerPointers& state, const float* found_inf,
                  const math::ScalerOptions& options) {
  launch(device, 1, 1, update_kernel, state, found_inf, options);
}

}  // namespace fusegrad::kernels::cuda
