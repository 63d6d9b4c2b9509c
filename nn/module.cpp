#include <algorithm>

#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/module.h>

namespace fusegrad::nn {

std::vector<std::pair<std::string, Tensor>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Tensor>> all;
  collect("", all);
  return all;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (auto& [name, parameter] : named_parameters()) {
    const bool listed =
        std::any_of(all.begin(), all.end(), [&](const Tensor& other) { return other.is_same(parameter); });
    if (!listed) all.push_back(parameter);  // a weight that two parts share is one parameter
  }
  return all;
}

void Module::collect(const std::string& prefix, std::vector<std::pair<std::string, Tensor>>& into) const {
  for (const auto& [name, parameter] : parameters_) into.emplace_back(prefix + name, parameter);
  for (const auto& [name, module] : modules_) module->collect(cat(prefix, name, "."), into);
}

void Module::to(Device device) {
  require_available(device, "Module::to");
  const NoGrad guard;
  for (const Tensor& parameter : parameters()) {
    if (parameter.device() == device) continue;
    parameter.set_data(fusegrad::to(parameter, device));
    parameter.set_grad({});
  }
}

void Module::to(DType dtype) {
  if (!is_floating(dtype)) {
    throw DTypeError({.op = "Module::to", .got = "i64", .want = "a floating dtype", .way_out = ""});
  }
  const NoGrad guard;
  for (const Tensor& parameter : parameters()) {
    if (parameter.dtype() == dtype) continue;
    parameter.set_data(fusegrad::to(parameter, dtype));
    parameter.set_grad({});
  }
}

void Module::set_training(bool training) {
  training_ = training;
  for (const auto& [name, module] : modules_) module->set_training(training);
}

void Module::zero_grad() const {
  for (const auto& [name, parameter] : named_parameters()) parameter.zero_grad();
}

StateDict Module::state_dict() const {
  StateDict state;
  for (const auto& [name, parameter] : named_parameters()) state.tensors[name] = parameter;
  return state;
}

void Module::load_state_dict(const StateDict& state) {
  const auto mine = named_parameters();
  for (const auto& [name, parameter] : mine) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) {
      throw StateError({.op = "Module::load_state_dict",
                        .got = cat("a state without ", name),
                        .want = "a value for every parameter",
                        .way_out = ""});
    }
    require_same_shape(parameter, found->second, cat("Module::load_state_dict (", name, ")"));
  }
  for (const auto& [name, value] : state.tensors) {
    const bool known = std::any_of(mine.begin(), mine.end(), [&](const auto& entry) { return entry.first == name; });
    if (!known) {
      throw StateError({.op = "Module::load_state_dict",
                        .got = cat("a value for ", name),
                        .want = "names of this module's parameters only",
                        .way_out = ""});
    }
  }
  const NoGrad guard;
  for (const auto& [name, parameter] : mine) copy_(parameter, state.tensors.at(name));
}

void Module::require_new_name(std::string_view name) const {
  const auto taken = [&](const auto& entry) { return entry.first == name; };
  const bool valid = !name.empty() && name.find('.') == std::string_view::npos &&
                     std::none_of(parameters_.begin(), parameters_.end(), taken) &&
                     std::none_of(modules_.begin(), modules_.end(), taken);
  if (valid) return;
  throw ValueError({.op = "Module::register",
                    .got = cat("the name \"", name, '"'),
                    .want = "a new name without dots",
                    .way_out = ""});
}

Tensor Module::register_parameter(std::string_view name, Tensor parameter) {
  require_new_name(name);
  parameter.requires_grad_();
  parameters_.emplace_back(name, parameter);
  return parameter;
}

void Module::register_module(std::string_view name, std::shared_ptr<Module> module) {
  require_new_name(name);
  if (module == nullptr) {
    throw ValueError({.op = "Module::register_module", .got = "a null module", .want = "a module", .way_out = ""});
  }
  modules_.emplace_back(name, std::move(module));
}

}  // namespace fusegrad::nn
