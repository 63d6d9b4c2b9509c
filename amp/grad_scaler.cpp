#include <algorithm>
#include <cmath>
#include <limits>

#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>

namespace fusegrad::amp {
namespace {

using kernels::GradCheck;
using optim::GradientClip;
using optim::GradTransform;
using optim::Optimizer;

void require(bool valid, std::string_view option, double value, std::string_view want) {
  optim::require_option(valid, "GradScaler", option, value, want);
}

void require_scale(double scale, std::string_view option) {
  const bool valid = scale >= static_cast<double>(std::numeric_limits<float>::min()) &&
                     scale <= static_cast<double>(std::numeric_limits<float>::max());
  require(valid, option, scale, "a normal f32 number above 0");
}

void require_valid(const GradScalerOptions& options) {
  require_scale(options.init_scale, "scale");
  require(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor", options.growth_factor,
          "a finite number above 1");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
          "a number in (0, 1)");
  require(options.growth_interval > 0, "growth_interval", static_cast<double>(options.growth_interval), "1 or more");
}

// Adds what clipping by norm has to know.
void want_clip_coefficient(const Tensor& norm, const Tensor& coefficient, const GradientClip& clip, GradCheck& check) {
  check.norm = kernels::norm_kind(clip.norm_type);
  check.p = clip.norm_type;
  check.norm_out = norm.data<double>();
  check.max_norm = clip.max_norm;
  check.clip_coefficient = coefficient.data<double>();
}

void require_valid(const GradientClip& clip) {
  require(clip.max_norm >= 0, "clip.max_norm", clip.max_norm, "0 (off) or more");
  require(clip.max_value >= 0, "clip.max_value", clip.max_value, "0 (off) or more");
  require(clip.norm_type > 0, "clip.norm_type", clip.norm_type, "a number above 0, or infinity");
}

}  // namespace

void require_clippable(const Optimizer& optimizer, const GradientClip& clip, std::string_view op) {
  if (!clip.wanted() || !optimizer.owns_unscaling() || optimizer.owns_clipping()) return;
  throw StateError({.op = std::string(op),
                    .got = cat("gradient clipping with ", optimizer.name(),
                               ", which unscales gradients inside its own pass and cannot clip there"),
                    .want = "an optimizer whose gradients can be clipped after unscaling",
                    .way_out = cat("Turn clipping off, or use an optimizer that owns clipping too (FusedAdam, ",
                                   "FusedAdamW) or one that leaves unscaling to the scaler (Adam, AdamW, SGD)")});
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  if (options.enabled) require_valid(options);
}

void GradScaler::make_state(Device device) {
  if (scale_.defined()) return;
  const auto scale = static_cast<float>(options_.init_scale);
  scale_ = full({}, static_cast<double>(scale), {.device = device});
  inverse_scale_ = full({}, static_cast<double>(math::inverse_scale(scale)), {.device = device});
  counters_ = tensor({static_cast<double>(init_growth_tracker_), 0, 0}, {.dtype = DType::i64, .device = device});
}

void GradScaler::require_scaled(std::string_view op) const {
  if (scale_.defined()) return;
  throw StateError({.op = std::string(op),
                    .got = "a scaler that has not scaled a loss yet",
                    .want = "scale(loss).backward() first",
                    .way_out = ""});
}

GradScaler::Record& GradScaler::record_of(const Optimizer& optimizer, Device device) {
  Record& record = records_[&optimizer];
  if (!record.found_inf.defined() || record.found_inf.device() != device) {
    record.found_inf = zeros({}, {.device = device});
    record.norm = zeros({}, {.dtype = DType::f64, .device = device});
    record.clip_coefficient = ones({}, {.dtype = DType::f64, .device = device});
  }
  return record;
}

void GradScaler::list_gradients(Record& record, const std::vector<Tensor>& grads, std::string_view op) {
  record.grads.assign(grads, op);
  if (!grads.empty()) require_device(record, record.grads.device(), op);
}

void GradScaler::require_device(const Record& record, Device device, std::string_view op) {
  if (device == record.found_inf.device()) return;
  throw DeviceError({.op = std::string(op),
                     .got = cat("gradients on ", device.str()),
                     .want = cat("gradients on ", record.found_inf.device().str(), ", where the loss was scaled"),
                     .way_out = ""});
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  make_state(loss.device());
  return mul(is_half(loss.dtype()) ? to(loss, DType::f32) : loss, scale_);
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  constexpr std::string_view kOp = "GradScaler::unscale_";
  require_scaled(kOp);
  Record& record = record_of(optimizer, scale_.device());
  if (record.stage != Stage::ready) {
    const bool stepped = record.stage == Stage::stepped;
    throw StateError({.op = std::string(kOp),
                      .got = stepped ? cat("a call after step() of ", optimizer.name())
                                     : cat("a second call for ", optimizer.name(), " since the last update()"),
                      .want = "at most one call, between backward() and step()",
                      .way_out = "With gradient accumulation, unscale once, after the last micro-batch's backward()"});
  }
  const std::vector<Tensor> grads = optimizer.gradients();
  for (const Tensor& grad : grads) {
    if (grad.dtype() != DType::f16) continue;
    throw DTypeError(
        {.op = std::string(kOp),
         .got = "f16 gradients",
         .want = "f32, bf16 or f64 gradients: f16 cannot hold an unscaled gradient",
         .way_out = "Let the optimizer unscale in its own pass (FusedAdam, FusedAdamW), or keep f32 gradients: f32 "
                    "parameters under Autocast, and no f16 in GradientBufferOptions"});
  }
  list_gradients(record, grads, kOp);
  if (!grads.empty()) {
    kernels::unscale_gradients(record.grads, inverse_scale_.data<float>(), record.found_inf.data<float>());
  }
  for (const Tensor& grad : grads) grad.bump_version();
  record.checked = !grads.empty();
  record.stage = Stage::unscaled;
}

