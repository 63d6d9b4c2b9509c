#include <chrono>
#include <cstdio>
#include <iostream>

#include <unistd.h>

#include <fusegrad/trainer/callback.h>
#include <fusegrad/trainer/trainer.h>

namespace fusegrad::trainer {
namespace {

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Progress::Progress(const ProgressOptions& options) : Progress(std::cerr, options) {}

Progress::Progress(std::ostream& out, const ProgressOptions& options)
    : out_(out), options_(options), rewrites_(&out == &std::cerr && isatty(STDERR_FILENO) != 0) {
  if (options.every < 1) {
    throw ValueError({.op = "Progress", .got = cat("every = ", options.every), .want = "1 or more", .way_out = ""});
  }
}

void Progress::on_fit_start(const Trainer& trainer) {
  started_ = now_in_seconds();
  first_step_ = trainer.steps_done();
  printed_step_ = -1;
}

void Progress::on_step_end(const Trainer&, const StepInfo& info) {
  if (info.step % options_.every == 0) print(info);
}

void Progress::on_fit_end(const Trainer&, const StepInfo& info) {
  if (info.step != printed_step_ && info.loss.defined()) print(info);
  if (rewrites_) out_ << '\n';
  out_.flush();
}

void Progress::print(const StepInfo& info) {
  const double seconds = now_in_seconds() - started_;
  char line[160];
  std::snprintf(line, sizeof line, "step %lld/%lld  epoch %lld  loss %.6g  %.1f steps/s",
                static_cast<long long>(info.step), static_cast<long long>(info.max_steps),
                static_cast<long long>(info.epoch), info.loss.item<double>(),
                static_cast<double>(info.step - first_step_) / (seconds > 0 ? seconds : 1e-9));
  out_ << (rewrites_ ? "\r\x1b[K" : "") << line << (rewrites_ ? "" : "\n");
  out_.flush();
  printed_step_ = info.step;
}

Checkpoint::Checkpoint(std::filesystem::path path, std::int64_t every) : path_(std::move(path)), every_(every) {
  if (every < 1) {
    throw ValueError({.op = "Checkpoint", .got = cat("every = ", every), .want = "1 or more", .way_out = ""});
  }
}

void Checkpoint::on_step_end(const Trainer& trainer, const StepInfo& info) {
  if (info.step % every_ == 0) trainer.save_checkpoint(path_);
}

void Checkpoint::on_fit_end(const Trainer& trainer, const StepInfo& info) {
  if (info.step % every_ != 0) trainer.save_checkpoint(path_);
}

}  // namespace fusegrad::trainer
