#include <algorithm>
#include <unordered_set>

#include <fusegrad/optim/optimizer.h>
#include <fusegrad/runtime/error.h>

namespace fusegrad::optim {

void Optimizer::step(const GradTransform&) {
  throw StateError({.op = cat(name(), "::step"),
                    .got = "a gradient transform",
                    .want = "no transform: this optimizer does not own unscaling",
                    .way_out = "Unscale and clip first, then call step()"});
}

void Optimizer::amp_step(const AmpStep&) {
  throw StateError({.op = cat(name(), "::amp_step"),
                    .got = "a step of mixed precision",
                    .want = "gradients that were checked first: this optimizer does not own checking",
                    .way_out = "Let GradScaler::step do it"});
}

void Optimizer::zero_grad() {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> grads;
  grads.reserve(parameters_.size());
  for (const Tensor& parameter : parameters_) {
    if (Tensor grad = parameter.grad(); grad.defined()) grads.push_back(std::move(grad));
  }
  return grads;
}

Tensor Optimizer::first_gradient() const {
  for (const Tensor& parameter : parameters_) {
    if (Tensor grad = parameter.grad(); grad.defined()) return grad;
  }
  return {};
}

double Optimizer::learning_rate(std::size_t group) const {
  if (group >= learning_rates_.size()) {
    throw ValueError({.op = cat(name(), "::learning_rate"),
                      .got = cat("group ", group),
                      .want = cat("a group below ", group_count()),
                      .way_out = ""});
  }
  return learning_rates_[group];
}

void Optimizer::set_learning_rate(double lr, std::size_t group) {
  require_option(lr >= 0, name(), "lr", lr, "a learning rate of 0 or more");
  (void)learning_rate(group);
  learning_rates_[group] = lr;
  on_learning_rate_change();
}

void Optimizer::add_group(const std::vector<Tensor>& parameters, double lr) {
  const std::string op(name());
  require_option(lr >= 0, op, "lr", lr, "a learning rate of 0 or more");
  if (parameters.empty()) {
    throw ValueError({.op = op,
                      .got = "an empty parameter list",
                      .want = "at least one parameter in every group",
                      .way_out = "Did the model register its parameters? See Module::parameters()"});
  }
  std::unordered_set<const TensorImpl*> known;
  for (const Tensor& parameter : parameters_) known.insert(parameter.id());
  for (const Tensor& parameter : parameters) {
    if (!parameter.defined()) {
      throw ValueError({.op = op, .got = "an undefined tensor", .want = "parameters with elements", .way_out = ""});
    }
    if (!parameter.is_leaf() || !parameter.requires_grad()) {
      throw ValueError({.op = op,
                        .got = parameter.is_leaf() ? "a tensor without requires_grad" : "the result of an operation",
                        .want = "leaves that require a gradient",
                        .way_out = "Call requires_grad_() on it, or leave it out"});
    }
    if (!known.insert(parameter.id()).second) {
      throw ValueError({.op = op,
                        .got = cat("a parameter of shape ", parameter.shape().str(), " twice"),
                        .want = "every parameter in one place of one group",
                        .way_out = "Shared weights are listed once"});
    }
  }
  parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
  groups_.resize(parameters_.size(), learning_rates_.size());
  learning_rates_.push_back(lr);
}

StateDict Optimizer::state_dict() const {
  StateDict state;
  for (std::size_t g = 0; g < group_count(); ++g) {
    state.numbers[cat("param_groups.", g, ".lr")] = learning_rates_[g];
    state.numbers[cat("param_groups.", g, ".params")] =
        static_cast<double>(std::count(groups_.begin(), groups_.end(), g));
  }
  return state;
}

void Optimizer::load_state_dict(const StateDict& state) {
  const auto number = [&](std::size_t group, std::string_view option) {
    const std::string key = cat("param_groups.", group, ".", option);
    const auto found = state.numbers.find(key);
    if (found == state.numbers.end()) {
      throw StateError({.op = cat(name(), "::load_state_dict"),
                        .got = cat("a state without ", key),
                        .want = cat("the state of an optimizer with ", group_count(), " parameter groups"),
                        .way_out = ""});
    }
    return found->second;
  };
  std::vector<double> rates(group_count());
  for (std::size_t g = 0; g < group_count(); ++g) {
    const auto count = static_cast<double>(std::count(groups_.begin(), groups_.end(), g));
    if (number(g, "params") != count) {
      throw StateError({.op = cat(name(), "::load_state_dict"),
                        .got = cat(number(g, "params"), " parameters in group ", g),
                        .want = cat(count, ", as this optimizer has"),
                        .way_out = "Build the optimizer over the same parameters before loading"});
    }
    rates[g] = number(g, "lr");
    require_option(rates[g] >= 0, cat(name(), "::load_state_dict"), "lr", rates[g], "a learning rate of 0 or more");
  }
  if (state.numbers.contains(cat("param_groups.", group_count(), ".params"))) {
    throw StateError({.op = cat(name(), "::load_state_dict"),
                      .got = "a state with more parameter groups",
                      .want = cat(group_count(), " parameter groups"),
                      .way_out = ""});
  }
  learning_rates_ = std::move(rates);
}

void require_option(bool valid, std::string_view optimizer, std::string_view option, double value,
                    std::string_view want) {
  if (valid) return;
  throw ValueError(
      {.op = std::string(optimizer), .got = cat(option, " = ", value), .want = std::string(want), .way_out = ""});
}

}  // namespace fusegrad::optim
