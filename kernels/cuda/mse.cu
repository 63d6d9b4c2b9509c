// Mean squared error on a GPU.

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/cuda/reduction.cuh>
#include <fusegrad/kernels/mse.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::for_each_index;

namespace {

template <class X, class Y>
using PairMath = std::conditional_t<std::is_same_v<X, double> || std::is_same_v<Y, double>, double, float>;

template <class Body>
void visit_pair(const Tensor& x, const Tensor& target, Body&& body) {
  visit_floating(x.dtype(), "mse_loss", [&]<class X>(TypeTag<X>) {
    visit_floating(target.dtype(), "mse_loss", [&]<class Y>(TypeTag<Y>) { body(TypeTag<X>{}, TypeTag<Y>{}); });
  });
}

template <class X, class Y>
void sum_of_squares(const Tensor& x, const Tensor& target, double divisor, const Tensor& loss) {
  using M = PairMath<X, Y>;
  const X* in = x.data<X>();
  const Y* want = target.data<Y>();
  M* out = loss.data<M>();
  const auto load = [=] __device__(std::int64_t i) {
    const M difference = convert<M>(in[i]) - convert<M>(want[i]);
    return static_cast<double>(difference) * static_cast<double>(difference);
  };
  const auto finish = [=] __device__(double total) { *out = static_cast<M>(total / divisor); };
  fusegrad::cuda::reduce(x.device(), x.numel(), load, finish);
}

template <class X, class Y>
void squares(const Tensor& x, const Tensor& target, const Tensor& loss) {
  using M = PairMath<X, Y>;
  const X* in = x.data<X>();
  const Y* want = target.data<Y>();
  M* out = loss.data<M>();
  for_each_index(x.device(), x.numel(), [=] __device__(std::int64_t i) {
    const M difference = convert<M>(in[i]) - convert<M>(want[i]);
    out[i] = difference * difference;
  });
}

template <class X, class Y, class G>
void gradient(const Tensor& x, const Tensor& target, double factor, const Tensor& grad_loss, const Tensor& grad) {
  using M = PairMath<X, Y>;
  const X* in = x.data<X>();
  const Y* want = target.data<Y>();
  const M* upstream = grad_loss.data<M>();
  const std::int64_t step = grad_loss.numel() == 1 ? 0 : 1;
  G* out = grad.data<G>();
  const M scale = static_cast<M>(factor);
  for_each_index(x.device(), x.numel(), [=] __device__(std::int64_t i) {
    const M difference = convert<M>(in[i]) - convert<M>(want[i]);
    out[i] = convert<G>(scale * difference * upstream[i * step]);
  });
}

}  // namespace

void mse(const Tensor& x, const Tensor& target, double divisor, const Tensor& loss) {
  visit_pair(x, target,
             [&]<class X, class Y>(TypeTag<X>, TypeTag<Y>) { sum_of_squares<X, Y>(x, target, divisor, loss); });
}

void mse_none(const Tensor& x, const Tensor& target, const Tensor& loss) {
  visit_pair(x, target, [&]<class X, class Y>(TypeTag<X>, TypeTag<Y>) { squares<X, Y>(x, target, loss); });
}

void mse_backward(const Tensor& x, const Tensor& target, double factor, const Tensor& grad_loss, const Tensor& grad) {
  visit_pair(x, target, [&]<class X, class Y>(TypeTag<X>, TypeTag<Y>) {
    visit_floating(grad.dtype(), "mse_loss",
                   [&]<class G>(TypeTag<G>) { gradient<X, Y, G>(x, target, factor, grad_loss, grad); });
  });
}

}  // namespace fusegrad::kernels::cuda