void GradScaler::step(Optimizer& optimizer, const GradientClip& clip) { step_once(optimizer, clip, {}); }

void GradScaler::step_and_update(Optimizer& optimizer, const GradientClip& clip) {
  const bool alone = std::none_of(records_.begin(), records_.end(), [](const auto& r) { return r.second.checked; });
  if (!options_.enabled || !scale_.defined() || !optimizer.owns_checking() || !alone) {
    step(optimizer, clip);
    return update();
  }
  step_once(optimizer, clip, scale_update());
  scale_.bump_version();
  ready_all();
}

void GradScaler::step_once(Optimizer& optimizer, const GradientClip& clip,
                           const std::optional<kernels::ScaleUpdate>& scale_update) {
  constexpr std::string_view kOp = "GradScaler::step";
  require_valid(clip);
  require_clippable(optimizer, clip, kOp);
  const Tensor grad = optimizer.first_gradient();
  if (options_.enabled) {
    require_scaled(kOp);
    const Record& record = records_[&optimizer];
    if (record.stage == Stage::stepped) {
      throw StateError({.op = std::string(kOp),
                        .got = cat("a second step of ", optimizer.name(), " since the last update()"),
                        .want = "one step per optimizer, then update()",
                        .way_out = ""});
    }
    if (!grad.defined() || (record.stage == Stage::unscaled && !record.checked)) {
      throw StateError({.op = std::string(kOp),
                        .got = cat(optimizer.name(), " without a single gradient"),
                        .want = "a parameter with a gradient",
                        .way_out = "Is the whole model frozen, or the loss constant? Did backward() run?"});
    }
  } else if (!clip.wanted() || !grad.defined()) {
    return optimizer.step();
  }
  Record& record = record_of(optimizer, options_.enabled ? scale_.device() : grad.device());
  if (optimizer.owns_checking()) {
    require_device(record, grad.device(), kOp);
    step_checker(optimizer, record, clip, scale_update);
  } else {
    list_gradients(record, optimizer.gradients(), kOp);
    optimizer.owns_unscaling() ? step_owner(optimizer, record, clip) : step_plain(optimizer, record, clip);
  }
  record.stage = options_.enabled ? Stage::stepped : Stage::ready;
}

// The optimizer does it all: it gets the scalars, and is told what to look for.
void GradScaler::step_checker(Optimizer& optimizer, Record& record, const GradientClip& clip,
                              const std::optional<kernels::ScaleUpdate>& scale_update) {
  optim::AmpStep what;
  what.clip = clip;
  what.norm = record.norm;
  what.clip_coefficient = record.clip_coefficient;
  if (options_.enabled) {
    what.found_inf = record.found_inf;
    what.checked = record.stage == Stage::unscaled;
    if (!what.checked) {
      what.inverse_scale = inverse_scale_;
      what.scale_update = scale_update;
    }
  }
  optimizer.amp_step(what);
  record.checked = options_.enabled;
}

// The optimizer unscales in its own pass: one read-only pass before it tells whether to skip, and the norm if clipping
// wants it.
void GradScaler::step_owner(Optimizer& optimizer, Record& record, const GradientClip& clip) {
  GradTransform transform;
  GradCheck check;
  if (options_.enabled) {
    transform.found_inf = record.found_inf;
    if (record.stage == Stage::ready) {
      check.found_inf = record.found_inf.data<float>();
      check.inverse_scale = inverse_scale_.data<float>();
      transform.inverse_scale = inverse_scale_;
      record.checked = true;
    }
  }
  if (clip.max_norm > 0) {
    want_clip_coefficient(record.norm, record.clip_coefficient, clip, check);
    transform.clip_coefficient = record.clip_coefficient;
  }
  kernels::check_gradients(record.grads, check);
  transform.clip_value = clip.max_value;
  optimizer.step(transform);
}

