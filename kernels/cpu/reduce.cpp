#include <fusegrad/kernels/cpu/reduction.h>
#include <fusegrad/kernels/reduce.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::parallel_for;
using fusegrad::cpu::vectorized;

void sum_all(const Tensor& x, double divisor, const Tensor& y) {
  const double total = visit_floating(x.dtype(), "sum", [&]<class T>(TypeTag<T>) {
    const T* in = x.data<T>();
    return fusegrad::cpu::reduce(x.numel(), [=](std::int64_t i) { return convert<double>(in[i]); });
  });
  visit_floating(y.dtype(), "sum", [&]<class T>(TypeTag<T>) { *y.data<T>() = convert<T>(total / divisor); });
}

void sum_dim(const Tensor& x, const ReduceShape& shape, double divisor, const Tensor& y) {
  visit_floating(x.dtype(), "sum", [&]<class T>(TypeTag<T>) {
    visit_floating(y.dtype(), "sum", [&]<class Y>(TypeTag<Y>) {
      const T* in = x.data<T>();
      Y* out = y.data<Y>();
      const auto [outer, reduced, inner] = shape;
      constexpr std::int64_t kTile = 512;  // sums of a stretch of `inner` that stay in the first-level cache
      const std::int64_t tiles = (inner + kTile - 1) / kTile;
      const std::int64_t grain = std::max<std::int64_t>(1, fusegrad::cpu::kGrain / std::max<std::int64_t>(1, reduced));
      parallel_for(outer * tiles, grain, [&, reduced = reduced, inner = inner](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          const std::int64_t first = t % tiles * kTile;
          const std::int64_t width = std::min(kTile, inner - first);
          const T* column = in + t / tiles * reduced * inner + first;
          Y* sums_out = out + t / tiles * inner + first;
          if (inner == 1) {
            const double total = fusegrad::cpu::reduce_chunk(
                0, reduced, [=](std::int64_t r) { return convert<double>(column[r]); }, fusegrad::cpu::Add{});
            *sums_out = convert<Y>(total / divisor);
            continue;
          }
          vectorized(
              [=](std::int64_t row_begin, std::int64_t row_end) {
                double sums[kTile] = {};
                for (std::int64_t r = row_begin; r < row_end; ++r) {
                  for (std::int64_t i = 0; i < width; ++i) sums[i] += convert<double>(column[r * inner + i]);
                }
                for (std::int64_t i = 0; i < width; ++i) sums_out[i] = convert<Y>(sums[i] / divisor);
              },
              0, reduced);
        }
      });
    });
  });
}

}  // namespace fusegrad::kernels::cpu
