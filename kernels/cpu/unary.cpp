#include <fusegrad/kernels/cpu/parallel.h>
#include <fusegrad/kernels/unary.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::for_each_index;

void unary(Unary op, const Tensor& x, const Tensor& y) {
  visit_floating(x.dtype(), "unary", [&]<class T>(TypeTag<T>) {
    using M = MathType<T>;
    visit_unary(op, [&]<class Op>(Op) {
      const T* in = x.data<T>();
      T* out = y.data<T>();
      for_each_index(x.numel(), [=](std::int64_t i) { out[i] = convert<T>(Op::value(convert<M>(in[i]))); });
    });
  });
}

void unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x) {
  visit_floating(x.dtype(), "unary", [&]<class T>(TypeTag<T>) {
    using M = MathType<T>;
    visit_unary(op, [&]<class Op>(Op) {
      const T* in = x.data<T>();
      const T* result = y.data<T>();
      const T* grad = grad_y.data<T>();
      T* out = grad_x.data<T>();
      for_each_index(x.numel(), [=](std::int64_t i) {
        out[i] = convert<T>(convert<M>(grad[i]) * Op::slope(convert<M>(in[i]), convert<M>(result[i])));
      });
    });
  });
}

}  // namespace fusegrad::kernels::cpu
