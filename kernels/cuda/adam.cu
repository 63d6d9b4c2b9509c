// Adam on a GPU. The unfused steps are elementwise kernels. The fused update is two launches for any number of
// parameters: one thread a parameter advances its clock and works out the scalars that its elements share; then one
// block a chunk updates the elements. Chunks lie in device memory (kernels/tensor_list.h), so nothing limits how many
// there are.
//
// Bytes an f32 parameter: 28 (read p, g, m, v; write p, m, v), plus 2 for a 16-bit copy and 8 with AMSGrad.

#include <fusegrad/kernels/adam.h>
#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/cuda/vector.cuh>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::for_each_index;
using fusegrad::cuda::launch;
using fusegrad::cuda::Vector;

namespace {

template <class T, class Step>
void run_step(const AdamStepArgs& args) {
  const T* a = args.a.data<T>();
  const T* b = args.b.defined() ? args.b.data<T>() : a;
  const T* c = args.c.defined() ? args.c.data<T>() : a;
  T* out = args.out.data<T>();
  const T x = static_cast<T>(args.x);
  const T y = static_cast<T>(args.y);
  for_each_index(args.out.device(), args.out.numel(),
                 [=] __device__(std::int64_t i) { out[i] = Step::value(a[i], b[i], c[i], x, y); });
}

}  // namespace

void adam_step(AdamStep step, const AdamStepArgs& args) {
  visit_math(args.out.dtype(), "adam_step",
             [&]<class T>(TypeTag<T>) { visit_adam_step(step, [&]<class Step>(Step) { run_step<T, Step>(args); }); });
}

namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // elements a thread takes at once: 16 bytes of f32

struct Arguments {
  const AdamTensor* tensors;
  const Chunk* chunks;
  const math::AdamGroup* groups;
  math::AdamClock* clocks;
  math::AdamCoefficients<double>* coefficients;
  math::GradScalars grad;
  std::int64_t tensor_count;
};

__device__ bool skipped(const math::GradScalars& grad) { return grad.found_inf != nullptr && *grad.found_inf != 0.0f; }

__global__ void advance_clocks(Arguments args) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= args.tensor_count || skipped(args.grad)) return;
  const math::AdamGroup group = args.groups[args.tensors[i].group];
  math::AdamClock& clock = args.clocks[args.tensors[i].clock];
  clock = math::advanced(clock, group);
  args.coefficients[i] = math::adam_coefficients(group, clock);
}

/// What a block knows about its tensor; equal for all of its threads, so branches on it do not diverge.
template <class P, class G>
struct ChunkView {
  using T = MathType<P>;
  P* param;
  const G* grad;
  T* exp_avg;
  T* exp_avg_sq;
  T* max_exp_avg_sq;
  void* copy;
  DType copy_dtype;
  math::AdamCoefficients<T> coefficients;
  math::GradFactors<MathType<G>> factors;
  math::WeightDecay decay;
  bool maximize;
};

template <int kCount, class P, class G>
__device__ void update(const ChunkView<P, G>& view, std::int64_t i) {
  using T = MathType<P>;
  const Vector<P, kCount> p_in(view.param + i);
  const Vector<G, kCount> g_in(view.grad + i);
  Vector<T, kCount> m(view.exp_avg + i);
  Vector<T, kCount> v(view.exp_avg_sq + i);
  Vector<T, kCount> v_max;
  if (view.max_exp_avg_sq != nullptr) v_max = Vector<T, kCount>(view.max_exp_avg_sq + i);
  Vector<T, kCount> p;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    p[j] = convert<T>(p_in[j]);
    const T g = convert<T>(math::transformed_gradient<G>(g_in[j], view.factors));
    if (view.max_exp_avg_sq != nullptr) {
      math::adam_element<true>(p[j], g, m[j], v[j], v_max[j], view.coefficients, view.decay, view.maximize);
    } else {
      math::adam_element<false>(p[j], g, m[j], v[j], v_max[j], view.coefficients, view.decay, view.maximize);
    }
  }
  m.store(view.exp_avg + i);
  v.store(view.exp_avg_sq + i);
  if (view.max_exp_avg_sq != nullptr) v_max.store(view.max_exp_avg_sq + i);
  p.template convert_to<P>().store(view.param + i);
  if (view.copy == nullptr) return;
  if (view.copy_dtype == DType::f16) {
    p.template convert_to<Float16>().store(static_cast<Float16*>(view.copy) + i);
  } else {
    p.template convert_to<BFloat16>().store(static_cast<BFloat16*>(view.copy) + i);
  }
}

