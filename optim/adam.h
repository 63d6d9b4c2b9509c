#pragma once
// Adam and AdamW, each in two forms with one meaning: `Adam` and `AdamW` run every step of the formula as a kernel of
// its own over one parameter after the other, as a reader would write it down; `FusedAdam` and `FusedAdamW` update all
// parameters in one pass, unscaling and clipping the gradients on the way. Results have the same bits.
//
//     FusedAdam optimizer(model.parameters(), {.lr = 1e-3});
//     optimizer.zero_grad();
//     loss.backward();
//     optimizer.step();
//
// Formula and order of operations: kernels/math/adam.h. Moments are kept in f32 (f64 for f64 parameters), whatever the
// parameter's dtype. Step counts are per parameter, and a parameter without a gradient is left out entirely.

#include <optional>
#include <utility>
#include <vector>

#include <fusegrad/kernels/math/adam.h>
#include <fusegrad/kernels/math/grad_scaler.h>
#include <fusegrad/optim/optimizer.h>
#include <fusegrad/runtime/memory.h>

namespace fusegrad::kernels {
struct AdamTensor;
enum class AdamLaunch : std::uint8_t;
}  // namespace fusegrad::kernels

namespace fusegrad::optim {

/// Options of Adam. `weight_decay` is an L2 penalty: it enters the gradient.
struct AdamOptions {
  double lr = 1e-3;                             ///< 0 or more
  std::pair<double, double> betas{0.9, 0.999};  ///< each in [0, 1)
  double eps = 1e-8;                            ///< 0 or more
  double weight_decay = 0;                      ///< 0 or more
  bool amsgrad = false;
  bool maximize = false;
};

/// Options of AdamW. `weight_decay` shrinks the parameter directly, apart from the gradient.
struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool amsgrad = false;
  bool maximize = false;

  /// The same numbers as Adam's options; what they mean for the weight decay is up to the class.
  [[nodiscard]] AdamOptions as_adam() const { return {lr, betas, eps, weight_decay, amsgrad, maximize}; }
};

/// A parameter group; what is not given comes from the optimizer's options.
struct AdamParamGroup {
  std::vector<Tensor> params;
  std::optional<double> lr = {};
  std::optional<std::pair<double, double>> betas = {};
  std::optional<double> eps = {};
  std::optional<double> weight_decay = {};
  std::optional<bool> amsgrad = {};
  std::optional<bool> maximize = {};
};

/// What the four share: options, moments, clocks and the state dict.
class AdamFamily : public Optimizer {
 public:
  /// State names follow PyTorch: `step` (f32; exact as a number beside it), `exp_avg`, `exp_avg_sq`, `max_exp_avg_sq`.
  [[nodiscard]] StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

  /// How often parameter `index` has stepped. From a GPU it waits.
  [[nodiscard]] std::int64_t step_count(std::size_t index) const;

 protected:
  /// Moments of one parameter; undefined until its first step.
  struct Moments {
    Tensor exp_avg;
    Tensor exp_avg_sq;
    Tensor max_exp_avg_sq;
  };

  AdamFamily() = default;
  /// Throws `ValueError` for options out of range, and as `Optimizer::add_group`.
  void add_groups(const std::vector<AdamParamGroup>& groups, const AdamOptions& defaults, math::WeightDecay decay);

  /// The options of group `index` with its present learning rate.
  [[nodiscard]] math::AdamGroup kernel_group(std::size_t index) const;
  /// Moments of parameter `index`, made (zero) or moved to its device first where needed.
  Moments& moments(std::size_t index);
  /// Throws `DTypeError` unless the gradient's dtype goes with the parameter's.
  void require_gradient_dtype(const Tensor& parameter, const Tensor& grad) const;

  [[nodiscard]] virtual std::vector<math::AdamClock> read_clocks() const = 0;
  virtual void write_clocks(const std::vector<math::AdamClock>& clocks) = 0;

 private:
  std::vector<math::AdamGroup> groups_;
  std::vector<Moments> moments_;
};

/// Adam with a kernel for every step of the formula.
class Adam : public AdamFamily {
 public:
  explicit Adam(const std::vector<Tensor>& params, const AdamOptions& options = {});
  explicit Adam(const std::vector<AdamParamGroup>& groups, const AdamOptions& options = {});
  [[nodiscard]] std::string_view name() const override { return "Adam"; }
  using AdamFamily::step;
  void step() override;

 protected:
  Adam() = default;
  [[nodiscard]] std::vector<math::AdamClock> read_clocks() const override { return clocks_; }
  void write_clocks(const std::vector<math::AdamClock>& clocks) override { clocks_ = clocks; }

 private:
  void step_parameter(std::size_t index);
  std::vector<math::AdamClock> clocks_;
};

/// AdamW with a kernel for every step of the formula.
class AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<Tensor>& params, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<AdamParamGroup>& groups, const AdamWOptions& options = {});
  [[nodiscard]] std::string_view name() const override { return "AdamW"; }
};

/// Adam over all parameters in one pass. It owns checking, unscaling and clipping. Counters, options and learning rates
/// live on the device, and a step never waits for it. All parameters that step together are on one device.
///
/// On a GPU a step is at most two launches for any number of parameters, one for small models (kernels/fused_adam.h).
class FusedAdam : public AdamFamily {
 public:
  explicit FusedAdam(const std::vector<Tensor>& params, const AdamOptions& options = {});
  explicit FusedAdam(const std::vector<AdamParamGroup>& groups, const AdamOptions& options = {});
  ~FusedAdam() override;
  [[nodiscard]] std::string_view name() const override { return "FusedAdam"; }
  [[nodiscard]] bool owns_unscaling() const override { return true; }
  [[nodiscard]] bool owns_clipping() const override { return true; }
  [[nodiscard]] bool owns_checking() const override { return true; }
  void step() override { step(GradTransform{}); }
  /// Writes the low-precision weight copies that are up to date (autocast made them) in the same pass.
  void step(const GradTransform& transform) override;
  void amp_step(const AmpStep& what) override;
  /// How many launches a GPU takes for a step; by default it depends on the size. For tests and measurements.
  void set_launch(kernels::AdamLaunch launch) { launch_ = launch; }

 protected:
  FusedAdam();
  [[nodiscard]] std::vector<math::AdamClock> read_clocks() const override;
  void write_clocks(const std::vector<math::AdamClock>& clocks) override;
  void on_learning_rate_change() override;

 private:
  struct Tables;
  bool table_is_current() const;
  void build_table();
  [[nodiscard]] std::vector<math::AdamGroup> kernel_groups() const;
  kernels::AdamTensor row(std::size_t index);
  void place_clocks(Device device);
  void run(const math::GradScalars& grad, const kernels::GradCheck& check,
           const std::optional<kernels::ScaleUpdate>& scale_update);
  void mark_written();
  std::unique_ptr<Tables> tables_;
  kernels::AdamLaunch launch_{};
};

/// AdamW over all parameters in one pass.
class FusedAdamW : public FusedAdam {
 public:
  explicit FusedAdamW(const std::vector<Tensor>& params, const AdamWOptions& options = {});
  explicit FusedAdamW(const std::vector<AdamParamGroup>& groups, const AdamWOptions& options = {});
  [[nodiscard]] std::string_view name() const override { return "FusedAdamW"; }
};

}  // namespace fusegrad::optim
