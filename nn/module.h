#pragma once
// Module: a named tree of parameters with a forward.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fusegrad/runtime/state_dict.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::nn {

/// Base of layers and models. A subclass registers its parameters and parts in its constructor:
///
///     class Model : public nn::Module {
///      public:
///       Model() { register_module("head", head_); }
///       Tensor forward(const Tensor& x) override { return head_->forward(x); }
///      private:
///       std::shared_ptr<nn::Linear> head_ = std::make_shared<nn::Linear>(10, 10);
///     };
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }

  /// Parameters of this module and all its parts, as "part.name", in the order of registration (own ones first).
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> named_parameters() const;
  [[nodiscard]] std::vector<Tensor> parameters() const;

  /// Moves all parameters, in place: handles that others hold (an optimizer, say) follow. Gradients are dropped.
  /// Throws `DeviceError` if the device is not there.
  void to(Device device);
  /// Converts all parameters, in place.
  void to(DType dtype);

  /// Switches this module and its parts to training or evaluation.
  void train() { set_training(true); }
  void eval() { set_training(false); }
  [[nodiscard]] bool is_training() const { return training_; }

  /// Drops the gradients of all parameters; their memory stays for the next ones (Tensor::zero_grad).
  void zero_grad() const;

  /// The parameters by name; the tensors themselves, not copies.
  [[nodiscard]] StateDict state_dict() const;
  /// Copies values into the parameters. Throws `StateError` for missing or unknown names and `ShapeError` for other
  /// shapes; then nothing has changed.
  void load_state_dict(const StateDict& state);

 protected:
  Module() = default;
  /// Throws `ValueError` for an empty name, one with a dot, or one already taken; a parameter requires a gradient from
  /// here on.
  Tensor register_parameter(std::string_view name, Tensor parameter);
  void register_module(std::string_view name, std::shared_ptr<Module> module);

 private:
  void require_new_name(std::string_view name) const;
  void collect(const std::string& prefix, std::vector<std::pair<std::string, Tensor>>& into) const;
  void set_training(bool training);

  std::vector<std::pair<std::string, Tensor>> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules_;
  bool training_ = true;
};

}  // namespace fusegrad::nn