template <class P, class G>
__device__ void update_chunk(const Arguments& args, const Chunk& chunk) {
  using T = MathType<P>;
  const AdamTensor& t = args.tensors[chunk.tensor];
  const math::AdamGroup& group = args.groups[t.group];
  const ChunkView<P, G> view{static_cast<P*>(t.param),
                             static_cast<const G*>(t.grad),
                             static_cast<T*>(t.exp_avg),
                             static_cast<T*>(t.exp_avg_sq),
                             static_cast<T*>(t.max_exp_avg_sq),
                             t.copy,
                             t.copy_dtype,
                             math::rounded<T>(args.coefficients[chunk.tensor]),
                             math::read_factors<MathType<G>>(args.grad),
                             group.decay,
                             group.maximize != 0};
  const std::int64_t end = t.numel < chunk.begin + math::kChunk ? t.numel : chunk.begin + math::kChunk;
  const bool aligned =
      fusegrad::cuda::is_aligned<P, kWidth>(t.param) && fusegrad::cuda::is_aligned<G, kWidth>(t.grad) &&
      fusegrad::cuda::is_aligned<T, kWidth>(t.exp_avg) && fusegrad::cuda::is_aligned<T, kWidth>(t.exp_avg_sq) &&
      fusegrad::cuda::is_aligned<T, kWidth>(t.max_exp_avg_sq) && fusegrad::cuda::is_aligned<Float16, kWidth>(t.copy);
  std::int64_t tail = chunk.begin;
  if (aligned) {
    const std::int64_t whole = chunk.begin + (end - chunk.begin) / kWidth * kWidth;
    for (std::int64_t i = chunk.begin + threadIdx.x * kWidth; i < whole; i += kThreads * kWidth) {
      update<kWidth>(view, i);
    }
    tail = whole;
  }
  for (std::int64_t i = tail + threadIdx.x; i < end; i += kThreads) update<1>(view, i);
}

template <class P>
__device__ void update_chunk(const Arguments& args, const Chunk& chunk, DType grad) {
  if constexpr (std::is_same_v<P, float>) {
    if (grad == DType::f16) return update_chunk<P, Float16>(args, chunk);
    if (grad == DType::bf16) return update_chunk<P, BFloat16>(args, chunk);
  } else {
    if (grad != DType::f32) return update_chunk<P, P>(args, chunk);
  }
  update_chunk<P, float>(args, chunk);
}

__global__ void __launch_bounds__(kThreads) update_parameters(Arguments args) {
  if (skipped(args.grad)) return;
  const Chunk chunk = args.chunks[blockIdx.x];
  const AdamTensor& tensor = args.tensors[chunk.tensor];
  switch (tensor.param_dtype) {
    case DType::f32:
      return update_chunk<float>(args, chunk, tensor.grad_dtype);
    case DType::f16:
      return update_chunk<Float16>(args, chunk, tensor.grad_dtype);
    case DType::bf16:
      return update_chunk<BFloat16>(args, chunk, tensor.grad_dtype);
    case DType::f64:
      return update_chunk<double>(args, chunk, tensor.grad_dtype);
    case DType::i64:
      return;
  }
}

}  // namespace

void fused_adam(const FusedAdamArgs& args) {
  const Arguments device_args{args.tensors.data(), args.chunks.data(), args.groups.data(), args.clocks,
                              args.coefficients,   args.grad,          args.tensors.size()};
  const std::int64_t clock_blocks = (args.tensors.size() + kThreads - 1) / kThreads;
  launch(args.device, clock_blocks, kThreads, advance_clocks, device_args);
  launch(args.device, args.chunks.size(), kThreads, update_parameters, device_args);
}

}  // namespace fusegrad::kernels::cuda
