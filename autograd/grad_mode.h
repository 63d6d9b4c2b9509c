#pragma once
// Whether operations are recorded. Like PyTorch's `torch.no_grad()` and `enable_grad()`, per thread.

namespace fusegrad {

/// True while operations of this thread are recorded for backward (the default).
bool grad_enabled();

/// Sets whether operations are recorded, until the guard's end.
class GradMode {
 public:
  enum class Recording { off, on };
  explicit GradMode(Recording recording);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};

/// Turns recording off until the guard's end:
///
///     { NoGrad guard; evaluate(model(x)); }
class NoGrad : GradMode {
 public:
  NoGrad() : GradMode(Recording::off) {}
};

/// Turns recording on again inside a `NoGrad`.
class EnableGrad : GradMode {
 public:
  EnableGrad() : GradMode(Recording::on) {}
};

}  // namespace fusegrad
