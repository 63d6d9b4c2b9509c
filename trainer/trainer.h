#pragma once
// Trainer: the training loop, once and for all, with the question that this library began with. It never assumes who
// unscales gradients: it asks the optimizer.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/nn/module.h>
#include <fusegrad/optim/optimizer.h>
#include <fusegrad/trainer/callback.h>
#include <fusegrad/trainer/data.h>

namespace fusegrad::trainer {

/// A model that knows its loss.
class TrainingModule : public nn::Module {
 public:
  /// The loss of one batch: one element. Called under autocast if the trainer's precision is mixed.
  virtual Tensor training_step(const Batch& batch) = 0;
  /// Makes the optimizer. Called by `fit` after the module has moved to the trainer's device.
  virtual std::unique_ptr<optim::Optimizer> configure_optimizer() = 0;
};

enum class Precision : std::uint8_t {
  f32,
  f16_mixed,  ///< f16 products under autocast, and a gradient scaler
  bf16_mixed  ///< bf16 products under autocast; bf16 has f32's range and needs no scaler
};

struct TrainerOptions {
  Precision precision = Precision::f32;
  Device device = kCPU;
  std::int64_t max_steps = -1;   ///< optimizer steps; -1: as many as `max_epochs` gives
  std::int64_t max_epochs = -1;  ///< passes over the data; -1: as many as `max_steps` needs
  optim::GradientClip gradient_clip = {};
  std::int64_t accumulate_batches = 1;     ///< micro-batches whose gradients make one step, averaged
  std::optional<std::uint64_t> seed = {};  ///< for `manual_seed` before the optimizer is made
  amp::GradScalerOptions scaler = {};      ///< of f16_mixed; `enabled` follows the precision
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  std::optional<std::filesystem::path> resume_from = {};  ///< a checkpoint to go on from
};

/// Runs training:
///
///     Trainer trainer({.precision = Precision::f16_mixed, .device = kCUDA, .max_steps = 1000});
///     trainer.fit(model, loader);
///
/// One step: forward under autocast, loss × scale, backward; then scaler.step, which lets an optimizer that owns
/// unscaling unscale and clip inside its own pass, and otherwise unscales, clips and steps in passes of its own; then
/// scaler.update. With an optimizer that owns unscaling, no step waits for the device.
class Trainer {
 public:
  /// Throws `ValueError` for options out of range, `DeviceError` if the device is not there.
  explicit Trainer(TrainerOptions options = {});

  /// Trains `module`. Before anything is computed, throws `StateError` if clipping is wanted from an optimizer that
  /// owns unscaling but not clipping.
  void fit(TrainingModule& module, DataLoader& loader);

  /// The loss of every step, in order, of the last `fit`. Waits for the device.
  [[nodiscard]] std::vector<double> losses() const;
  [[nodiscard]] std::int64_t steps_done() const { return step_; }
  /// The scaler of the last `fit`; disabled unless the precision is f16_mixed.
  [[nodiscard]] const amp::GradScaler& scaler() const { return scaler_; }
  [[nodiscard]] optim::Optimizer& optimizer() const { return *optimizer_; }

  /// Writes model, optimizer, scaler and position to `path`. Throws `StateError` before the first `fit`, `IOError` if
  /// it cannot be written.
  void save_checkpoint(const std::filesystem::path& path) const;

 private:
  void load_checkpoint(const std::filesystem::path& path);
  [[nodiscard]] std::int64_t planned_steps(const DataLoader& loader) const;
  Tensor run_micro_batch(DataLoader& loader);
  void run_step(DataLoader& loader);
  void keep_loss(const Tensor& loss);
  [[nodiscard]] StepInfo info() const;

  TrainerOptions options_;
  amp::GradScaler scaler_;
  TrainingModule* module_ = nullptr;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::int64_t max_steps_ = 0;
  std::int64_t step_ = 0;
  std::int64_t epoch_ = 0;
  std::int64_t batch_ = 0;  // next batch of the epoch
  Tensor last_loss_;
  Tensor losses_;  // f32, on the device: read once, at the end
  std::int64_t first_step_ = 0;
};

}  // namespace fusegrad::trainer