// The optimizer wants finished gradients: unscale, clip and update are passes of their own, and the host decides.
void GradScaler::step_plain(Optimizer& optimizer, Record& record, const GradientClip& clip) {
  if (options_.enabled) {
    if (record.stage == Stage::ready) unscale_(optimizer);
    if (record.found_inf.item<float>() != 0) return;
  }
  if (clip.max_norm > 0) {
    GradCheck check;
    want_clip_coefficient(record.norm, record.clip_coefficient, clip, check);
    kernels::check_gradients(record.grads, check);
    kernels::multiply_gradients(record.grads, record.clip_coefficient.data<double>());
  }
  if (clip.max_value > 0) kernels::clamp_gradients(record.grads, clip.max_value);
  for (const Tensor& grad : optimizer.gradients()) grad.bump_version();
  optimizer.step();
}

kernels::ScaleUpdate GradScaler::scale_update() const {
  auto* counters = counters_.data<std::int64_t>();
  return {.state = {.scale = scale_.data<float>(),
                    .inverse_scale = inverse_scale_.data<float>(),
                    .growth_tracker = counters,
                    .skipped = counters + 1,
                    .skipped_in_a_row = counters + 2},
          .options = {.growth_factor = options_.growth_factor,
                      .backoff_factor = options_.backoff_factor,
                      .growth_interval = options_.growth_interval}};
}

void GradScaler::ready_all() {
  for (auto& [optimizer, record] : records_) {
    record.stage = Stage::ready;
    record.checked = false;
  }
}

void GradScaler::update() {
  if (!options_.enabled) return;
  constexpr std::string_view kOp = "GradScaler::update";
  require_scaled(kOp);
  std::vector<const float*> found_inf;
  for (const auto& [optimizer, record] : records_) {
    if (record.checked) found_inf.push_back(record.found_inf.data<float>());
  }
  if (found_inf.empty()) {
    throw StateError({.op = std::string(kOp),
                      .got = "no checked gradients since the last update()",
                      .want = "step() or unscale_() of an optimizer with gradients first",
                      .way_out = "To set the scale without a step, call update(new_scale)"});
  }
  found_inf_.assign(found_inf, scale_.device());
  kernels::update_scale(scale_update(), found_inf_);
  scale_.bump_version();
  ready_all();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  require_scale(new_scale, "new_scale");
  const auto rounded = static_cast<float>(new_scale);
  if (scale_.defined()) {
    fill_(scale_, static_cast<double>(rounded));
    fill_(inverse_scale_, static_cast<double>(math::inverse_scale(rounded)));
  } else {
    options_.init_scale = static_cast<double>(rounded);
  }
  ready_all();
}

bool GradScaler::found_inf(const Optimizer& optimizer) const {
  const auto found = records_.find(&optimizer);
  return found != records_.end() && found->second.found_inf.defined() && found->second.found_inf.item<float>() != 0;
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1.0;
  return scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

std::int64_t GradScaler::skipped_steps() const {
  return counters_.defined() ? counters_.to_vector<std::int64_t>()[1] : 0;
}

std::int64_t GradScaler::skipped_in_a_row() const {
  return counters_.defined() ? counters_.to_vector<std::int64_t>()[2] : 0;
}

StateDict GradScaler::state_dict() const {
  StateDict state;
  if (!options_.enabled) return state;
  const std::int64_t tracker = counters_.defined() ? counters_.to_vector<std::int64_t>()[0] : init_growth_tracker_;
  state.numbers = {{"scale", get_scale()},
                   {"growth_factor", options_.growth_factor},
                   {"backoff_factor", options_.backoff_factor},
                   {"growth_interval", static_cast<double>(options_.growth_interval)},
                   {"_growth_tracker", static_cast<double>(tracker)}};
  return state;
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) return;
  const auto number = [&](const std::string& key) {
    const auto found = state.numbers.find(key);
    if (found != state.numbers.end()) return found->second;
    throw StateError({.op = "GradScaler::load_state_dict",
                      .got = state.numbers.empty() ? "an empty state" : cat("a state without ", key),
                      .want = "the state of an enabled GradScaler",
                      .way_out = "A disabled scaler saves an empty state; start a new scaler instead"});
  };
  GradScalerOptions options = options_;
  options.init_scale = number("scale");
  options.growth_factor = number("growth_factor");
  options.backoff_factor = number("backoff_factor");
  const double interval = number("growth_interval");
  const double tracker = number("_growth_tracker");
  constexpr double kLargestCount = 9e15;  // counts stay exact in a double
  require(interval >= 1 && interval <= kLargestCount && interval == std::floor(interval), "growth_interval", interval,
          "a count of 1 or more");
  require(tracker >= 0 && tracker <= kLargestCount && tracker == std::floor(tracker), "_growth_tracker", tracker,
          "a count of 0 or more");
  options.growth_interval = static_cast<std::int64_t>(interval);
  require_valid(options);
  options_ = options;
  init_growth_tracker_ = static_cast<std::int64_t>(tracker);
  if (!scale_.defined()) return;
  const Device device = scale_.device();
  scale_ = Tensor();
  make_state(device);
}

}  // namespace fusegrad::amp
