// Adam, AdamW and SGD against PyTorch's own steps (tests/data/make_adam_reference.py), fused and unfused.

#include <cmath>

#include <fusegrad/optim/sgd.h>
#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>

namespace fusegrad {
namespace {

// "Adam|lr=0.03|betas1=0.8|…": the class and its options.
struct Case {
  std::string kind;
  std::map<std::string, double> options;
};

Case parse(const std::string& key) {
  Case result;
  std::istringstream parts(key);
  std::getline(parts, result.kind, '|');
  for (std::string part; std::getline(parts, part, '|');) {
    const std::size_t equal = part.find('=');
    result.options[part.substr(0, equal)] = std::stod(part.substr(equal + 1));
  }
  return result;
}

std::unique_ptr<optim::Optimizer> make(const Case& c, bool fused, const std::vector<Tensor>& params) {
  const auto option = [&](const char* key) {
    const auto found = c.options.find(key);
    return found == c.options.end() ? 0.0 : found->second;
  };
  if (c.kind == "SGD") {
    return std::make_unique<optim::SGD>(params, optim::SGDOptions{.lr = option("lr"),
                                                                  .momentum = option("momentum"),
                                                                  .dampening = option("dampening"),
                                                                  .weight_decay = option("weight_decay"),
                                                                  .nesterov = option("nesterov") != 0});
  }
  const std::pair betas{option("betas1"), option("betas2")};
  if (c.kind == "AdamW") {
    const optim::AdamWOptions o{
        option("lr"), betas, option("eps"), option("weight_decay"), option("amsgrad") != 0, option("maximize") != 0};
    if (fused) return std::make_unique<optim::FusedAdamW>(params, o);
    return std::make_unique<optim::AdamW>(params, o);
  }
  const optim::AdamOptions o{
      option("lr"), betas, option("eps"), option("weight_decay"), option("amsgrad") != 0, option("maximize") != 0};
  if (fused) return std::make_unique<optim::FusedAdam>(params, o);
  return std::make_unique<optim::Adam>(params, o);
}

class OptimizerReference : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(OptimizerReference);

TEST_P(OptimizerReference, StepsAsPyTorchDoes) {
  const TensorFile file = load_safetensors(std::string(FUSEGRAD_SOURCE_DIR) + "/tests/data/adam_reference.safetensors");
  const Tensor& start = file.tensors.at("start");
  const Tensor& gradients = file.tensors.at("gradients");
  int cases = 0;
  for (const auto& [key, path] : file.tensors) {
    if (key.find('|') == std::string::npos) continue;
    for (const bool fused : {false, true}) {
      const Tensor p = to(clone(start), device()).detach().requires_grad_();
      const auto optimizer = make(parse(key), fused, {p});
      for (std::int64_t step = 0; step < path.size(0); ++step) {
        p.set_grad(to(clone(view(rows(gradients, step, step + 1), {start.numel()})), device()));
        optimizer->step();
        const std::vector<double> got = p.to_vector<double>();
        const std::vector<double> want = rows(path, step, step + 1).to_vector<double>();
        for (std::size_t i = 0; i < got.size(); ++i) {
          // Both in f64; PyTorch's order of operations differs in the last bits, and ten steps let them add up.
          EXPECT_NEAR(got[i], want[i], 1e-13 * std::max(1.0, std::fabs(want[i]))) << key << ", step " << step;
        }
      }
    }
    ++cases;
  }
  EXPECT_EQ(cases, 18);
}

}  // namespace
}  // namespace fusegrad
