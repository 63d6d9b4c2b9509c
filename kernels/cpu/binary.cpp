#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/cpu/parallel.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::for_each_index;
using fusegrad::cpu::kGrain;
using fusegrad::cpu::parallel_for;
using fusegrad::cpu::vectorized;

namespace {

// One stretch of the innermost dimension. Strides are 0 or 1 and known to the compiler, so that the loop vectorises.
template <class T, class Op, int kStrideA, int kStrideB>
void row(const T* a, const T* b, T* out, std::int64_t count) {
  using M = MathType<T>;
  vectorized(
      [=](std::int64_t first, std::int64_t last) {
#pragma GCC ivdep
        for (std::int64_t i = first; i < last; ++i) {
          out[i] = convert<T>(Op::value(convert<M>(a[i * kStrideA]), convert<M>(b[i * kStrideB])));
        }
      },
      0, count);
}

template <class T, class Op>
void row(const T* a, std::int64_t stride_a, const T* b, std::int64_t stride_b, T* out, std::int64_t count) {
  if (stride_a != 0 && stride_b != 0) return row<T, Op, 1, 1>(a, b, out, count);
  if (stride_a != 0) return row<T, Op, 1, 0>(a, b, out, count);
  if (stride_b != 0) return row<T, Op, 0, 1>(a, b, out, count);
  row<T, Op, 0, 0>(a, b, out, count);
}

template <class T, class Op>
void apply(const T* a, const T* b, T* out, const BroadcastPlan& plan) {
  const std::int64_t inner = plan.size[0];
  if (plan.dims == 1) {
    return parallel_for(inner, kGrain, [&](std::int64_t begin, std::int64_t end) {
      row<T, Op>(a + begin * plan.stride_a[0], plan.stride_a[0], b + begin * plan.stride_b[0], plan.stride_b[0],
                 out + begin, end - begin);
    });
  }
  std::int64_t rows = 1;
  for (int d = 1; d < plan.dims; ++d) rows *= plan.size[static_cast<std::size_t>(d)];
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / inner);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::int64_t rest = r;
      std::int64_t offset_a = 0;
      std::int64_t offset_b = 0;
      for (std::size_t d = 1; d < static_cast<std::size_t>(plan.dims); ++d) {
        const std::int64_t index = rest % plan.size[d];
        rest /= plan.size[d];
        offset_a += index * plan.stride_a[d];
        offset_b += index * plan.stride_b[d];
      }
      row<T, Op>(a + offset_a, plan.stride_a[0], b + offset_b, plan.stride_b[0], out + r * inner, inner);
    }
  });
}

}  // namespace

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out, const BroadcastPlan& plan) {
  visit_floating(out.dtype(), "binary", [&]<class T>(TypeTag<T>) {
    visit_binary(op, [&]<class Op>(Op) { apply<T, Op>(a.data<T>(), b.data<T>(), out.data<T>(), plan); });
  });
}

void binary_scalar(Binary op, const Tensor& a, double scalar, Side side, const Tensor& out) {
  visit_floating(out.dtype(), "binary", [&]<class T>(TypeTag<T>) {
    using M = MathType<T>;
    visit_binary(op, [&]<class Op>(Op) {
      const T* in = a.data<T>();
      T* result = out.data<T>();
      const M number = convert<M>(scalar);
      if (side == Side::right) {
        for_each_index(out.numel(),
                       [=](std::int64_t i) { result[i] = convert<T>(Op::value(convert<M>(in[i]), number)); });
      } else {
        for_each_index(out.numel(),
                       [=](std::int64_t i) { result[i] = convert<T>(Op::value(number, convert<M>(in[i]))); });
      }
    });
  });
}

}  // namespace fusegrad::kernels::cpu
