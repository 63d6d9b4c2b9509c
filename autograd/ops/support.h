#pragma once
// Small unrecorded helpers that several operations' backward share.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::ops {

/// x repeated to `shape`, which it broadcasts to.
Tensor expand(const Tensor& x, const Shape& shape);

/// The way back of broadcasting: `out` ← x summed over the dimensions in which `out` has size 1 or that it lacks. There
/// is at least one.
void sum_to(const Tensor& x, const Tensor& out);

}  // namespace fusegrad::ops
