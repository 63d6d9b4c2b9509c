#include <fusegrad/kernels/adam.h>

namespace fusegrad::kernels {

bool fused_adam_takes(DType param, DType grad) {
  if (!is_floating(param) || !is_floating(grad)) return false;
  return param == grad || grad == DType::f32 || (param == DType::f32 && is_half(grad));
}

}  // namespace fusegrad::kernels
