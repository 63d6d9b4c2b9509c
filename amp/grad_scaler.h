#pragma once
// GradScaler: keeps small f16 gradients from vanishing by multiplying the loss, and divides the gradients again before
// the update (Micikevicius et al., 2018). The one place that decides who divides, so that it happens exactly once.

#include <cstdint>
#include <map>

#include <fusegrad/kernels/grad_scaler.h>
#include <fusegrad/optim/gradient_clip.h>
#include <fusegrad/optim/optimizer.h>

namespace fusegrad::amp {

struct GradScalerOptions {
  double init_scale = 65536;            ///< a normal f32 above 0
  double growth_factor = 2;             ///< above 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< good steps in a row before the scale grows; above 0
  bool enabled = true;                  ///< false: every call passes through, for f32 and bf16
};

/// A training step:
///
///     scaler.scale(loss).backward();
///     scaler.step(optimizer);      // unscales, unless the optimizer owns it, and skips if a gradient is inf or NaN
///     scaler.update();             // moves the scale
///
/// Between `update` calls each optimizer passes through the stages ready → unscaled → stepped; `unscale_` is optional
/// and shows the true gradients, for hand-written clipping. `unscale_` then `step` equals `step` alone, bit for bit,
/// whether the optimizer owns unscaling or not.
///
/// The scale and all decisions about it live on the device of the first scaled loss. With an optimizer that owns
/// unscaling nothing is read back; otherwise `step` waits once, to know whether to skip.
/// What `.grad` holds after `step` is unspecified (scaled or unscaled); call `unscale_` first to look at gradients.
/// Whether a step is skipped is decided by what `unscale_` or, without it, `step` found in the gradients; what user
/// code writes into them in between is not looked at again.
class GradScaler {
 public:
  /// Throws `ValueError`, naming the value, for options out of range (unless disabled).
  explicit GradScaler(const GradScalerOptions& options = {});

  /// loss · scale; a 16-bit loss is widened to f32 first. Disabled: the loss itself.
  Tensor scale(const Tensor& loss);

  /// Divides the optimizer's gradients by the scale, in place, and notes whether one is inf or NaN.
  /// Throws `StateError` before any `scale`, a second time since the last `update`, or after `step`; `DTypeError` for
  /// f16 gradients, which could not hold the quotient (gradients and stage are then as before).
  void unscale_(optim::Optimizer& optimizer);

  /// Steps the optimizer unless an inf or NaN was found; unscales first where the caller has not. `clip` limits the
  /// unscaled gradients, inside the optimizer's pass if it owns unscaling. Disabled: clips and steps.
  /// Throws `StateError` before any `scale`, a second time since the last `update`, when no parameter has a gradient,
  /// or when clipping is asked of an optimizer that owns unscaling but not clipping.
  void step(optim::Optimizer& optimizer, const optim::GradientClip& clip = {});

  /// `step` and `update` in one call, for the one optimizer of a loop. The same bits; with a fused optimizer also fewer
  /// launches: one for a small model. With several optimizers call `step` for each, then `update`.
  void step_and_update(optim::Optimizer& optimizer, const optim::GradientClip& clip = {});

  /// Moves the scale by what the optimizers' steps found, and readies all optimizers for the next step. Throws
  /// `StateError` if no gradients were checked since the last `update`.
  void update();
  /// Sets the scale; the count of good steps stays. Throws `ValueError` unless it is a normal f32 above 0.
  void update(double new_scale);

  /// Whether the optimizer's last checked gradients had an inf or NaN, i.e. whether its last step was skipped. Waits.
  [[nodiscard]] bool found_inf(const optim::Optimizer& optimizer) const;
  /// The present scale; 1 if disabled. Waits.
  [[nodiscard]] double get_scale() const;
  /// How many updates met an inf or NaN, ever, and in a row up to now. Each waits.
  [[nodiscard]] std::int64_t skipped_steps() const;
  [[nodiscard]] std::int64_t skipped_in_a_row() const;
  [[nodiscard]] bool is_enabled() const { return options_.enabled; }
  /// The scale as a device scalar; undefined before the first `scale`.
  [[nodiscard]] const Tensor& scale_tensor() const { return scale_; }

  /// Numbers `scale`, `growth_factor`, `backoff_factor`, `growth_interval`, `_growth_tracker`; empty if disabled.
  /// Waits.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes over such a state, before or after the first `scale`. Disabled: does nothing. Throws `StateError` for a
  /// state without these numbers, `ValueError` for numbers out of range; then nothing has changed.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage { ready, unscaled, stepped };
  /// What is known of one optimizer since the last update; its buffers are kept for the next.
  struct Record {
    Stage stage = Stage::ready;
    bool checked = false;
    kernels::TensorList grads;
    Tensor found_inf;
    Tensor norm;
    Tensor clip_coefficient;
  };

  void make_state(Device device);
  void require_scaled(std::string_view op) const;
  Record& record_of(const optim::Optimizer& optimizer, Device device);
  static void require_device(const Record& record, Device device, std::string_view op);
  void list_gradients(Record& record, const std::vector<Tensor>& grads, std::string_view op);
  void step_once(optim::Optimizer& optimizer, const optim::GradientClip& clip,
                 const std::optional<kernels::ScaleUpdate>& scale_update);
  void step_checker(optim::Optimizer& optimizer, Record& record, const optim::GradientClip& clip,
                    const std::optional<kernels::ScaleUpdate>& scale_update);
  void step_owner(optim::Optimizer& optimizer, Record& record, const optim::GradientClip& clip);
  void step_plain(optim::Optimizer& optimizer, Record& record, const optim::GradientClip& clip);
  [[nodiscard]] kernels::ScaleUpdate scale_update() const;
  void ready_all();

  GradScalerOptions options_;
  std::int64_t init_growth_tracker_ = 0;  // until the state exists
  Tensor scale_;                          // f32
  Tensor inverse_scale_;                  // f32
  Tensor counters_;                       // i64: growth tracker, skipped, skipped in a row
  DeviceArray<const float*> found_inf_;   // of the optimizers that take part in an update
  std::map<const optim::Optimizer*, Record> records_;
};

/// Throws `StateError` if `clip` is wanted and the optimizer owns unscaling but not clipping: its gradients are
/// unscaled only inside its own pass, so nobody else can clip them. Names the optimizer, the reason and the ways out.
void require_clippable(const optim::Optimizer& optimizer, const optim::GradientClip& clip, std::string_view op);

}  // namespace fusegrad::amp
