// The update of parameters that are all of one kind: f32, with gradients of one dtype, the same options and the same
// kind of copies. That is what models have, and what is worth code of its own: no branch on options is left in it.

#include <fusegrad/kernels/cuda/adam_update.cuh>

namespace fusegrad::kernels::cuda {
namespace {

using fusegrad::cuda::launch_early;
using math::WeightDecay;

// Six blocks a multiprocessor leave 40 registers a thread, enough for everything but AMSGrad.
constexpr int blocks_per_multiprocessor(bool amsgrad) { return amsgrad ? 5 : 6; }

template <class G, class Options>
__global__ void __launch_bounds__(kAdamThreads, blocks_per_multiprocessor(Options::amsgrad))
    uniform_update(const AdamArguments args) {
  const Piece tile = args.tiles[blockIdx.x];
  fusegrad::cuda::wait_for_launch_before();
  if (is_skipped(args.grad)) return;
  update_tile<float, G, Options>(args, tile, math::read_values(args.grad));
}

template <class G, bool kAmsgrad, WeightDecay kDecay>
void launch_with_copy(Device device, CopyKind copy, const AdamArguments& args) {
  const auto go = [&]<CopyKind kCopy>() {
    launch_early(device, args.tile_count, kAdamThreads, uniform_update<G, StaticOptions<kAmsgrad, kDecay, kCopy>>,
                 args);
  };
  switch (copy) {
    case CopyKind::none:
      return go.template operator()<CopyKind::none>();
    case CopyKind::f16:
      return go.template operator()<CopyKind::f16>();
    case CopyKind::bf16:
      return go.template operator()<CopyKind::bf16>();
  }
}

template <class G, bool kAmsgrad>
void launch_with_decay(Device device, const AdamKind& kind, const AdamArguments& args) {
  switch (kind.decay) {
    case WeightDecay::none:
      return launch_with_copy<G, kAmsgrad, WeightDecay::none>(device, kind.copy, args);
    case WeightDecay::l2:
      return launch_with_copy<G, kAmsgrad, WeightDecay::l2>(device, kind.copy, args);
    case WeightDecay::decoupled:
      return launch_with_copy<G, kAmsgrad, WeightDecay::decoupled>(device, kind.copy, args);
  }
}

template <class G>
void launch_with_gradient(Device device, const AdamKind& kind, const AdamArguments& args) {
  kind.amsgrad ? launch_with_decay<G, true>(device, kind, args) : launch_with_decay<G, false>(device, kind, args);
}

}  // namespace

bool launch_uniform_update(Device device, const AdamKind& kind, const AdamArguments& args) {
  if (kind.param != DType::f32) return false;
  switch (kind.grad) {
    case DType::f16:
      launch_with_gradient<Float16>(device, kind, args);
      return true;
    case DType::bf16:
      launch_with_gradient<BFloat16>(device, kind, args);
      return true;
    case DType::f32:
      launch_with_gradient<float>(device, kind, args);
      return true;
    case DType::f64:
    case DType::i64:
      break;
  }
  return false;
}

}  // namespace fusegrad::kernels::cuda
