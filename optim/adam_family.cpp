// Options, state and state dict shared by the four Adams.

#include <cmath>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/kernels/adam_table.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/optim/adam.h>

namespace fusegrad::optim {
namespace {

using math::AdamClock;
using math::AdamGroup;
using math::WeightDecay;

void require_valid(const AdamGroup& group, std::string_view name) {
  require_option(group.eps >= 0, name, "eps", group.eps, "0 or more");
  require_option(group.beta1 >= 0 && group.beta1 < 1, name, "betas[0]", group.beta1, "a number in [0, 1)");
  require_option(group.beta2 >= 0 && group.beta2 < 1, name, "betas[1]", group.beta2, "a number in [0, 1)");
  require_option(group.weight_decay >= 0, name, "weight_decay", group.weight_decay, "0 or more");
}

Tensor on_device(const Tensor& x, Device device) {
  if (!x.defined() || x.device() == device) return x;
  Tensor moved = Tensor::empty(x.shape(), x.dtype(), device);
  kernels::copy(x, moved);
  return moved;
}

// The clock after `steps` steps: the running products again, so that a resumed run has the bits of one that never
// stopped. Stops early where a product no longer changes.
AdamClock clock_at(std::int64_t steps, const AdamGroup& group) {
  const auto power = [steps](double beta) {
    double product = 1;
    for (std::int64_t i = 0; i < steps; ++i) {
      const double next = product * beta;
      if (next == product) break;
      product = next;
    }
    return product;
  };
  return {steps, power(group.beta1), power(group.beta2)};
}

std::string state_key(std::size_t index, std::string_view name) { return cat("state.", index, ".", name); }
std::string group_key(std::size_t group, std::string_view option) { return cat("param_groups.", group, ".", option); }

}  // namespace

void AdamFamily::add_groups(const std::vector<AdamParamGroup>& groups, const AdamOptions& defaults, WeightDecay decay) {
  if (groups.empty()) add_group({}, defaults.lr);  // throws
  for (const AdamParamGroup& given : groups) {
    const std::pair<double, double> betas = given.betas.value_or(defaults.betas);
    AdamGroup group;
    group.lr = given.lr.value_or(defaults.lr);
    group.beta1 = betas.first;
    group.beta2 = betas.second;
    group.eps = given.eps.value_or(defaults.eps);
    group.weight_decay = given.weight_decay.value_or(defaults.weight_decay);
    group.amsgrad = given.amsgrad.value_or(defaults.amsgrad);
    group.maximize = given.maximize.value_or(defaults.maximize);
    group.decay = decay;
    require_valid(group, name());
    add_group(given.params, group.lr);
    groups_.push_back(group);
  }
  moments_.resize(parameters().size());
}

AdamGroup AdamFamily::kernel_group(std::size_t index) const {
  AdamGroup group = groups_[index];
  group.lr = learning_rate(index);
  if (group.weight_decay == 0) group.decay = WeightDecay::none;
  return group;
}

AdamFamily::Moments& AdamFamily::moments(std::size_t index) {
  const Tensor& parameter = parameters()[index];
  Moments& m = moments_[index];
  const auto place = [&](Tensor& moment) {
    if (moment.defined()) {
      moment = on_device(moment, parameter.device());  // the model was moved after it had stepped
    } else {
      moment = zeros(parameter.shape(), {.dtype = math_dtype(parameter.dtype()), .device = parameter.device()});
    }
  };
  place(m.exp_avg);
  place(m.exp_avg_sq);
  if (groups_[group_of(index)].amsgrad) place(m.max_exp_avg_sq);
  return m;
}

void AdamFamily::require_gradient_dtype(const Tensor& parameter, const Tensor& grad) const {
  if (kernels::fused_adam_takes(parameter.dtype(), grad.dtype())) return;
  throw DTypeError({.op = cat(name(), "::step"),
                    .got = cat("a parameter of ", fusegrad::name(parameter.dtype()), " with a gradient of ",
                               fusegrad::name(grad.dtype())),
                    .want = "equal dtypes, an f32 gradient, or a 16-bit gradient of an f32 parameter",
                    .way_out = "Convert the gradient to the parameter's dtype"});
}

std::int64_t AdamFamily::step_count(std::size_t index) const { return read_clocks().at(index).step; }

StateDict AdamFamily::state_dict() const {
  StateDict state = Optimizer::state_dict();
  const std::vector<AdamClock> clocks = read_clocks();
  for (std::size_t i = 0; i < moments_.size(); ++i) {
    const Moments& m = moments_[i];
    if (!m.exp_avg.defined()) continue;
    state.tensors[state_key(i, "exp_avg")] = m.exp_avg;
    state.tensors[state_key(i, "exp_avg_sq")] = m.exp_avg_sq;
    if (m.max_exp_avg_sq.defined()) state.tensors[state_key(i, "max_exp_avg_sq")] = m.max_exp_avg_sq;
    state.tensors[state_key(i, "step")] = full({}, static_cast<double>(clocks[i].step));
    state.numbers[state_key(i, "step")] = static_cast<double>(clocks[i].step);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    state.numbers[group_key(g, "beta1")] = groups_[g].beta1;
    state.numbers[group_key(g, "beta2")] = groups_[g].beta2;
    state.numbers[group_key(g, "eps")] = groups_[g].eps;
    state.numbers[group_key(g, "weight_decay")] = groups_[g].weight_decay;
    state.numbers[group_key(g, "amsgrad")] = groups_[g].amsgrad ? 1 : 0;
    state.numbers[group_key(g, "maximize")] = groups_[g].maximize ? 1 : 0;
    state.numbers[group_key(g, "decoupled_weight_decay")] = groups_[g].decay == WeightDecay::decoupled ? 1 : 0;
  }
  return state;
}

void AdamFamily::load_state_dict(const StateDict& state) {
  const std::string op = cat(name(), "::load_state_dict");
  const auto refuse = [&](const std::string& got, const std::string& want) {
    throw StateError({.op = op, .got = got, .want = want, .way_out = ""});
  };

  // Everything is read and checked first; nothing of this optimizer changes until all of it is known to fit.
  std::vector<AdamGroup> groups = groups_;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto number = [&](std::string_view option) {
      const auto found = state.numbers.find(group_key(g, option));
      if (found == state.numbers.end()) refuse(cat("a state without ", group_key(g, option)), "the state of an Adam");
      return found->second;
    };
    groups[g].beta1 = number("beta1");
    groups[g].beta2 = number("beta2");
    groups[g].eps = number("eps");
    groups[g].weight_decay = number("weight_decay");
    groups[g].amsgrad = number("amsgrad") != 0;
    groups[g].maximize = number("maximize") != 0;
    const bool decoupled = number("decoupled_weight_decay") != 0;
    if (decoupled != (groups[g].decay == WeightDecay::decoupled)) {
      refuse(decoupled ? "a state of AdamW" : "a state of Adam", cat("a state of ", decoupled ? "Adam" : "AdamW"));
    }
    require_valid(groups[g], op);
  }

