// Adam over all parameters on a GPU, with everything that mixed precision does around it (kernels/fused_adam.h).
//
// Two launches. The first reads all gradients, one block a chunk; its last block adds up what was found, writes
// found-inf, norm and clip coefficient, and moves the scale if asked. Beside that it works out every parameter's next
// clock and coefficients. The second updates, one block a tile of 1024 elements, and makes the new clocks valid.
// Without a check the first launch only works out the coefficients.
//
// One launch, for small models: the same two passes with a barrier over the whole grid between them. All its blocks are
// resident at once (a cooperative launch), and each adds up the findings by itself, in the same order.

#include <algorithm>
#include <map>
#include <mutex>

#include <fusegrad/kernels/cuda/adam_update.cuh>
#include <fusegrad/kernels/cuda/grad_check.cuh>

namespace fusegrad::kernels::cuda {
namespace {

using fusegrad::cuda::GridBarrier;
using fusegrad::cuda::launch;

static_assert(kAdamThreads == kReduceThreads);

struct CheckArguments {
  const Piece* chunks = nullptr;
  std::int64_t chunk_count = 0;
  bool wanted = false;
  GradCheck what;
  CheckScratch scratch;
  MaybeScaleUpdate scale;
  GridBarrier barrier = GridBarrier::none;  // of the launch that does it all
};

// One chunk of the reading pass. `inverse_scale` is what gradients are looked at times.
template <class Norm>
__device__ __forceinline__ void check_one(const AdamArguments& args, const CheckArguments& check, std::int64_t index,
                                          float inverse_scale, const Norm& norm) {
  const Piece chunk = check.chunks[index];
  const AdamTensor& tensor = args.tensors[chunk.tensor];
  // The last thread, so that the warp that ends the sum is not held up.
  if (chunk.index == 0 && threadIdx.x == kAdamThreads - 1) prepare_step(args, chunk.tensor);
  with_elements(tensor.grad, tensor.kind.grad, tensor.numel, chunk,
                [&]<class G>(const G* g, std::int64_t begin, std::int64_t end) {
                  check_chunk(g, begin, end, inverse_scale, norm, check.scratch, index);
                });
}

__device__ float read_inverse(const GradCheck& what) {
  return what.inverse_scale == nullptr ? 1.0f : *what.inverse_scale;
}

template <class Norm>
__global__ void __launch_bounds__(kAdamThreads)
    check_gradients_kernel(const AdamArguments args, const CheckArguments check, const Norm norm) {
  fusegrad::cuda::let_next_launch_begin();
  const float inverse = read_inverse(check.what);
  check_one(args, check, blockIdx.x, inverse, norm);
  if (!is_last_block(check.scratch.finished)) return;
  const Findings findings = all_findings(check.scratch, check.chunk_count, norm);
  if (threadIdx.x != 0) return;
  *check.scratch.applied_inverse = inverse;
  publish(findings, check.what, check.scale);
}

__global__ void __launch_bounds__(kAdamThreads) prepare_kernel(const AdamArguments args) {
  fusegrad::cuda::let_next_launch_begin();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kAdamThreads + threadIdx.x;
  if (i < args.tensor_count) prepare_step(args, i);
}

// A tile of any kind of parameter.
__device__ __forceinline__ void update_any_tile(const AdamArguments& args, const Piece& tile,
                                                const math::GradValues& grad) {
  const AdamKind kind = args.tensors[tile.tensor].kind;
  const bool same = kind.grad == kind.param;
  switch (kind.param) {
    case DType::f32:
      if (kind.grad == DType::f16) return update_tile<float, Float16, TableOptions>(args, tile, grad);
      if (kind.grad == DType::bf16) return update_tile<float, BFloat16, TableOptions>(args, tile, grad);
      return update_tile<float, float, TableOptions>(args, tile, grad);
    case DType::f16:
      if (same) return update_tile<Float16, Float16, TableOptions>(args, tile, grad);
      return update_tile<Float16, float, TableOptions>(args, tile, grad);
    case DType::bf16:
      if (same) return update_tile<BFloat16, BFloat16, TableOptions>(args, tile, grad);
      return update_tile<BFloat16, float, TableOptions>(args, tile, grad);
    case DType::f64:
      if (same) return update_tile<double, double, TableOptions>(args, tile, grad);
      return update_tile<double, float, TableOptions>(args, tile, grad);
    case DType::i64:
      return;
  }
}

// Four blocks a multiprocessor leave 64 registers a thread.
constexpr int kBlocksPerMultiprocessor = 4;

__global__ void __launch_bounds__(kAdamThreads, kBlocksPerMultiprocessor) mixed_update(const AdamArguments args) {
  const Piece tile = args.tiles[blockIdx.x];
  fusegrad::cuda::wait_for_launch_before();
  if (is_skipped(args.grad)) return;
  update_any_tile(args, tile, math::read_values(args.grad));
}

// The whole phase, over f32 parameters with gradients of type G.
template <class Norm, class G>
__global__ void __launch_bounds__(kAdamThreads, kBlocksPerMultiprocessor)
    whole_phase(const AdamArguments args, const CheckArguments check, const Norm norm) {
  const bool wanted = check.wanted;
  math::GradValues grad = math::read_values({.inverse_scale = args.grad.inverse_scale,
                                             .found_inf = nullptr,
                                             .clip_coefficient = wanted ? nullptr : args.grad.clip_coefficient,
                                             .clip_value = args.grad.clip_value});
  for (std::int64_t c = blockIdx.x; c < check.chunk_count; c += gridDim.x) {
    if (wanted) {
      check_one(args, check, c, read_inverse(check.what), norm);
    } else if (check.chunks[c].index == 0 && threadIdx.x == 0) {
      prepare_step(args, check.chunks[c].tensor);
    }
  }
  fusegrad::cuda::wait_for_all_blocks(check.barrier);
  bool skip = !wanted && is_skipped(args.grad);
  if (wanted) {
    const Findings findings = all_findings(check.scratch, check.chunk_count, norm);
    // Behind the barrier every block has read the inverse scale, so it may move. The last block has the least to
    // update.
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) publish(findings, check.what, check.scale);
    if (check.what.clip_coefficient != nullptr) {
      grad.clip = math::clip_coefficient(findings.norm, check.what.max_norm);
    }
    skip = check.what.found_inf != nullptr ? findings.nonfinite : is_skipped(args.grad);
  }
  if (skip) return;
  for (std::int64_t t = blockIdx.x; t < args.tile_count; t += gridDim.x) {
    update_tile<float, G, TableOptions>(args, args.tiles[t], grad);
  }
}

// Blocks of `kernel` that are resident at once on `device`. Asking the driver takes longer than a launch.
template <class... Parameters>
std::int64_t resident_blocks(Device device, void (*kernel)(Parameters...)) {
  static std::mutex mutex;
  static std::map<std::pair<int, void (*)(Parameters...)>, std::int64_t> known;
  const std::lock_guard lock(mutex);
  std::int64_t& blocks = known[{device.index, kernel}];
  if (blocks == 0) {
    const fusegrad::cuda::DeviceGuard guard(device.index);
    int each = 0;
    FUSEGRAD_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kAdamThreads, 0));
    blocks = each * fusegrad::cuda::device_properties(device.index).multiprocessors;
  }
  return blocks;
}

