// Rung 9: what the library does. Rungs 7 and 8, whichever is faster for the size; the deciding thread is one of the
// last block that looked, and the update is launched while the look still runs.

#include <fusegrad/amp/autocast.h>
#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/autograd/cast_policy.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/bench/ladder/problem.h>
#include <fusegrad/optim/adam.h>
#include <fusegrad/runtime/graph.h>

namespace fusegrad::ladder {
namespace {

class LibraryRunner : public Runner {
 public:
  explicit LibraryRunner(std::vector<Tensor> parameters)
      : parameters_(ready(std::move(parameters))),
        optimizer_(parameters_, {.lr = kAdam.lr, .betas = {kAdam.beta1, kAdam.beta2}, .eps = kAdam.eps}) {
    (void)scaler_.scale(zeros({}, {.device = kCUDA}));
  }

  void set_gradients(const std::vector<Tensor>& gradients) override {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (parameters_[i].grad().defined()) {
        copy_(parameters_[i].grad(), gradients[i]);
      } else {
        parameters_[i].set_grad(clone(gradients[i]));
      }
    }
  }

  void phase() override { scaler_.step_and_update(optimizer_, {.max_norm = kMaxNorm}); }

  std::int64_t launches() override {
    return Graph::capture(kCUDA, [this] { phase(); }).kernel_count();
  }

  Outcome outcome() override {
    Outcome out;
    const StateDict state = optimizer_.state_dict();
    const amp::Autocast region({.device = DeviceType::cuda, .dtype = DType::f16});
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      out.param.push_back(parameters_[i]);
      out.exp_avg.push_back(state.tensors.at(cat("state.", i, ".exp_avg")));
      out.exp_avg_sq.push_back(state.tensors.at(cat("state.", i, ".exp_avg_sq")));
      out.copy.push_back(lowered(parameters_[i]));
    }
    out.scale = scaler_.get_scale();
    return out;
  }

 private:
  // Asking for a weight copy once makes the optimizer keep it up to date.
  static std::vector<Tensor> ready(std::vector<Tensor> parameters) {
    const amp::Autocast region({.device = DeviceType::cuda, .dtype = DType::f16});
    for (Tensor& p : parameters) {
      p.requires_grad_();
      (void)lowered(p);
    }
    return parameters;
  }

  std::vector<Tensor> parameters_;
  optim::FusedAdam optimizer_;
  amp::GradScaler scaler_;
};

}  // namespace

std::unique_ptr<Runner> make_library(std::vector<Tensor> parameters) {
  return std::make_unique<LibraryRunner>(std::move(parameters));
}

}  // namespace fusegrad::ladder
