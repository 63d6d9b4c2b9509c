// The experiment that this library began with: ten Adam steps of a 10×10 Linear over one fixed batch, in every
// combination of precision, fused or unfused optimizer, trainer or hand-written loop, with and without clipping. The
// trainer it was reported against divided the gradients by the loss scale twice with a fused optimizer, and no error
// said so; that faulty run is reproduced here by hand, beside the right ones.
//
//     reported_experiment [--device cpu|cuda] [--steps N] [--json FILE]
//
// Exits with 1 if a row is off its reference.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <fusegrad/amp/autocast.h>
#include <fusegrad/amp/grad_scaler.h>
#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/optim/adam.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/trainer/trainer.h>

namespace {

using namespace fusegrad;
using trainer::Precision;

constexpr std::uint64_t kSeed = 2809;
using Losses = std::array<double, 10>;

// One row of the table. `reference` was measured with PyTorch 2.11 on an H200 (bench/peers/reported_experiment.py).
struct Row {
  Precision precision;
  bool fused;
  bool by_trainer;
  double clip;
  bool double_unscale;
  const Losses* reference;
  double absolute_tolerance;
  double relative_tolerance;
};

constexpr Losses kF32{1.2253, 12.5671, 1.9264, 3.3611, 6.1564, 3.7491, 1.2455, 1.6056, 2.9661, 2.7972};
constexpr Losses kF16{1.2253, 12.5661, 1.9271, 3.3610, 6.1556, 3.7495, 1.2460, 1.6055, 2.9659, 2.7962};
constexpr Losses kF16Fused{1.2253, 12.5661, 1.9270, 3.3610, 6.1554, 3.7495, 1.2461, 1.6055, 2.9660, 2.7961};
constexpr Losses kFaulty{1.2253, 11.9412, 1.8664, 3.2854, 5.8826, 3.4993, 1.1668, 1.6118, 2.8677, 2.6043};
constexpr Losses kF32Clipped{1.2253, 12.5671, 8.9497, 3.3468, 2.6957, 3.4373, 2.9535, 1.9296, 1.2849, 1.3298};
constexpr Losses kF16Clipped{1.2253, 12.5661, 8.9477, 3.3464, 2.6951, 3.4365, 2.9534, 1.9300, 1.2849, 1.3292};
constexpr Losses kBF16{1.2249, 12.5712, 1.9250, 3.3641, 6.1535, 3.7416, 1.2464, 1.6085, 2.9679, 2.7924};

struct Outcome {
  std::vector<double> losses;
  std::vector<float> weights;  // all parameters after the last step
};

class LinearModel : public trainer::TrainingModule {
 public:
  explicit LinearModel(bool fused) : fused_(fused) { register_module("linear", linear_); }
  Tensor forward(const Tensor& x) override { return linear_->forward(x); }
  Tensor training_step(const trainer::Batch& batch) override { return mse_loss(forward(batch.input), batch.target); }
  std::unique_ptr<optim::Optimizer> configure_optimizer() override {
    if (fused_) return std::make_unique<optim::FusedAdam>(parameters(), optim::AdamOptions{.lr = 1.0});
    return std::make_unique<optim::Adam>(parameters(), optim::AdamOptions{.lr = 1.0});
  }
  [[nodiscard]] std::vector<float> weights() const {
    std::vector<float> all;
    for (const Tensor& parameter : parameters()) {
      const std::vector<float> values = parameter.to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  bool fused_;
  std::shared_ptr<nn::Linear> linear_ = std::make_shared<nn::Linear>(10, 10);
};

// The model as the report has it: seeded, initialised on the CPU.
LinearModel make_model(bool fused) {
  manual_seed(kSeed);
  return LinearModel(fused);
}

struct Data {
  Tensor target;
  Tensor input;
};

// Normals of the CUDA generator, the target first. A CPU draws the same numbers.
Data make_data(Device device) {
  CudaGenerator generator(kSeed);
  const Tensor target = randn({10, 10}, generator);
  const Tensor input = randn({10, 10}, generator);
  return {.target = to(target, device), .input = to(input, device)};
}

Outcome run_by_trainer(const Row& row, const Data& data, std::int64_t steps) {
  LinearModel model = make_model(row.fused);
  trainer::DataLoader loader(data.input, data.target, {.batch_size = 10});
  trainer::Trainer trainer({.precision = row.precision,
                            .device = data.input.device(),
                            .max_steps = steps,
                            .gradient_clip = {.max_norm = row.clip}});
  trainer.fit(model, loader);
  return {.losses = trainer.losses(), .weights = model.weights()};
}

// What a user without the trainer writes.
Outcome run_by_hand(const Row& row, const Data& data, std::int64_t steps) {
  const Device device = data.input.device();
  LinearModel model = make_model(row.fused);
  model.to(device);
  const std::unique_ptr<optim::Optimizer> optimizer = model.configure_optimizer();
  amp::GradScaler scaler({.enabled = row.precision == Precision::f16_mixed});
  Outcome outcome;
  for (std::int64_t step = 0; step < steps; ++step) {
    Tensor loss;
    {
      const amp::Autocast region({.device = device.type,
                                  .dtype = row.precision == Precision::bf16_mixed ? DType::bf16 : DType::f16,
                                  .enabled = row.precision != Precision::f32});
      loss = mse_loss(model(data.input), data.target);
    }
    optimizer->zero_grad();
    scaler.scale(loss).backward();
    if (row.double_unscale) {  // the fault: the optimizer's own pass will divide once more
      for (const Tensor& grad : optimizer->gradients()) mul_(grad, 1.0 / scaler.get_scale());
    }
    scaler.step(*optimizer, {.max_norm = row.clip});
    scaler.update();
    outcome.losses.push_back(loss.item<double>());
  }
  outcome.weights = model.weights();
  return outcome;
}

// An optimizer as somebody may write one: it divides by the scale itself, but leaves no place for clipping.
class PlainDescent : public optim::Optimizer {
 public:
  explicit PlainDescent(const std::vector<Tensor>& params) { add_group(params, 0.1); }
  [[nodiscard]] std::string_view name() const override { return "PlainDescent"; }
  [[nodiscard]] bool owns_unscaling() const override { return true; }
  void step() override { step(optim::GradTransform{}); }
  void step(const optim::GradTransform& transform) override {
    if (transform.found_inf.defined() && transform.found_inf.item<float>() != 0) return;
    const double inverse = transform.inverse_scale.defined() ? transform.inverse_scale.item<double>() : 1.0;
    const NoGrad guard;
    for (const Tensor& parameter : parameters()) {
      if (parameter.grad().defined()) add_(parameter, parameter.grad(), -learning_rate() * inverse);
    }
  }
};

class PlainDescentModel : public LinearModel {
 public:
  PlainDescentModel() : LinearModel(/*fused=*/true) {}
  std::unique_ptr<optim::Optimizer> configure_optimizer() override {
    return std::make_unique<PlainDescent>(parameters());
  }
};

// The trainer's refusal to clip with it, or nothing if it did not refuse.
std::optional<std::string> refusal(const Data& data) {
  PlainDescentModel model;
  trainer::DataLoader loader(data.input, data.target, {.batch_size = 10});
  trainer::Trainer trainer({.precision = Precision::f16_mixed,
                            .device = data.input.device(),
                            .max_steps = 1,
                            .gradient_clip = {.max_norm = 0.5}});
  try {
    trainer.fit(model, loader);
  } catch (const StateError& error) {
    return error.what();
  }
  return std::nullopt;
}

const char* text(Precision precision) {
  switch (precision) {
    case Precision::f32:
      return "f32";
    case Precision::f16_mixed:
      return "f16";
    case Precision::bf16_mixed:
      return "bf16";
  }
  return "";
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const bool by_trainer : {true, false}) {
    for (const bool fused : {false, true})
      rows.push_back({Precision::f32, fused, by_trainer, 0, false, &kF32, 2e-4, 0});
    for (const bool fused : {false, true}) {
      rows.push_back({Precision::f16_mixed, fused, by_trainer, 0, false, fused ? &kF16Fused : &kF16, 0, 2e-3});
    }
    for (const bool fused : {false, true}) {
      rows.push_back({Precision::bf16_mixed, fused, by_trainer, 0, false, &kBF16, 0, 1e-2});
    }
  }
  rows.push_back({Precision::f16_mixed, true, false, 0, true, &kFaulty, 0, 5e-3});
  for (const bool fused : {false, true})
    rows.push_back({Precision::f32, fused, true, 0.5, false, &kF32Clipped, 0, 2e-3});
  for (const bool fused : {false, true}) {
    rows.push_back({Precision::f16_mixed, fused, true, 0.5, false, &kF16Clipped, 0, 2e-3});
  }
  return rows;
}

struct Judgement {
  double worst = 0;  // largest |loss − reference|
  bool fits = true;
};

Judgement judge(const Row& row, const std::vector<double>& losses) {
  Judgement result;
  for (std::size_t i = 0; i < std::min(losses.size(), row.reference->size()); ++i) {
    const double reference = (*row.reference)[i];
    const double deviation = std::fabs(losses[i] - reference);
    result.worst = std::max(result.worst, deviation);
    // The references are rounded to four decimals.
    const double allowed = row.absolute_tolerance + row.relative_tolerance * reference + 5e-5;
    if (!(deviation <= allowed)) result.fits = false;
  }
  return result;
}

void print_losses(const char* label, std::span<const double> losses) {
  std::printf("    %-9s", label);
  for (const double loss : losses) std::printf(" %8.4f", loss);
  std::printf("\n");
}

int run(Device device, std::int64_t steps, const std::string& json_file) {
  const Data data = make_data(device);
  nlohmann::json report{{"device", device.is_cpu() ? "cpu" : "cuda"}, {"rows", nlohmann::json::array()}};
  std::printf("Linear(10, 10), MSE, Adam lr 1, one batch, seed %d, on %s\n", static_cast<int>(kSeed),
              device.str().c_str());
  std::printf("reference: PyTorch 2.11 on an H200, four decimals\n\n");

  bool all_fit = true;
  Outcome unfused;
  for (const Row& row : all_rows()) {
    const Outcome outcome = row.by_trainer ? run_by_trainer(row, data, steps) : run_by_hand(row, data, steps);
    const Judgement judgement = judge(row, outcome.losses);
    std::optional<bool> equal;
    if (!row.fused) {
      unfused = outcome;
    } else if (!row.double_unscale) {
      equal = outcome.losses == unfused.losses && outcome.weights == unfused.weights;
    }
    const bool fits = judgement.fits && equal.value_or(true);
    all_fit = all_fit && fits;

    std::printf("%-4s  %-7s  %-7s  %s%s\n", text(row.precision), row.fused ? "fused" : "unfused",
                row.by_trainer ? "trainer" : "manual", row.clip > 0 ? "clip 0.5  " : "",
                row.double_unscale ? "THE FAULT: unscaled twice" : "");
    print_losses("loss", outcome.losses);
    print_losses("reference", std::span(*row.reference).first(std::min(outcome.losses.size(), row.reference->size())));
    std::printf("    largest deviation %.1e%s   %s\n", judgement.worst,
                !equal ? "" : (*equal ? "   bits equal to unfused: yes" : "   bits equal to unfused: NO"),
                fits ? "ok" : "OFF");

    report["rows"].push_back({{"precision", text(row.precision)},
                              {"fused", row.fused},
                              {"loop", row.by_trainer ? "trainer" : "manual"},
                              {"clip", row.clip > 0 ? nlohmann::json(row.clip) : nlohmann::json(nullptr)},
                              {"double_unscale", row.double_unscale},
                              {"losses", outcome.losses},
                              {"bits_equal_to_unfused", equal ? nlohmann::json(*equal) : nlohmann::json(nullptr)}});
  }

  const std::optional<std::string> refused = refusal(data);
  all_fit = all_fit && refused.has_value();
  std::printf("\nclipping with an optimizer that owns unscaling but not clipping:\n    %s\n",
              refused ? refused->c_str() : "NOT REFUSED");
  std::printf("\n%s\n", all_fit ? "every row fits its reference" : "A ROW IS OFF");

  if (!json_file.empty()) {
    std::ofstream out(json_file);
    out << report.dump(2) << '\n';
    out.close();
    if (!out) {
      throw IOError({.op = "reported_experiment",
                     .got = cat("a failed write to ", json_file),
                     .want = "a file that can be written",
                     .way_out = ""});
    }
  }
  return all_fit ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The reported experiment: fused Adam under mixed precision, unscaled exactly once");
  std::string device = "cpu";
  std::int64_t steps = 10;
  std::string json_file;
  app.add_option("--device", device, "cpu or cuda")->capture_default_str();
  app.add_option("--steps", steps, "steps to train")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000}))
      ->capture_default_str();
  app.add_option("--json", json_file, "write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(parse_device(device), steps, json_file);
  } catch (const std::exception& error) {
    std::cerr << "reported_experiment: " << error.what() << '\n';
    return 2;
  }
}
