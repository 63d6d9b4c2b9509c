#include <algorithm>
#include <atomic>
#include <utility>

#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/node.h>

namespace fusegrad {
namespace {

std::atomic<std::uint64_t> next_sequence{0};

}  // namespace

DType NeededGrads::dtype(std::size_t input, DType own) const {
  const Tensor& leaf = (*inputs_)[input].leaf;
  return leaf.defined() ? leaf.record().gradient.dtype(own) : own;
}

Tensor NeededGrads::output(std::size_t input, const Shape& shape, DType dtype, Device device) const {
  const Tensor& leaf = (*inputs_)[input].leaf;
  // Where a leaf is an input twice, the first one's gradient arrives first and so begins the sum.
  const auto end = inputs_->begin() + static_cast<std::ptrdiff_t>(input);
  const auto is_leaf = [&](const Edge& edge) { return edge.leaf.is_same(leaf); };
  if (leaf.defined() && std::none_of(inputs_->begin(), end, is_leaf)) {
    if (Tensor kept = leaf.record().gradient.take(shape, dtype, device); kept.defined()) return kept;
  }
  return Tensor::empty(shape, dtype, device);
}

SavedTensor::SavedTensor(std::string_view op, const Tensor& tensor) : op_(op) {
  if (!tensor.defined()) return;
  tensor_ = tensor.detach();
  version_ = tensor.version();
}

Tensor SavedTensor::get() const {
  if (tensor_.defined() && tensor_.version() != version_) {
    throw StateError({.op = std::string(op_),
                      .got = cat("a tensor of shape ", tensor_.shape().str(), " at version ", tensor_.version(),
                                 " that was saved for backward at version ", version_),
                      .want = "a saved tensor without in-place writes between forward and backward",
                      .way_out = "Write to a copy instead, or run backward first"});
  }
  return tensor_;
}

Node::Node(std::string_view name, DType dtype, std::vector<Edge> inputs, BackwardFunction backward)
    : name_(name),
      dtype_(dtype),
      sequence_(next_sequence++),
      inputs_(std::move(inputs)),
      backward_(std::move(backward)) {}

Node::~Node() {
  // Destroying the last handle of an input destroys that node in turn. A chain of 100,000 would need as many stack
  // frames; so the first destructor on this thread collects the inputs of all later ones and frees them in a loop.
  static thread_local std::vector<Edge>* collected = nullptr;
  if (collected != nullptr) {
    std::move(inputs_.begin(), inputs_.end(), std::back_inserter(*collected));
    return;
  }
  std::vector<Edge> pending = std::move(inputs_);
  collected = &pending;
  while (!pending.empty()) {
    const Edge last = std::move(pending.back());
    pending.pop_back();
  }
  collected = nullptr;
}

Grads Node::run(const Tensor& grad_output) const {
  if (released_) {
    throw StateError({.op = "backward",
                      .got = cat("a second backward through the graph of ", name_),
                      .want = "one backward a forward: the first one frees what it kept",
                      .way_out = "Pass {.retain_graph = true} to the first backward, or run forward again"});
  }
  return backward_(grad_output, NeededGrads(inputs_));
}

bool needs_record(std::initializer_list<Tensor> inputs) {
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.requires_grad(); });
}

Tensor record(std::string_view name, const Tensor& output, std::initializer_list<Tensor> inputs,
              BackwardFunction backward) {
  if (!needs_record(inputs)) return output;
  std::vector<Edge> edges;
  edges.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    if (!input.requires_grad()) {
      edges.emplace_back();
    } else if (std::shared_ptr<Node> node = input.grad_fn()) {
      edges.push_back({.node = std::move(node), .leaf = {}});
    } else {
      edges.push_back({.node = nullptr, .leaf = input});
    }
  }
  output.record().grad_fn = std::make_shared<Node>(name, output.dtype(), std::move(edges), std::move(backward));
  return output;
}

}  // namespace fusegrad
