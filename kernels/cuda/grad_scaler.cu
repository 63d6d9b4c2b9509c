// Gradients of mixed precision on a GPU, each step a launch of its own: one block a chunk, for any number of tensors.
// The fused optimizer does all of this in its own launches (fused_adam.cu).

#include <fusegrad/kernels/cuda/grad_check.cuh>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::launch;

namespace {

struct List {
  const ListedTensor* tensors;
  const Piece* chunks;
  std::int64_t chunk_count;
};

List device_list(const TensorList& list) { return {list.tensors().data(), list.chunks().data(), list.chunk_count()}; }

template <class Norm>
__global__ void __launch_bounds__(kReduceThreads) check(List list, GradCheck what, CheckScratch scratch, Norm norm) {
  if (blockIdx.x < list.chunk_count) {
    const Piece chunk = list.chunks[blockIdx.x];
    const ListedTensor tensor = list.tensors[chunk.tensor];
    const float inverse = what.inverse_scale == nullptr ? 1.0f : *what.inverse_scale;
    with_elements(tensor.data, tensor.dtype, tensor.numel, chunk,
                  [&]<class G>(const G* g, std::int64_t begin, std::int64_t end) {
                    check_chunk(g, begin, end, inverse, norm, scratch, blockIdx.x);
                  });
  }
  if (!is_last_block(scratch.finished)) return;
  const Findings findings = all_findings(scratch, list.chunk_count, norm);
  if (threadIdx.x == 0) publish(findings, what, {});
}

/// Replaces every element of this block's chunk by `change(element)`, which is generic in the element type.
template <class Change>
__device__ void change_chunk(const List& list, const Change& change) {
  const Piece chunk = list.chunks[blockIdx.x];
  const ListedTensor tensor = list.tensors[chunk.tensor];
  with_elements(tensor.data, tensor.dtype, tensor.numel, chunk,
                [&]<class G>(const G* elements, std::int64_t begin, std::int64_t end) {
                  G* g = const_cast<G*>(elements);  // listed as writable
                  for (std::int64_t i = begin + threadIdx.x; i < end; i += kReduceThreads) g[i] = change(g[i]);
                });
}

__global__ void __launch_bounds__(kReduceThreads)
    unscale(List list, const float* inverse_scale, CheckScratch scratch, float* found_inf) {
  if (blockIdx.x < list.chunk_count) {
    const float inverse = *inverse_scale;
    bool bad = false;
    change_chunk(list, [&]<class G>(G element) {
      using M = MathType<G>;
      const M raw = convert<M>(element);
      const M factor = static_cast<M>(inverse);
      bad = bad || !math::is_finite(raw * factor);
      return convert<G>(math::scaled_gradient<G>(raw, factor));
    });
    const int any = __syncthreads_or(bad ? 1 : 0);
    if (threadIdx.x == 0) scratch.findings[blockIdx.x] = {.norm = 0, .nonfinite = any};
  }
  if (!is_last_block(scratch.finished)) return;
  const Findings findings = all_findings(scratch, list.chunk_count, math::NoNorm{});
  if (threadIdx.x == 0) publish(findings, {.found_inf = found_inf}, {});
}

__global__ void __launch_bounds__(kReduceThreads) multiply(List list, const double* factor) {
  const double by = *factor;
  change_chunk(list, [&]<class G>(G element) {
    using M = MathType<G>;
    return convert<G>(math::scaled_gradient<G>(convert<M>(element), static_cast<M>(by)));
  });
}

__global__ void __launch_bounds__(kReduceThreads) clamp(List list, double limit) {
  change_chunk(list, [&]<class G>(G element) {
    using M = MathType<G>;
    return convert<G>(math::clamped(convert<M>(element), static_cast<M>(limit)));
  });
}

__global__ void update_kernel(ScaleUpdate update, const float* const* found_inf, std::int64_t count) {
  bool found = false;
  for (std::int64_t i = 0; i < count; ++i) found = found || *found_inf[i] != 0.0f;
  move_scale(update, found);
}

// At least one block, so that "no gradients" is found out, too.
std::int64_t blocks_of(const TensorList& list) { return list.chunk_count() == 0 ? 1 : list.chunk_count(); }

}  // namespace

void check_gradients(TensorList& grads, const GradCheck& what) {
  if (!what.wanted()) return;
  const CheckScratch scratch = grads.check_workspace().reserve(grads.chunk_count(), grads.device());
  visit_norm(what, [&]<class Norm>(Norm norm) {
    launch(grads.device(), blocks_of(grads), kReduceThreads, check<Norm>, device_list(grads), what, scratch, norm);
  });
}

void unscale_gradients(TensorList& grads, const float* inverse_scale, float* found_inf) {
  const CheckScratch scratch = grads.check_workspace().reserve(grads.chunk_count(), grads.device());
  launch(grads.device(), blocks_of(grads), kReduceThreads, unscale, device_list(grads), inverse_scale, scratch,
         found_inf);
}

void multiply_gradients(const TensorList& grads, const double* factor) {
  launch(grads.device(), grads.chunk_count(), kReduceThreads, multiply, device_list(grads), factor);
}

void clamp_gradients(const TensorList& grads, double limit) {
  launch(grads.device(), grads.chunk_count(), kReduceThreads, clamp, device_list(grads), limit);
}

void update_scale(const ScaleUpdate& update, const DeviceArray<const float*>& found_inf) {
  launch(found_inf.device(), 1, 1, update_kernel, update, found_inf.data(), found_inf.size());
}

}  // namespace fusegrad::kernels::cuda
