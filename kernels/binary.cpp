#include <fusegrad/kernels/binary.h>

namespace fusegrad::kernels {
namespace {

struct Strides {
  std::array<std::int64_t, Shape::kMaxDims> from_inside{};
};

// Row-major strides of `shape` seen from `out`, innermost first, 0 where a size of 1 stretches or is missing.
Strides strides_in(const Shape& shape, const Shape& out) {
  Strides strides;
  std::int64_t stride = 1;
  for (int back = 1; back <= shape.dims(); ++back) {
    const bool stretched = shape[-back] == 1 && out[-back] != 1;
    strides.from_inside[static_cast<std::size_t>(back - 1)] = stretched ? 0 : stride;
    stride *= shape[-back];
  }
  return strides;
}

}  // namespace

BroadcastPlan plan_broadcast(const Shape& a, const Shape& b, const Shape& out) {
  const Strides of_a = strides_in(a, out);
  const Strides of_b = strides_in(b, out);
  BroadcastPlan plan;
  for (int back = 1; back <= out.dims(); ++back) {
    const std::size_t dim = static_cast<std::size_t>(back - 1);
    const std::int64_t size = out[-back];
    if (size == 1) continue;
    if (plan.dims > 0) {
      const std::size_t last = static_cast<std::size_t>(plan.dims - 1);
      const bool merges = of_a.from_inside[dim] == plan.stride_a[last] * plan.size[last] &&
                          of_b.from_inside[dim] == plan.stride_b[last] * plan.size[last];
      if (merges) {
        plan.size[last] *= size;
        continue;
      }
    }
    const std::size_t next = static_cast<std::size_t>(plan.dims++);
    plan.size[next] = size;
    plan.stride_a[next] = of_a.from_inside[dim];
    plan.stride_b[next] = of_b.from_inside[dim];
  }
  if (plan.dims == 0) {
    plan.dims = 1;
    plan.size[0] = 1;
  }
  return plan;
}

}  // namespace fusegrad::kernels
