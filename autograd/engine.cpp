#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fusegrad/autograd/engine.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/node.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>

namespace fusegrad {
namespace {

using kernels::Binary;
using kernels::converted;

// A gradient on its way: the sum so far, and whether its memory is ours alone to add to.
struct Pending {
  Tensor sum;
  bool owned = false;
};

void add_to(Pending& pending, const Tensor& grad) {
  if (!pending.sum.defined()) {
    pending.sum = grad;
    return;
  }
  if (pending.owned) {
    kernels::binary(Binary::add, pending.sum, grad, pending.sum);
    return;
  }
  // The first gradient may be shared (an operation may hand one tensor to two inputs), so the sum gets its own memory.
  Tensor sum = Tensor::empty(pending.sum.shape(), pending.sum.dtype(), pending.sum.device());
  kernels::binary(Binary::add, pending.sum, grad, sum);
  pending = {.sum = sum, .owned = true};
}

// Adds a finished gradient to a leaf. The first one is adopted as it is, unless somebody else reaches its memory too
// (an operation may hand one tensor, or two views of it, to several inputs) or the leaf's gradients have a fixed place.
void accumulate(const Tensor& leaf, Tensor grad) {
  require_same_device({leaf, grad}, "backward (a parameter has moved since forward)");
  GradientSlot& slot = leaf.record().gradient;
  if (slot.get().defined()) {
    kernels::binary(Binary::add, slot.get(), converted(grad, slot.get().dtype()), slot.get());
    slot.get().bump_version();
    return;
  }
  const DType dtype = slot.dtype(leaf.dtype());
  if (!slot.place().defined() && grad.dtype() == dtype && grad.is_sole_owner()) return slot.set(std::move(grad));
  Tensor first = slot.take(grad.shape(), dtype, grad.device());
  if (!first.defined()) first = Tensor::empty(grad.shape(), dtype, grad.device());
  if (!slot.is_in_place(grad)) kernels::copy(grad, first);
  first.bump_version();  // others may reach a fixed place
  slot.set(std::move(first));
}

// How many recorded results each node's gradient is summed from, over the part of the graph behind `root`.
std::unordered_map<const Node*, int> count_uses(const std::shared_ptr<Node>& root) {
  std::unordered_map<const Node*, int> uses;
  std::vector<const Node*> stack{root.get()};
  uses[root.get()] = 1;
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const Edge& edge : node->inputs()) {
      if (edge.node == nullptr) continue;
      if (uses[edge.node.get()]++ == 0) stack.push_back(edge.node.get());
    }
  }
  return uses;
}

struct BySequence {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
    return a->sequence() < b->sequence();
  }
};

void require_fitting(const Tensor& grad, const Shape& shape, std::string_view op) {
  if (grad.shape() == shape) return;
  throw ShapeError({.op = cat("backward of ", op),
                    .got = cat("a gradient of shape ", grad.shape().str()),
                    .want = shape.str(),
                    .way_out = ""});
}

// The gradient that backward starts from.
Tensor seed_gradient(const Tensor& root, const Tensor& gradient) {
  if (gradient.defined()) {
    require_fitting(gradient, root.shape(), "the given gradient");
    require_same_device({root, gradient}, "backward");
    return converted(gradient, root.dtype());
  }
  if (root.numel() != 1) {
    throw ShapeError({.op = "backward",
                      .got = cat("a result of shape ", root.shape().str(), " and no gradient"),
                      .want = "a result of one element, or a gradient of the result's shape",
                      .way_out = "Reduce it first (sum, mean), or call backward(gradient)"});
  }
  Tensor one = Tensor::empty(root.shape(), root.dtype(), root.device());
  kernels::fill(one, 1.0);
  return one;
}

void run_graph(const std::shared_ptr<Node>& root, const Tensor& seed, const BackwardOptions& options) {
  std::unordered_map<const Node*, int> uses = count_uses(root);
  std::unordered_map<const Node*, Pending> gradients;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, BySequence> ready;
  gradients[root.get()].sum = seed;
  ready.push(root);
  while (!ready.empty()) {
    const std::shared_ptr<Node> node = ready.top();
    ready.pop();
    const Tensor grad_output = std::exchange(gradients[node.get()], {}).sum;
    Grads grads = grad_output.defined() ? node->run(grad_output) : Grads(node->inputs().size());
    if (!options.retain_graph) node->release();
    for (std::size_t i = 0; i < grads.size(); ++i) {
      const Edge& edge = node->inputs()[i];
      if (!edge.needs_grad()) continue;
      if (edge.leaf.defined()) {
        if (!grads[i].defined()) continue;
        require_fitting(grads[i], edge.leaf.shape(), node->name());
        accumulate(edge.leaf, std::move(grads[i]));
        continue;
      }
      // An operation that cast its input returns the gradient in the dtype it worked in.
      if (grads[i].defined()) add_to(gradients[edge.node.get()], converted(grads[i], edge.node->dtype()));
      if (--uses[edge.node.get()] == 0) ready.push(edge.node);
    }
  }
}

}  // namespace

void backward(const Tensor& root, const Tensor& gradient, const BackwardOptions& options) {
  if (!root.requires_grad()) {
    throw StateError({.op = "backward",
                      .got = "a tensor that requires no gradient",
                      .want = "a result computed from a leaf with requires_grad_()",
                      .way_out = "Was it computed under NoGrad, or from detached tensors only?"});
  }
  const Tensor seed = seed_gradient(root, gradient);
  const NoGrad guard;
  if (const std::shared_ptr<Node> node = root.grad_fn()) {
    run_graph(node, seed, options);
  } else {
    accumulate(root, seed);
  }
}

void Tensor::backward(const Tensor& gradient) const { fusegrad::backward(*this, gradient); }

void Tensor::backward(const Tensor& gradient, const BackwardOptions& options) const {
  fusegrad::backward(*this, gradient, options);
}

}  // namespace fusegrad
