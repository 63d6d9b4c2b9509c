#pragma once
// Backward: walks the recorded graph from a result to its leaves.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

struct BackwardOptions {
  /// Keep what the graph saved, for another backward. Otherwise each node is freed as soon as it has run.
  bool retain_graph = false;
};

/// Adds d(root)/d(leaf), or `gradient`·d(root)/d(leaf), to the `.grad` of every leaf that requires a gradient and that
/// `root` was computed from. Gradients reach a node in one fixed order (nodes run from the last recorded to the first),
/// so results repeat bit for bit. A leaf's gradient has the leaf's dtype, unless another was asked
/// for (Optimizer::use_gradient_buffers); the first gradient after `zero_grad` is written over the last one's memory.
///
/// `root` may have any shape if `gradient` (same shape) is given, else it has one element.
/// Throws `StateError` if `root` requires no gradient, if its graph was freed by an earlier backward, or if a saved
/// tensor was written to in place; `ShapeError` for a missing or misfitting `gradient`; then no `.grad` that was not
/// reached yet has changed.
void backward(const Tensor& root, const Tensor& gradient = {}, const BackwardOptions& options = {});

}  // namespace fusegrad
