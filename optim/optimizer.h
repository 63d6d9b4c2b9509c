#pragma once
// Optimizer: what a trainer and a gradient scaler may ask of one. The questions at the centre are `owns_unscaling`,
// `owns_clipping` and `owns_checking`: whoever divides the gradients by the loss scale is decided by their answers, in
// one place (amp/grad_scaler.h), so that it happens exactly once.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fusegrad/kernels/grad_scaler.h>
#include <fusegrad/optim/gradient_clip.h>
#include <fusegrad/runtime/state_dict.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::optim {

/// What happens to the gradients inside the pass that updates the parameters. Every field is a scalar on the
/// parameters' device, or undefined where nothing is to be done; they are arguments of one step, never state of the
/// optimizer.
struct GradTransform {
  Tensor inverse_scale;     ///< f32: gradients are multiplied by it
  Tensor found_inf;         ///< f32: nonzero means that the step changes nothing at all
  Tensor clip_coefficient;  ///< f64: unscaled gradients are multiplied by it
  double clip_value = 0;    ///< then limited to ± this; 0: not limited
};

/// How the gradients of an optimizer's parameters are kept.
struct GradientBufferOptions {
  /// All gradients lie in one buffer, in the order of the parameters, each from a 256-byte boundary on.
  bool flat = false;
  /// f16 or bf16: gradients of the (f32) parameters stay as autocast computes them, instead of being widened to f32.
  /// Micro-batches add up in that dtype, too. Unset: the parameter's dtype.
  std::optional<DType> dtype = {};
};

/// A whole step under mixed precision, for an optimizer that looks at the gradients itself: are all finite, what is
/// their norm, then unscale, clip and update, then move the scale.
struct AmpStep {
  Tensor inverse_scale;  ///< f32: gradients are multiplied by it; undefined: they are taken as they are
  Tensor found_inf;      ///< f32: becomes 1 (and the step changes nothing) or 0; undefined: no step is left out
  bool checked = false;  ///< `found_inf` is known already, and only read
  GradientClip clip;
  Tensor norm;              ///< f64: becomes the norm of the unscaled gradients if `clip.max_norm` asks for it
  Tensor clip_coefficient;  ///< f64: becomes the coefficient then
  /// The scale moves by what was found, after this step has taken the old one. Needs `found_inf` and not `checked`.
  std::optional<kernels::ScaleUpdate> scale_update;
};

/// Base class. A subclass implements `name` and `step`; one that unscales in its own pass also answers `owns_unscaling`
/// and implements `step(const GradTransform&)`; one with state of its own extends the state dict.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// The name that messages use, e.g. "FusedAdam".
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// True if `step(GradTransform)` divides the gradients by the loss scale in the pass that updates the parameters.
  [[nodiscard]] virtual bool owns_unscaling() const { return false; }
  /// True if that pass can also apply a clip coefficient and a clip value.
  [[nodiscard]] virtual bool owns_clipping() const { return false; }

  /// True if `amp_step` also finds out whether all gradients are finite and what their norm is.
  [[nodiscard]] virtual bool owns_checking() const { return false; }

  /// Updates every parameter that has a gradient. Parameters without one keep every bit, their state too.
  virtual void step() = 0;
  /// The same on transformed gradients. Throws `StateError` unless the optimizer owns unscaling.
  virtual void step(const GradTransform& transform);
  /// All that `AmpStep` says. Throws `StateError` unless the optimizer owns checking.
  virtual void amp_step(const AmpStep& what);

  /// Drops all gradients. Their memory stays with the parameters and the next backward writes over it
  /// (Tensor::zero_grad).
  void zero_grad();

  /// All parameters, group after group.
  [[nodiscard]] const std::vector<Tensor>& parameters() const { return parameters_; }
  /// The gradients that exist, in the order of the parameters.
  [[nodiscard]] std::vector<Tensor> gradients() const;
  /// The first gradient that exists, or an undefined tensor.
  [[nodiscard]] Tensor first_gradient() const;

  /// Arranges how gradients are kept from now on, for all parameters, until another call. Those that exist are copied;
  /// handles that others hold keep what they have.
  ///
  /// In a flat buffer, `grad()` is a view: what a handle from an earlier step shows is written over by later backwards.
  /// A gradient set by hand takes the view's place until the next `zero_grad`. A parameter that moves to another
  /// device or dtype leaves the buffer, and its gradients have memory of their own again.
  ///
  /// Throws `DTypeError` for a dtype other than f16 and bf16, for one with parameters other than f32, and for a flat
  /// buffer of gradients of several dtypes; `DeviceError` for one of parameters on several devices; then nothing has
  /// changed.
  void use_gradient_buffers(const GradientBufferOptions& options = {});
  /// The flat buffer as a vector: all gradients, and zeros between them. The place of a parameter that has no gradient
  /// holds what was last written there. Undefined unless asked for, and once a parameter has left the buffer.
  [[nodiscard]] Tensor flat_gradients() const;

  [[nodiscard]] std::size_t group_count() const { return learning_rates_.size(); }
  /// The learning rate of one parameter group. Throws `ValueError` for a group that is not there.
  [[nodiscard]] double learning_rate(std::size_t group = 0) const;
  /// Sets it from the next step on, or the next replay of a captured step. Throws `ValueError` for a negative or NaN
  /// rate.
  void set_learning_rate(double lr, std::size_t group = 0);

  /// State and options. Tensors: "state.<i>.<name>" for parameter i; numbers: "param_groups.<g>.<option>". Reading it
  /// from a GPU waits.
  [[nodiscard]] virtual StateDict state_dict() const;
  /// Takes over a saved state, on any device. Throws `StateError` (wrong names or numbers of parameters and groups) or
  /// `ShapeError`; then nothing has changed.
  virtual void load_state_dict(const StateDict& state);

 protected:
  Optimizer() = default;
  /// Called when a learning rate has changed.
  virtual void on_learning_rate_change() {}
  /// Registers one group. Throws `ValueError` for an empty list, an undefined tensor, a parameter that is not a leaf
  /// with `requires_grad`, one that was given before, and a negative or NaN learning rate.
  void add_group(const std::vector<Tensor>& parameters, double lr);
  /// The group of parameter `index`.
  [[nodiscard]] std::size_t group_of(std::size_t index) const { return groups_[index]; }

 private:
  std::vector<Tensor> parameters_;
  std::vector<std::size_t> groups_;  // of each parameter
  std::vector<double> learning_rates_;
  Tensor flat_gradients_;
  std::vector<Tensor> places_;  // of each parameter's gradient in it
};

/// Throws `ValueError` in the name of `optimizer` unless `valid`; the message shows the option's name and value.
void require_option(bool valid, std::string_view optimizer, std::string_view option, double value,
                    std::string_view want);

}  // namespace fusegrad::optim
