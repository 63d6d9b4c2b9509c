#pragma once
// What autocast asks of operations. The policy stands here, below the operations that consult it; amp/autocast.h sets
// it.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

/// The precision that matrix products run in on one kind of device; inactive: their operands' own.
struct CastPolicy {
  bool active = false;
  DType dtype = DType::f16;
};

/// This thread's policy for `device`.
CastPolicy cast_policy(DeviceType device);
void set_cast_policy(DeviceType device, CastPolicy policy);

/// The operand a matrix product uses in place of `x`: under an active policy a copy in low precision, else `x`. f64 and
/// i64 are never cast. A leaf that requires a gradient (a weight) keeps its copy for as long as its version does not
/// move, so a weight that nobody wrote to is not cast again. No graph is recorded: the product's own backward returns
/// gradients in the dtype of `x`.
Tensor lowered(const Tensor& x);

/// True if an operation that has to run in f32 under autocast (losses, sums, exp, log, …) must widen `x` first.
bool must_widen(const Tensor& x);

}  // namespace fusegrad
