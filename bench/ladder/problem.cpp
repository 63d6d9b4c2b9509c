#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/bench/ladder/problem.h>

namespace fusegrad::ladder {

Problem::Problem(std::vector<Tensor> parameters)
    : param(std::move(parameters)),
      found_inf(zeros({}, {.device = kCUDA})),
      clip(zeros({}, {.dtype = DType::f64, .device = kCUDA})),
      device_memory(std::make_unique<Storage>(sizeof(Decision), kCUDA)) {
  std::vector<Row> listed;
  std::vector<std::int64_t> sizes;
  std::int64_t first_chunk = 0;
  for (const Tensor& p : param) {
    grad.push_back(zeros_like(p));
    exp_avg.push_back(zeros_like(p));
    exp_avg_sq.push_back(zeros_like(p));
    denominator.push_back(zeros_like(p));
    copy.push_back(to(p, DType::f16));
    listed.push_back({.param = p.data<float>(),
                      .grad = grad.back().data<float>(),
                      .exp_avg = exp_avg.back().data<float>(),
                      .exp_avg_sq = exp_avg_sq.back().data<float>(),
                      .denominator = denominator.back().data<float>(),
                      .copy = copy.back().data<Float16>(),
                      .numel = p.numel(),
                      .first_chunk = first_chunk});
    sizes.push_back(p.numel());
    first_chunk += (p.numel() + math::kChunk - 1) / math::kChunk;
  }
  rows.assign(listed, kCUDA);
  chunks.assign(kernels::make_pieces(sizes, math::kChunk), kCUDA);
  tiles.assign(kernels::make_pieces(sizes, kTile), kCUDA);
  scratch = workspace.reserve(chunks.size(), kCUDA);
  copy_bytes(device_memory->data(), kCUDA, &host, kCPU, sizeof host);
}

namespace {

class FunctionRunner : public Runner {
 public:
  FunctionRunner(std::vector<Tensor> parameters, void (*phase)(Problem&))
      : problem_(std::move(parameters)), phase_(phase) {}

  void set_gradients(const std::vector<Tensor>& gradients) override {
    for (std::size_t i = 0; i < gradients.size(); ++i) copy_(problem_.grad[i], gradients[i]);
  }

  void phase() override {
    problem_.launches = 0;
    phase_(problem_);
  }

  std::int64_t launches() override { return problem_.launches; }

  Outcome outcome() override {
    Decision last = problem_.host;
    if (problem_.on_device) copy_bytes(&last, kCPU, problem_.device(), kCUDA, sizeof last);
    return {.param = problem_.param,
            .exp_avg = problem_.exp_avg,
            .exp_avg_sq = problem_.exp_avg_sq,
            .copy = problem_.copy,
            .scale = static_cast<double>(last.scaler.scale)};
  }

 private:
  Problem problem_;
  void (*phase_)(Problem&);
};

}  // namespace

std::unique_ptr<Runner> make_runner(std::vector<Tensor> parameters, void (*phase)(Problem&)) {
  return std::make_unique<FunctionRunner>(std::move(parameters), phase);
}

}  // namespace fusegrad::ladder
