#include <algorithm>
#include <limits>

#include <fusegrad/kernels/random.h>

namespace fusegrad::kernels {
namespace {

void require_range(const Tensor& y, double from, double to) {
  visit_floating(y.dtype(), "uniform", [&]<class T>(TypeTag<T>) {
    using M = MathType<T>;
    const M low = convert<M>(convert<T>(from));
    const M high = convert<M>(convert<T>(to));
    const M range = convert<M>(convert<T>(high - low));
    if (from <= to && math::is_finite(low) && math::is_finite(high) && math::is_finite(range)) return;
    throw ValueError({.op = "uniform",
                      .got = cat("from ", from, " to ", to, " for ", name(y.dtype())),
                      .want = "from <= to, both and to - from finite in the tensor's dtype",
                      .way_out = ""});
  });
}

void require_std(const Tensor& y, double std) {
  visit_floating(y.dtype(), "normal", []<class T>(TypeTag<T>) {});
  if (std >= 0) return;
  throw ValueError({.op = "normal", .got = cat("std ", std), .want = "std >= 0", .way_out = ""});
}

// Calls `draw` with `y`, or where that is on a GPU with a CPU tensor whose elements are copied to it then.
template <class Draw>
void draw_on_cpu(const Tensor& y, const Draw& draw) {
  if (y.device().is_cpu()) return draw(y);
  const Tensor drawn = Tensor::empty(y.shape(), y.dtype());
  draw(drawn);
  copy_bytes(y.raw(), y.device(), drawn.raw(), kCPU, y.bytes());
}

math::PhiloxLaunch plan_launch(const Tensor& y, CudaGenerator& generator) {
  constexpr std::int64_t kBlockThreads = 256;
  const std::int64_t values = y.dtype() == DType::f64 ? 2 : 4;
  math::PhiloxLaunch launch;
  launch.seed = generator.seed();
  launch.count = y.numel();
  launch.threads = std::min(generator.max_blocks(), (launch.count + kBlockThreads - 1) / kBlockThreads) * kBlockThreads;
  launch.rounds = (launch.count - 1) / (launch.threads * values) + 1;
  launch.offset = generator.advance(4 * static_cast<std::uint64_t>(launch.rounds));
  return launch;
}

// PyTorch halves a tensor until its bytes can be counted in 32 bits, and draws the parts one after the other. It has
// then already advanced the generator for the whole, and does so again for each part.
template <class Draw>
void draw_in_parts(const Tensor& y, CudaGenerator& generator, const Draw& draw) {
  const std::int64_t count = y.numel();
  if (count == 0) return;
  const math::PhiloxLaunch launch = plan_launch(y, generator);
  const std::int64_t element = static_cast<std::int64_t>(element_size(y.dtype()));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (count <= kMost && count - 1 <= (kMost - 1) / element) return draw(y, launch);
  const std::int64_t half = count / 2;
  draw_in_parts(y.alias({half}), generator, draw);
  draw_in_parts(y.alias({count - half}, half), generator, draw);
}

}  // namespace

void uniform(const Tensor& y, double from, double to, CpuGenerator& generator) {
  require_range(y, from, to);
  draw_on_cpu(y, [&](const Tensor& out) { cpu::uniform(out, from, to, generator); });
}

void normal(const Tensor& y, double mean, double std, CpuGenerator& generator) {
  require_std(y, std);
  draw_on_cpu(y, [&](const Tensor& out) { cpu::normal(out, mean, std, generator); });
}

void uniform(const Tensor& y, double from, double to, CudaGenerator& generator) {
  require_range(y, from, to);
  draw_in_parts(y, generator, [&](const Tensor& part, const math::PhiloxLaunch& launch) {
    if constexpr (kCudaBuilt) {
      if (part.device().is_cuda()) return cuda::philox_uniform(part, from, to, launch);
    }
    cpu::philox_uniform(part, from, to, launch);
  });
}

void normal(const Tensor& y, double mean, double std, CudaGenerator& generator) {
  require_std(y, std);
  draw_in_parts(y, generator, [&](const Tensor& part, const math::PhiloxLaunch& launch) {
    if constexpr (kCudaBuilt) {
      if (part.device().is_cuda()) return cuda::philox_normal(part, mean, std, launch);
    }
    cpu::philox_normal(part, mean, std, launch);
  });
}

}  // namespace fusegrad::kernels
