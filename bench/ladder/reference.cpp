// The phase as a reader would check it: the formulas of kernels/math, one element after the other, on the CPU.

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/bench/ladder/problem.h>
#include <fusegrad/kernels/grad_scaler.h>

namespace fusegrad::ladder {
namespace {

class Reference : public Runner {
 public:
  explicit Reference(std::vector<Tensor> parameters) : param_(std::move(parameters)) {
    for (const Tensor& p : param_) {
      exp_avg_.push_back(zeros_like(p));
      exp_avg_sq_.push_back(zeros_like(p));
    }
  }

  void set_gradients(const std::vector<Tensor>& gradients) override { grad_ = gradients; }

  void phase() override {
    Tensor found_inf = zeros({});
    Tensor norm = zeros({}, {.dtype = DType::f64});
    const float inverse = decision_.scaler.inverse;
    kernels::TensorList list;
    list.assign(grad_, "reference");
    kernels::check_gradients(list, {.inverse_scale = &inverse,
                                    .found_inf = found_inf.data<float>(),
                                    .norm = kernels::GradCheck::Norm::l2,
                                    .norm_out = norm.data<double>()});
    decision_ = decided(decision_, found_inf.item<float>() != 0.0f, norm.item<double>());
    if (decision_.skip) return;
    for (std::size_t k = 0; k < param_.size(); ++k) {
      for (std::int64_t i = 0; i < param_[k].numel(); ++i) update(k, i);
    }
  }

  std::int64_t launches() override { return 0; }

  Outcome outcome() override {
    Outcome out{.param = param_,
                .exp_avg = exp_avg_,
                .exp_avg_sq = exp_avg_sq_,
                .copy = {},
                .scale = static_cast<double>(decision_.scaler.scale)};
    for (const Tensor& p : param_) out.copy.push_back(to(p, DType::f16));
    return out;
  }

 private:
  void update(std::size_t k, std::int64_t i) {
    const float unscaled = math::scaled_gradient<float>(grad_[k].data<float>()[i], decision_.inverse_scale);
    const float g = math::scaled_gradient<float>(unscaled, decision_.clip);
    float unused = 0;
    math::adam_element<false>(param_[k].data<float>()[i], g, exp_avg_[k].data<float>()[i],
                              exp_avg_sq_[k].data<float>()[i], unused, decision_.coefficients, math::WeightDecay::none,
                              false);
  }

  std::vector<Tensor> param_;
  std::vector<Tensor> grad_;
  std::vector<Tensor> exp_avg_;
  std::vector<Tensor> exp_avg_sq_;
  Decision decision_;
};

}  // namespace

std::unique_ptr<Runner> reference(std::vector<Tensor> parameters) {
  return std::make_unique<Reference>(std::move(parameters));
}

}  // namespace fusegrad::ladder
