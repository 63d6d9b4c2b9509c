#include <fusegrad/kernels/cpu/parallel.h>
#include <fusegrad/kernels/fill.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::for_each_index;

void fill(const Tensor& y, double value) {
  visit(y.dtype(), [&]<class T>(TypeTag<T>) {
    T* out = y.data<T>();
    const T element = convert<T>(value);
    for_each_index(y.numel(), [=](std::int64_t i) { out[i] = element; });
  });
}

void copy(const Tensor& src, const Tensor& dst) {
  visit(src.dtype(), [&]<class From>(TypeTag<From>) {
    visit(dst.dtype(), [&]<class To>(TypeTag<To>) {
      const From* in = src.data<From>();
      To* out = dst.data<To>();
      for_each_index(src.numel(), [=](std::int64_t i) { out[i] = convert<To>(in[i]); });
    });
  });
}

}  // namespace fusegrad::kernels::cpu
