#pragma once
// The update of one tile of a parameter, as a part that kernels put together. Whether the options are known to the
// compiler or only to the table is the caller's choice; the code is the same.

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/cuda/vector.cuh>
#include <fusegrad/kernels/fused_adam.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::Vector;

inline constexpr int kAdamThreads = 256;
/// Neighbouring elements a thread takes at once: 16 bytes in the math type.
template <class T>
inline constexpr int kAdamWidth = 16 / sizeof(T);
static_assert(kAdamThreads * kAdamWidth<float> == kAdamTile);  // one vector a thread, no loop

/// The table and what goes with it, as kernels see it.
struct AdamArguments {
  const AdamTensor* tensors;
  const math::AdamGroup* groups;
  const Piece* tiles;
  math::AdamClock* clocks;
  math::AdamPending* pending;
  math::GradScalars grad;
  std::int64_t tensor_count;
  std::int64_t tile_count;
};

/// Options that the compiler knows.
template <bool kAmsgrad, math::WeightDecay kDecay, CopyKind kCopy>
struct StaticOptions {
  static constexpr bool amsgrad = kAmsgrad;
  static constexpr math::WeightDecay decay = kDecay;
  static constexpr CopyKind copy = kCopy;
  bool maximize;
  __device__ explicit StaticOptions(const AdamTensor& tensor) : maximize(tensor.maximize) {}
};

/// Options that the table knows. They are equal for all threads of a block, so branches on them do not diverge.
struct TableOptions {
  bool amsgrad;
  math::WeightDecay decay;
  CopyKind copy;
  bool maximize;
  __device__ explicit TableOptions(const AdamTensor& tensor)
      : amsgrad(tensor.kind.amsgrad), decay(tensor.kind.decay), copy(tensor.kind.copy), maximize(tensor.maximize) {}
};

/// Updates `kCount` neighbouring elements from `i` on.
template <int kCount, class P, class G, class Options>
__device__ void update_elements(const AdamTensor& tensor, std::int64_t i,
                                const math::AdamCoefficients<MathType<P>>& coefficients,
                                const math::GradFactors<MathType<G>>& factors, const Options& options) {
  using T = MathType<P>;
  P* const param = static_cast<P*>(tensor.param) + i;
  T* const exp_avg = static_cast<T*>(tensor.exp_avg) + i;
  T* const exp_avg_sq = static_cast<T*>(tensor.exp_avg_sq) + i;
  T* const max_exp_avg_sq = static_cast<T*>(tensor.max_exp_avg_sq) + i;
  const Vector<G, kCount> g(static_cast<const G*>(tensor.grad) + i);
  Vector<T, kCount> m(exp_avg);
  Vector<T, kCount> v(exp_avg_sq);
  const Vector<P, kCount> stored(param);
  Vector<T, kCount> v_max;
  if (options.amsgrad) v_max = Vector<T, kCount>(max_exp_avg_sq);
  Vector<T, kCount> p;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    p[j] = convert<T>(stored[j]);
    const T gradient = convert<T>(math::transformed_gradient<G>(g[j], factors));
    if (options.amsgrad) {
      math::adam_element<true>(p[j], gradient, m[j], v[j], v_max[j], coefficients, options.decay, options.maximize);
    } else {
      math::adam_element<false>(p[j], gradient, m[j], v[j], v_max[j], coefficients, options.decay, options.maximize);
    }
  }
  m.store(exp_avg);
  v.store(exp_avg_sq);
  if (options.amsgrad) v_max.store(max_exp_avg_sq);
  p.template convert_to<P>().store(param);
  if (options.copy == CopyKind::f16) {
    p.template convert_to<Float16>().store(static_cast<Float16*>(tensor.copy) + i);
  } else if (options.copy == CopyKind::bf16) {
    p.template convert_to<BFloat16>().store(static_cast<BFloat16*>(tensor.copy) + i);
  }
}

/// Updates a tile; all 256 threads call it. The first tile of a parameter also advances its clock.
template <class P, class G, class Options>
__device__ void update_tile(const AdamArguments& args, const Piece& tile, const math::GradValues& grad) {
  const AdamTensor& tensor = args.tensors[tile.tensor];
  const math::AdamPending& pending = args.pending[tile.tensor];
  const Options options(tensor);
  const math::AdamCoefficients<MathType<P>> coefficients = pending.coefficients<MathType<P>>();
  const math::GradFactors<MathType<G>> factors(grad);
  const std::int64_t begin = tile.index * kAdamTile;
  const std::int64_t end = tensor.numel < begin + kAdamTile ? tensor.numel : begin + kAdamTile;
  std::int64_t rest = begin;
  if (tensor.aligned) {
    constexpr int kWidth = kAdamWidth<MathType<P>>;
    constexpr int kStride = kAdamThreads * kWidth;
    rest = begin + (end - begin) / kWidth * kWidth;
#pragma unroll
    for (int k = 0; k < kAdamTile; k += kStride) {
      const std::int64_t i = begin + k + threadIdx.x * kWidth;
      if (i < rest) update_elements<kWidth, P, G>(tensor, i, coefficients, factors, options);
    }
  }
  for (std::int64_t i = rest + threadIdx.x; i < end; i += kAdamThreads) {
    update_elements<1, P, G>(tensor, i, coefficients, factors, options);
  }
  if (tile.index == 0 && threadIdx.x == 0) args.clocks[tensor.clock] = pending.clock;
}

/// Works out the step that a parameter is about to make. One thread a parameter calls it.
__device__ inline void prepare_step(const AdamArguments& args, std::int64_t tensor) {
  const AdamTensor& row = args.tensors[tensor];
  args.pending[tensor] = math::pending_step(args.clocks[row.clock], args.groups[row.group]);
}

__device__ inline bool is_skipped(const math::GradScalars& grad) {
  return grad.found_inf != nullptr && *grad.found_inf != 0.0f;
}

/// Launches the update of a table whose parameters are all of one kind, with code made for that kind. Returns false if
/// there is none.
bool launch_uniform_update(Device device, const AdamKind& kind, const AdamArguments& args);

}  // namespace fusegrad::kernels::cuda
