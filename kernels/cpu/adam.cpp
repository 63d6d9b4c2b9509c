#include <fusegrad/kernels/adam.h>
#include <fusegrad/kernels/cpu/parallel.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::for_each_index;

void adam_step(AdamStep step, const AdamStepArgs& args) {
  visit_math(args.out.dtype(), "adam_step", [&]<class T>(TypeTag<T>) {
    visit_adam_step(step, [&]<class Step>(Step) {
      const T* a = args.a.data<T>();
      const T* b = args.b.defined() ? args.b.data<T>() : a;
      const T* c = args.c.defined() ? args.c.data<T>() : a;
      T* out = args.out.data<T>();
      const T x = static_cast<T>(args.x);
      const T y = static_cast<T>(args.y);
      for_each_index(args.out.numel(), [=](std::int64_t i) { out[i] = Step::value(a[i], b[i], c[i], x, y); });
    });
  });
}

}  // namespace fusegrad::kernels::cpu
