#include <fusegrad/kernels/cpu/reduction.h>
#include <fusegrad/kernels/mse.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::for_each_index;

namespace {

// Calls `body` with the element types of both and the type their difference is taken in.
template <class Body>
void visit_pair(const Tensor& x, const Tensor& target, Body&& body) {
  visit_floating(x.dtype(), "mse_loss", [&]<class X>(TypeTag<X>) {
    visit_floating(target.dtype(), "mse_loss", [&]<class Y>(TypeTag<Y>) {
      using M = std::conditional_t<std::is_same_v<X, double> || std::is_same_v<Y, double>, double, float>;
      body(x.data<X>(), target.data<Y>(), TypeTag<M>{});
    });
  });
}

}  // namespace

void mse(const Tensor& x, const Tensor& target, double divisor, const Tensor& loss) {
  visit_pair(x, target, [&]<class X, class Y, class M>(const X* in, const Y* want, TypeTag<M>) {
    const double total = fusegrad::cpu::reduce(x.numel(), [=](std::int64_t i) {
      const M difference = convert<M>(in[i]) - convert<M>(want[i]);
      return static_cast<double>(difference) * static_cast<double>(difference);
    });
    *loss.data<M>() = static_cast<M>(total / divisor);
  });
}

void mse_none(const Tensor& x, const Tensor& target, const Tensor& loss) {
  visit_pair(x, target, [&]<class X, class Y, class M>(const X* in, const Y* want, TypeTag<M>) {
    M* out = loss.data<M>();
    for_each_index(x.numel(), [=](std::int64_t i) {
      const M difference = convert<M>(in[i]) - convert<M>(want[i]);
      out[i] = difference * difference;
    });
  });
}

void mse_backward(const Tensor& x, const Tensor& target, double factor, const Tensor& grad_loss, const Tensor& grad) {
  visit_pair(x, target, [&]<class X, class Y, class M>(const X* in, const Y* want, TypeTag<M>) {
    visit_floating(grad.dtype(), "mse_loss", [&]<class G>(TypeTag<G>) {
      const M* upstream = grad_loss.data<M>();
      const std::int64_t step = grad_loss.numel() == 1 ? 0 : 1;
      G* out = grad.data<G>();
      const M scale = static_cast<M>(factor);
      for_each_index(x.numel(), [=](std::int64_t i) {
        const M difference = convert<M>(in[i]) - convert<M>(want[i]);
        out[i] = convert<G>(scale * difference * upstream[i * step]);
      });
    });
  });
}

}  // namespace fusegrad::kernels::cpu
