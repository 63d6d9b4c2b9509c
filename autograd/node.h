#pragma once
// The recorded graph: one Node an operation, holding the way back. An operation's file reads
//
//     Tensor square(const Tensor& x) {
//       Tensor y = …;                                          // forward
//       return record("square", y, {x}, [x = SavedTensor(x)](const Tensor& grad_y, const NeededGrads&) {
//         return Grads{…};                                     // backward: one gradient an input
//       });
//     }

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

/// Gradients of an operation's inputs, in their order; undefined where none is needed.
using Grads = std::vector<Tensor>;

/// Where an input's gradient goes on to: the node it came from, or the leaf that accumulates it, or nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  Tensor leaf;
  [[nodiscard]] bool needs_grad() const { return node != nullptr || leaf.defined(); }
};

/// Which inputs of an operation want a gradient, so that backward can leave the others out, and where it is to lie.
class NeededGrads {
 public:
  /// `inputs` must outlive it.
  explicit NeededGrads(const std::vector<Edge>& inputs) : inputs_(&inputs) {}
  bool operator[](std::size_t input) const { return (*inputs_)[input].needs_grad(); }

  /// The dtype in which a gradient of this input is kept where the input is a leaf that asked for one (an f32 weight
  /// whose gradients are to stay in 16 bits), else `own`.
  [[nodiscard]] DType dtype(std::size_t input, DType own) const;
  /// Uninitialised memory for the gradient of this input: what a leaf without a gradient has kept for it, if that fits,
  /// else a new tensor. Ask once an input, and return it as that input's gradient or not at all.
  [[nodiscard]] Tensor output(std::size_t input, const Shape& shape, DType dtype, Device device) const;

 private:
  const std::vector<Edge>* inputs_;
};

/// A tensor kept for backward. It shares the elements but not the graph (so a result saved by its own node makes no
/// cycle), and remembers the version it saw.
class SavedTensor {
 public:
  SavedTensor() = default;
  /// `op` names the operation in the error message; an undefined tensor is kept as such.
  SavedTensor(std::string_view op, const Tensor& tensor);
  /// The tensor. Throws `StateError` if it was written to in place since.
  [[nodiscard]] Tensor get() const;

 private:
  std::string_view op_;
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

using BackwardFunction = std::function<Grads(const Tensor& grad_output, const NeededGrads& needed)>;

/// One recorded operation with a single result.
class Node {
 public:
  Node(std::string_view name, DType dtype, std::vector<Edge> inputs, BackwardFunction backward);
  /// Frees the graph behind it without recursion, however long it is.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] std::string_view name() const { return name_; }
  /// The dtype of the operation's result, and so of the gradient that it expects.
  [[nodiscard]] DType dtype() const { return dtype_; }
  /// Counts up over all nodes of the program; inputs have smaller numbers than their results.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] const std::vector<Edge>& inputs() const { return inputs_; }
  /// Runs the way back. Throws `StateError` if it was freed by an earlier backward.
  [[nodiscard]] Grads run(const Tensor& grad_output) const;
  /// Drops what backward kept.
  void release() {
    backward_ = nullptr;
    released_ = true;
  }

 private:
  std::string_view name_;
  DType dtype_;
  std::uint64_t sequence_;
  std::vector<Edge> inputs_;
  BackwardFunction backward_;
  bool released_ = false;
};

/// True if an operation on these inputs has to be recorded: recording is on and one of them requires a gradient.
bool needs_record(std::initializer_list<Tensor> inputs);

/// Hangs a node on `output` if the operation has to be recorded, and returns `output`. `name` must outlive the graph (a
/// literal).
Tensor record(std::string_view name, const Tensor& output, std::initializer_list<Tensor> inputs,
              BackwardFunction backward);

}  // namespace fusegrad