  std::vector<Moments> moments(parameters().size());
  std::vector<AdamClock> clocks(parameters().size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Tensor& parameter = parameters()[i];
    const auto take = [&](std::string_view moment) {
      const auto found = state.tensors.find(state_key(i, moment));
      if (found == state.tensors.end()) return Tensor();
      ++used;
      require_same_shape(parameter, found->second, cat(op, " (", found->first, ")"));
      Tensor copy = Tensor::empty(parameter.shape(), math_dtype(parameter.dtype()), parameter.device());
      kernels::copy(found->second, copy);
      return copy;
    };
    moments[i] = {
        .exp_avg = take("exp_avg"), .exp_avg_sq = take("exp_avg_sq"), .max_exp_avg_sq = take("max_exp_avg_sq")};
    const auto step = state.tensors.find(state_key(i, "step"));
    const auto exact = state.numbers.find(state_key(i, "step"));
    const bool has_step = step != state.tensors.end();
    if (has_step) ++used;
    if (moments[i].exp_avg.defined() != moments[i].exp_avg_sq.defined() ||
        moments[i].exp_avg.defined() != (has_step || exact != state.numbers.end())) {
      refuse(cat("an incomplete state of parameter ", i), "step, exp_avg and exp_avg_sq together");
    }
    if (!moments[i].exp_avg.defined()) continue;
    const double count = exact != state.numbers.end() ? exact->second : step->second.item<double>();
    if (!(count >= 0) || count != std::floor(count) || count > 9e15) refuse(cat("step ", count), "a count");
    clocks[i] = clock_at(static_cast<std::int64_t>(count), groups[group_of(i)]);
  }
  if (used != state.tensors.size()) {
    refuse(cat(state.tensors.size(), " tensors, of which ", used, " belong to the ", parameters().size(),
               " parameters of this optimizer"),
           "the state of an optimizer over the same parameters");
  }
  Optimizer::load_state_dict(state);
  groups_ = std::move(groups);
  moments_ = std::move(moments);
  write_clocks(clocks);
}

}  // namespace fusegrad::optim
