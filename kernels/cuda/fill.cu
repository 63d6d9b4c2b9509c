// Fill, and copy with conversion, on a GPU.

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/fill.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::for_each_index;

namespace {

template <class T>
void fill_with(const Tensor& y, double value) {
  T* out = y.data<T>();
  const T element = convert<T>(value);
  for_each_index(y.device(), y.numel(), [=] __device__(std::int64_t i) { out[i] = element; });
}

template <class From, class To>
void convert_all(const Tensor& src, const Tensor& dst) {
  const From* in = src.data<From>();
  To* out = dst.data<To>();
  for_each_index(dst.device(), src.numel(), [=] __device__(std::int64_t i) { out[i] = convert<To>(in[i]); });
}

}  // namespace

void fill(const Tensor& y, double value) {
  visit(y.dtype(), [&]<class T>(TypeTag<T>) { fill_with<T>(y, value); });
}

void copy(const Tensor& src, const Tensor& dst) {
  visit(src.dtype(), [&]<class From>(TypeTag<From>) {
    visit(dst.dtype(), [&]<class To>(TypeTag<To>) { convert_all<From, To>(src, dst); });
  });
}

}  // namespace fusegrad::kernels::cuda
