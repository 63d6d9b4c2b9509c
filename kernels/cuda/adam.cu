// The steps of Adam on a GPU, each an elementwise kernel of its own. All at once: fused_adam.cu.

#include <fusegrad/kernels/adam.h>
#include <fusegrad/kernels/cuda/launch.cuh>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::for_each_index;

namespace {

template <class T, class Step>
void run_step(const AdamStepArgs& args) {
  const T* a = args.a.data<T>();
  const T* b = args.b.defined() ? args.b.data<T>() : a;
  const T* c = args.c.defined() ? args.c.data<T>() : a;
  T* out = args.out.data<T>();
  const T x = static_cast<T>(args.x);
  const T y = static_cast<T>(args.y);
  for_each_index(args.out.device(), args.out.numel(),
                 [=] __device__(std::int64_t i) { out[i] = Step::value(a[i], b[i], c[i], x, y); });
}

}  // namespace

void adam_step(AdamStep step, const AdamStepArgs& args) {
  visit_math(args.out.dtype(), "adam_step",
             [&]<class T>(TypeTag<T>) { visit_adam_step(step, [&]<class Step>(Step) { run_step<T, Step>(args); }); });
}

}  // namespace fusegrad::kernels::cuda