// Above this many tiles the two launches are as fast, and a barrier brings nothing (docs/performance.md).
constexpr std::int64_t kMostTilesOfOneLaunch = 4096;
bool wants_one_launch(const FusedAdamArgs& args) {
  // Code of one launch is made for the tables that models have and the norms that people clip by.
  if (!args.table.uniform_grad()) return false;
  if (args.check.norm == GradCheck::Norm::l1 || args.check.norm == GradCheck::Norm::p) return false;
  if (args.launch != AdamLaunch::automatic) return args.launch == AdamLaunch::one;
  return args.table.tiles().size() <= kMostTilesOfOneLaunch;
}

template <class Norm, class G>
void launch_whole_phase(Device device, const AdamArguments& args, CheckArguments check) {
  const std::int64_t pieces = std::max(args.tile_count, check.chunk_count);
  const bool has_clusters = fusegrad::cuda::device_properties(device.index).compute_capability_major >= 9;
  std::int64_t blocks = pieces;
  if (pieces == 1) {
    check.barrier = GridBarrier::none;
  } else if (pieces <= fusegrad::cuda::kMostClusterBlocks && has_clusters) {
    check.barrier = GridBarrier::cluster;
  } else {
    check.barrier = GridBarrier::grid;
    blocks = std::min(pieces, resident_blocks(device, whole_phase<Norm, G>));
  }
  fusegrad::cuda::launch_with_barrier(check.barrier, device, blocks, kAdamThreads, whole_phase<Norm, G>, args, check,
                                      Norm{});
}

template <class G>
void launch_whole_phase(Device device, const AdamArguments& args, const CheckArguments& check) {
  switch (check.what.norm) {
    case GradCheck::Norm::l2:
      return launch_whole_phase<math::L2Norm, G>(device, args, check);
    case GradCheck::Norm::max:
      return launch_whole_phase<math::MaxNorm, G>(device, args, check);
    default:
      return launch_whole_phase<math::NoNorm, G>(device, args, check);
  }
}

void launch_whole_phase(Device device, DType grad, const AdamArguments& args, const CheckArguments& check) {
  if (grad == DType::f16) return launch_whole_phase<Float16>(device, args, check);
  if (grad == DType::bf16) return launch_whole_phase<BFloat16>(device, args, check);
  launch_whole_phase<float>(device, args, check);
}

}  // namespace

void fused_adam(const FusedAdamArgs& given) {
  AdamTable& table = given.table;
  const Device device = table.device();
  AdamArguments args{.tensors = table.tensors().data(),
                     .groups = table.groups().data(),
                     .tiles = table.tiles().data(),
                     .clocks = given.clocks,
                     .pending = table.pending(),
                     .grad = given.grad,
                     .tensor_count = table.tensors().size(),
                     .tile_count = table.tiles().size()};
  if (args.tensor_count == 0) return;
  const CheckArguments check{
      .chunks = table.chunks().data(),
      .chunk_count = table.chunks().size(),
      .wanted = given.check.wanted(),
      .what = given.check,
      .scratch = table.check_workspace().reserve(table.chunks().size(), device),
      .scale = {.wanted = given.scale_update.has_value(), .update = given.scale_update.value_or(ScaleUpdate{})}};
  if (wants_one_launch(given)) return launch_whole_phase(device, *table.uniform_grad(), args, check);
  if (check.wanted) {
    visit_norm(given.check, [&]<class Norm>(Norm norm) {
      launch(device, check.chunk_count, kAdamThreads, check_gradients_kernel<Norm>, args, check, norm);
    });
    // By the time of the update the scale may have moved.
    if (check.scale.wanted) args.grad.inverse_scale = check.scratch.applied_inverse;
  } else {
    launch(device, (args.tensor_count + kAdamThreads - 1) / kAdamThreads, kAdamThreads, prepare_kernel, args);
  }
  const std::optional<AdamKind>& kind = table.uniform_kind();
  if (kind && launch_uniform_update(device, *kind, args)) return;
  fusegrad::cuda::launch_early(device, args.tile_count, kAdamThreads, mixed_update, args);
}

}  // namespace fusegrad::kernels::cuda
