// Elementwise functions of two arguments on a GPU, with broadcasting.

#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/cuda/launch.cuh>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::for_each_index;

namespace {

// Where one dimension is left after merging, an operand is walked through (stride 1) or stands still (stride 0).
template <class T, class Op>
void apply_flat(const T* a, const T* b, const Tensor& out, std::int64_t stride_a, std::int64_t stride_b) {
  using M = MathType<T>;
  T* result = out.data<T>();
  for_each_index(out.device(), out.numel(), [=] __device__(std::int64_t i) {
    result[i] = convert<T>(Op::value(convert<M>(a[i * stride_a]), convert<M>(b[i * stride_b])));
  });
}

template <class T, class Op>
void apply_general(const T* a, const T* b, const Tensor& out, const BroadcastPlan& plan) {
  using M = MathType<T>;
  T* result = out.data<T>();
  for_each_index(out.device(), out.numel(), [=] __device__(std::int64_t i) {
    std::int64_t rest = i;
    std::int64_t offset_a = 0;
    std::int64_t offset_b = 0;
    for (int d = 0; d < plan.dims; ++d) {
      const std::int64_t index = rest % plan.size[d];
      rest /= plan.size[d];
      offset_a += index * plan.stride_a[d];
      offset_b += index * plan.stride_b[d];
    }
    result[i] = convert<T>(Op::value(convert<M>(a[offset_a]), convert<M>(b[offset_b])));
  });
}

template <class T, class Op>
void apply(const Tensor& a, const Tensor& b, const Tensor& out, const BroadcastPlan& plan) {
  if (plan.dims == 1) {
    apply_flat<T, Op>(a.data<T>(), b.data<T>(), out, plan.stride_a[0], plan.stride_b[0]);
  } else {
    apply_general<T, Op>(a.data<T>(), b.data<T>(), out, plan);
  }
}

template <class T, class Op>
void apply_scalar(const Tensor& a, double scalar, Side side, const Tensor& out) {
  using M = MathType<T>;
  const T* in = a.data<T>();
  T* result = out.data<T>();
  const M number = convert<M>(scalar);
  const bool on_right = side == Side::right;
  for_each_index(out.device(), out.numel(), [=] __device__(std::int64_t i) {
    const M element = convert<M>(in[i]);
    result[i] = convert<T>(on_right ? Op::value(element, number) : Op::value(number, element));
  });
}

}  // namespace

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out, const BroadcastPlan& plan) {
  visit_floating(out.dtype(), "binary",
                 [&]<class T>(TypeTag<T>) { visit_binary(op, [&]<class Op>(Op) { apply<T, Op>(a, b, out, plan); }); });
}

void binary_scalar(Binary op, const Tensor& a, double scalar, Side side, const Tensor& out) {
  visit_floating(out.dtype(), "binary", [&]<class T>(TypeTag<T>) {
    visit_binary(op, [&]<class Op>(Op) { apply_scalar<T, Op>(a, scalar, side, out); });
  });
}

}  // namespace fusegrad::kernels::cuda
