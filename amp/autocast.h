#pragma once
// Autocast: matrix products in low precision, where it is safe, without a change to the model.

#include <fusegrad/autograd/cast_policy.h>

namespace fusegrad::amp {

struct AutocastOptions {
  DeviceType device = DeviceType::cpu;
  DType dtype = DType::f16;  ///< f16 or bf16
  bool enabled = true;       ///< false: turn autocast off inside an outer region
};

/// Until the guard's end, `linear` and `matmul` on that kind of device cast their operands to `dtype` and return it;
/// losses, sums, means, `exp`, `log` and `square` run in f32; everything else keeps its inputs' dtype. f64 is never
/// cast. Regions nest; the end of one restores what was before. Per thread. Run backward outside the region: each
/// operation goes back in the precision that forward chose.
///
///     Tensor loss;
///     {
///       amp::Autocast region({.device = DeviceType::cuda, .dtype = DType::f16});
///       loss = mse_loss(model(x), target);   // f32
///     }
///
/// A weight's low-precision copy is kept beside the weight and used until the weight's version moves, so changed
/// weights take effect at once, in the same region too.
class Autocast {
 public:
  /// Throws `DTypeError` for any dtype but f16 and bf16.
  explicit Autocast(const AutocastOptions& options);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  DeviceType device_;
  CastPolicy previous_;
};

}  // namespace fusegrad::amp
