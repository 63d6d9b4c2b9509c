#include <algorithm>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/trainer/trainer.h>

namespace fusegrad::trainer {
namespace {

constexpr std::string_view kOp = "Trainer";

amp::GradScalerOptions scaler_options(const TrainerOptions& options) {
  amp::GradScalerOptions scaler = options.scaler;
  scaler.enabled = options.precision == Precision::f16_mixed;
  return scaler;
}

void require(bool valid, std::string_view option, double value, std::string_view want) {
  optim::require_option(valid, kOp, option, value, want);
}

}  // namespace

Trainer::Trainer(TrainerOptions options) : options_(std::move(options)), scaler_(scaler_options(options_)) {
  require(options_.max_steps >= -1, "max_steps", static_cast<double>(options_.max_steps), "-1 or more");
  require(options_.max_epochs >= -1, "max_epochs", static_cast<double>(options_.max_epochs), "-1 or more");
  require(options_.max_steps >= 0 || options_.max_epochs >= 0, "max_steps and max_epochs", -1, "at least one of them");
  require(options_.accumulate_batches >= 1, "accumulate_batches", static_cast<double>(options_.accumulate_batches),
          "1 or more");
  require(options_.gradient_clip.max_norm >= 0, "gradient_clip.max_norm", options_.gradient_clip.max_norm, "0 or more");
  require(options_.gradient_clip.max_value >= 0, "gradient_clip.max_value", options_.gradient_clip.max_value,
          "0 or more");
  require(options_.gradient_clip.norm_type > 0, "gradient_clip.norm_type", options_.gradient_clip.norm_type,
          "a number above 0, or infinity");
  require_available(options_.device, kOp);
}

std::int64_t Trainer::planned_steps(const DataLoader& loader) const {
  if (options_.max_epochs < 0) return options_.max_steps;
  // Micro-batches that do not fill a step at the very end are left out.
  const std::int64_t by_epochs = options_.max_epochs * loader.batches() / options_.accumulate_batches;
  return options_.max_steps < 0 ? by_epochs : std::min(options_.max_steps, by_epochs);
}

void Trainer::fit(TrainingModule& module, DataLoader& loader) {
  module_ = &module;
  module.to(options_.device);
  if (options_.seed) manual_seed(*options_.seed);
  optimizer_ = module.configure_optimizer();
  if (optimizer_ == nullptr) {
    throw StateError({.op = "Trainer::fit",
                      .got = "no optimizer from configure_optimizer()",
                      .want = "an optimizer over the module's parameters",
                      .way_out = ""});
  }
  // The question. An optimizer that unscales inside its pass hides its unscaled gradients from everybody else.
  amp::require_clippable(*optimizer_, options_.gradient_clip, "Trainer::fit");

  scaler_ = amp::GradScaler(scaler_options(options_));
  step_ = epoch_ = batch_ = 0;
  if (options_.resume_from) load_checkpoint(*options_.resume_from);
  first_step_ = step_;
  max_steps_ = planned_steps(loader);
  last_loss_ = Tensor();
  losses_ = empty({std::max<std::int64_t>(0, max_steps_ - first_step_)}, {.device = options_.device});

  module.train();
  optimizer_->zero_grad();
  for (const auto& callback : options_.callbacks) callback->on_fit_start(*this);
  while (step_ < max_steps_) run_step(loader);
  for (const auto& callback : options_.callbacks) callback->on_fit_end(*this, info());
}

// The step as the data sees it. `scaler_` is disabled in f32 and bf16; then it passes the loss through, and its step
// only clips.
void Trainer::run_step(DataLoader& loader) {
  const std::int64_t epoch_before = epoch_;
  for (std::int64_t i = 0; i < options_.accumulate_batches; ++i) last_loss_ = run_micro_batch(loader);
  scaler_.step_and_update(*optimizer_, options_.gradient_clip);
  optimizer_->zero_grad();
  keep_loss(last_loss_);
  ++step_;
  for (const auto& callback : options_.callbacks) callback->on_step_end(*this, info());
  if (epoch_ == epoch_before) return;
  for (const auto& callback : options_.callbacks) callback->on_epoch_end(*this, info());
}

Tensor Trainer::run_micro_batch(DataLoader& loader) {
  const Batch given = loader.batch(epoch_, batch_);
  if (++batch_ == loader.batches()) {
    batch_ = 0;
    ++epoch_;
  }
  const Batch batch{.input = to(given.input, options_.device), .target = to(given.target, options_.device)};
  Tensor loss;
  {
    const bool mixed = options_.precision != Precision::f32;
    const amp::Autocast region({.device = options_.device.type,
                                .dtype = options_.precision == Precision::bf16_mixed ? DType::bf16 : DType::f16,
                                .enabled = mixed});
    loss = module_->training_step(batch);
  }
  if (loss.numel() != 1) {
    throw ShapeError({.op = "Trainer::fit",
                      .got = cat("a loss of shape ", loss.shape().str(), " from training_step()"),
                      .want = "one element",
                      .way_out = "Reduce it: mean(loss) or sum(loss)"});
  }
  const bool averaged = options_.accumulate_batches > 1;
  const Tensor share = averaged ? loss / static_cast<double>(options_.accumulate_batches) : loss;
  scaler_.scale(share).backward();
  return loss.detach();
}

void Trainer::keep_loss(const Tensor& loss) {
  kernels::copy(loss, losses_.alias({1}, step_ - first_step_).alias(loss.shape()));
}

std::vector<double> Trainer::losses() const {
  return losses_.defined() ? losses_.to_vector<double>() : std::vector<double>();
}

StepInfo Trainer::info() const { return {.step = step_, .max_steps = max_steps_, .epoch = epoch_, .loss = last_loss_}; }

void Trainer::save_checkpoint(const std::filesystem::path& path) const {
  if (optimizer_ == nullptr) {
    throw StateError({.op = "Trainer::save_checkpoint",
                      .got = "a trainer that has not trained",
                      .want = "a call during or after fit()",
                      .way_out = ""});
  }
  StateDict all;
  const auto put = [&all](const std::string& prefix, const StateDict& part) {
    for (const auto& [name, tensor] : part.tensors) all.tensors[prefix + name] = tensor;
    for (const auto& [name, number] : part.numbers) all.numbers[prefix + name] = number;
  };
  put("model.", module_->state_dict());
  put("optimizer.", optimizer_->state_dict());
  put("scaler.", scaler_.state_dict());
  all.numbers["trainer.step"] = static_cast<double>(step_);
  all.numbers["trainer.epoch"] = static_cast<double>(epoch_);
  all.numbers["trainer.batch"] = static_cast<double>(batch_);
  save(path, all);
}

void Trainer::load_checkpoint(const std::filesystem::path& path) {
  const StateDict all = load_state(path);
  const auto take = [&all](std::string_view prefix) {
    StateDict part;
    for (const auto& [name, tensor] : all.tensors) {
      if (name.starts_with(prefix)) part.tensors[name.substr(prefix.size())] = tensor;
    }
    for (const auto& [name, number] : all.numbers) {
      if (name.starts_with(prefix)) part.numbers[name.substr(prefix.size())] = number;
    }
    return part;
  };
  const StateDict position = take("trainer.");
  const auto number = [&](const std::string& name) {
    const auto found = position.numbers.find(name);
    if (found != position.numbers.end()) return static_cast<std::int64_t>(found->second);
    throw IOError({.op = "Trainer::fit",
                   .got = cat(path.string(), " without trainer.", name),
                   .want = "a checkpoint written by Trainer::save_checkpoint",
                   .way_out = ""});
  };
  const std::int64_t step = number("step");
  const std::int64_t epoch = number("epoch");
  const std::int64_t batch = number("batch");
  optimizer_->load_state_dict(take("optimizer."));
  scaler_.load_state_dict(take("scaler."));
  module_->load_state_dict(take("model."));
  step_ = step;
  epoch_ = epoch;
  batch_ = batch;
}

}  // namespace fusegrad::trainer
