#include <fusegrad/autograd/creation.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/optim/sgd.h>

namespace fusegrad::optim {
namespace {

using kernels::Binary;
using kernels::converted;
using kernels::Side;

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = empty_like(x);
  kernels::binary_scalar(Binary::mul, x, factor, Side::right, y);
  return y;
}

Tensor sum(const Tensor& a, const Tensor& b) {
  Tensor y = empty_like(a);
  kernels::binary(Binary::add, a, b, y);
  return y;
}

std::string buffer_key(std::size_t index) { return cat("state.", index, ".momentum_buffer"); }

}  // namespace

SGD::SGD(const std::vector<Tensor>& params, const SGDOptions& options) : options_(options) {
  require_option(options.momentum >= 0, name(), "momentum", options.momentum, "0 or more");
  require_option(options.weight_decay >= 0, name(), "weight_decay", options.weight_decay, "0 or more");
  if (options.nesterov) {
    require_option(options.momentum > 0, name(), "momentum", options.momentum, "more than 0 with nesterov");
    require_option(options.dampening == 0, name(), "dampening", options.dampening, "0 with nesterov");
  }
  add_group(params, options.lr);
  buffers_.resize(params.size());
}

void SGD::step() {
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Tensor& parameter = parameters()[i];
    if (!parameter.grad().defined()) continue;
    const DType dtype = math_dtype(parameter.dtype());
    const Tensor p = converted(parameter, dtype);
    Tensor g = converted(parameter.grad(), dtype);
    if (options_.maximize) g = scaled(g, -1.0);
    if (options_.weight_decay != 0) g = sum(g, scaled(p, options_.weight_decay));
    if (options_.momentum != 0) {
      Tensor& buffer = buffers_[i];
      if (!buffer.defined()) {
        buffer = empty_like(g);
        kernels::copy(g, buffer);
      } else {
        if (buffer.device() != g.device()) {  // the model was moved after it had stepped
          const Tensor moved = empty_like(g);
          kernels::copy(buffer, moved);
          buffer = moved;
        }
        kernels::binary(Binary::add, scaled(buffer, options_.momentum), scaled(g, 1.0 - options_.dampening), buffer);
      }
      g = options_.nesterov ? sum(g, scaled(buffer, options_.momentum)) : buffer;
    }
    kernels::binary(Binary::sub, p, scaled(g, learning_rate()), p);
    if (!p.is_same(parameter)) kernels::copy(p, parameter);
    parameter.bump_version();
  }
}

StateDict SGD::state_dict() const {
  StateDict state = Optimizer::state_dict();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].defined()) state.tensors[buffer_key(i)] = buffers_[i];
  }
  return state;
}

void SGD::load_state_dict(const StateDict& state) {
  std::vector<Tensor> buffers(parameters().size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto found = state.tensors.find(buffer_key(i));
    if (found == state.tensors.end()) continue;
    ++used;
    const Tensor& parameter = parameters()[i];
    require_same_shape(parameter, found->second, cat("SGD::load_state_dict (", found->first, ")"));
    buffers[i] = Tensor::empty(parameter.shape(), math_dtype(parameter.dtype()), parameter.device());
    kernels::copy(found->second, buffers[i]);
  }
  if (used != state.tensors.size()) {
    throw StateError({.op = "SGD::load_state_dict",
                      .got = cat(state.tensors.size(), " tensors, of which ", used, " are this optimizer's"),
                      .want = "the state of an SGD over the same parameters",
                      .way_out = ""});
  }
  Optimizer::load_state_dict(state);
  buffers_ = std::move(buffers);
}

}  // namespace fusegrad::optim
