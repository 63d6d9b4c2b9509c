#pragma once
// What a trainer tells those who watch it.

#include <cstdint>
#include <filesystem>
#include <iosfwd>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::trainer {

class Trainer;

/// Where training stands after an optimizer step.
struct StepInfo {
  std::int64_t step = 0;       ///< optimizer steps attempted so far
  std::int64_t max_steps = 0;  ///< how many there will be
  std::int64_t epoch = 0;
  Tensor loss;  ///< of the step's last micro-batch: one element, on the device; reading it waits
};

/// Override what is of interest. Called on the training thread, in the order of `TrainerOptions::callbacks`.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_fit_start(const Trainer&) {}
  virtual void on_step_end(const Trainer&, const StepInfo&) {}
  virtual void on_epoch_end(const Trainer&, const StepInfo&) {}
  virtual void on_fit_end(const Trainer&, const StepInfo&) {}
};

struct ProgressOptions {
  std::int64_t every = 50;  ///< steps between two lines; each reads the loss, and so waits for the device once
};

/// Prints a line of step, epoch, loss and steps per second. On a terminal it rewrites one line.
class Progress : public Callback {
 public:
  /// Writes to `out`, which must outlive it (default: std::cerr).
  explicit Progress(const ProgressOptions& options = {});
  Progress(std::ostream& out, const ProgressOptions& options);
  void on_fit_start(const Trainer& trainer) override;
  void on_step_end(const Trainer& trainer, const StepInfo& info) override;
  void on_fit_end(const Trainer& trainer, const StepInfo& info) override;

 private:
  void print(const StepInfo& info);
  std::ostream& out_;
  ProgressOptions options_;
  bool rewrites_;
  double started_ = 0;
  std::int64_t first_step_ = 0;
  std::int64_t printed_step_ = -1;
};

/// Saves a checkpoint (Trainer::save_checkpoint) to `path` every `every` steps and at the end, replacing the file as a
/// whole.
class Checkpoint : public Callback {
 public:
  /// Throws `ValueError` for `every` below 1.
  Checkpoint(std::filesystem::path path, std::int64_t every);
  void on_step_end(const Trainer& trainer, const StepInfo& info) override;
  void on_fit_end(const Trainer& trainer, const StepInfo& info) override;

 private:
  std::filesystem::path path_;
  std::int64_t every_;
};

}  // namespace fusegrad::trainer
