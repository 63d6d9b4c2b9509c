// Elementwise functions of one argument on a GPU.

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/unary.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::for_each_index;

namespace {

template <class T, class Op>
void apply(const Tensor& x, const Tensor& y) {
  using M = MathType<T>;
  const T* in = x.data<T>();
  T* out = y.data<T>();
  for_each_index(y.device(), x.numel(),
                 [=] __device__(std::int64_t i) { out[i] = convert<T>(Op::value(convert<M>(in[i]))); });
}

template <class T, class Op>
void apply_backward(const Tensor& x, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x) {
  using M = MathType<T>;
  const T* in = x.data<T>();
  const T* result = y.data<T>();
  const T* grad = grad_y.data<T>();
  T* out = grad_x.data<T>();
  for_each_index(x.device(), x.numel(), [=] __device__(std::int64_t i) {
    out[i] = convert<T>(convert<M>(grad[i]) * Op::slope(convert<M>(in[i]), convert<M>(result[i])));
  });
}

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& y) {
  visit_floating(x.dtype(), "unary",
                 [&]<class T>(TypeTag<T>) { visit_unary(op, [&]<class Op>(Op) { apply<T, Op>(x, y); }); });
}

void unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x) {
  visit_floating(x.dtype(), "unary", [&]<class T>(TypeTag<T>) {
    visit_unary(op, [&]<class Op>(Op) { apply_backward<T, Op>(x, y, grad_y, grad_x); });
  });
}

}  // namespace fusegrad::kernels::cuda
