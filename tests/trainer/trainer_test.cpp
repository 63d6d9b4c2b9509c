// The trainer: parity over precision and optimizer, the question it asks, accumulation, resuming, and laws 3 and 4.

#include <cmath>
#include <filesystem>
#include <sstream>

#include <fusegrad/autograd/ops.h>
#include <fusegrad/nn/activations.h>
#include <fusegrad/nn/linear.h>
#include <fusegrad/nn/sequential.h>
#include <fusegrad/optim/sgd.h>
#include <fusegrad/runtime/generator.h>
#include <fusegrad/runtime/stream.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/optim/twins.h>
#include <fusegrad/tests/runtime/temporary_folder.h>
#include <fusegrad/trainer/trainer.h>

namespace fusegrad {
namespace {

using trainer::Batch;
using trainer::DataLoader;
using trainer::Precision;
using trainer::Trainer;

enum class Which { fused, unfused, sgd, stubborn };

// Owns unscaling, cannot clip; counts what it was asked to do.
class Stubborn : public optim::Optimizer {
 public:
  explicit Stubborn(const std::vector<Tensor>& params) { add_group(params, 0.1); }
  [[nodiscard]] std::string_view name() const override { return "Stubborn"; }
  [[nodiscard]] bool owns_unscaling() const override { return true; }
  void step() override {}
  void step(const optim::GradTransform&) override {}
};

class Model : public trainer::TrainingModule {
 public:
  explicit Model(Which which, double lr = 0.01) : which_(which), lr_(lr) { register_module("net", net_); }
  Tensor forward(const Tensor& x) override { return net_->forward(x); }
  Tensor training_step(const Batch& batch) override {
    ++steps;
    return mse_loss(forward(batch.input), batch.target);
  }
  std::unique_ptr<optim::Optimizer> configure_optimizer() override {
    switch (which_) {
      case Which::fused:
        return std::make_unique<optim::FusedAdam>(parameters(), optim::AdamOptions{.lr = lr_});
      case Which::unfused:
        return std::make_unique<optim::Adam>(parameters(), optim::AdamOptions{.lr = lr_});
      case Which::sgd:
        return std::make_unique<optim::SGD>(parameters(), optim::SGDOptions{.lr = lr_});
      case Which::stubborn:
        return std::make_unique<Stubborn>(parameters());
    }
    return nullptr;
  }
  int steps = 0;

 private:
  Which which_;
  double lr_;
  std::shared_ptr<nn::Sequential> net_ = std::make_shared<nn::Sequential>(
      std::make_shared<nn::Linear>(8, 16), std::make_shared<nn::ReLU>(), std::make_shared<nn::Linear>(16, 4));
};

struct Data {
  Tensor input;
  Tensor target;
};

Data make_data(std::int64_t samples) {
  CpuGenerator generator(5);
  const Tensor input = randn({samples, 8}, generator);
  return {.input = input, .target = randn({samples, 4}, generator)};
}

Model make_model(Which which, double lr = 0.01) {
  manual_seed(3);
  return Model(which, lr);
}

class TrainerTest : public DeviceTest {
 protected:
  static void expect_same_parameters(const Model& a, const Model& b, const std::string& where) {
    const auto left = a.parameters();
    const auto right = b.parameters();
    for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(same_bits(left[i], right[i])) << where;
  }
};
FUSEGRAD_ON_EVERY_DEVICE(TrainerTest);

TEST_P(TrainerTest, FusedEqualsUnfusedInEveryPrecisionClippedOrNot) {
  const Data data = make_data(32);
  for (const Precision precision : {Precision::f32, Precision::f16_mixed, Precision::bf16_mixed}) {
    for (const optim::GradientClip& clip :
         {optim::GradientClip{}, optim::GradientClip{.max_norm = 0.1}, optim::GradientClip{.max_value = 0.001}}) {
      std::vector<std::vector<double>> losses;
      Model fused = make_model(Which::fused);
      Model unfused = make_model(Which::unfused);
      for (Model* model : {&fused, &unfused}) {
        DataLoader loader(data.input, data.target, {.batch_size = 8, .shuffle = true});
        // A scale at which the first f16 steps overflow.
        Trainer trainer({.precision = precision,
                         .device = device(),
                         .max_steps = 50,
                         .gradient_clip = clip,
                         .scaler = {.init_scale = 1073741824.0, .growth_interval = 10}});
        trainer.fit(*model, loader);
        losses.push_back(trainer.losses());
        if (precision == Precision::f16_mixed) {
          EXPECT_GT(trainer.scaler().skipped_steps(), 0);
        }
      }
      const std::string where = cat("precision ", static_cast<int>(precision), ", clip ", clip.max_norm);
      EXPECT_EQ(losses[0], losses[1]) << where;
      expect_same_parameters(fused, unfused, where);
      EXPECT_LT(losses[0].back(), losses[0].front()) << where;
    }
  }
}

TEST_P(TrainerTest, LossesAgreeBetweenPrecisions) {
  const Data data = make_data(32);
  std::vector<std::vector<double>> losses;
  for (const Precision precision : {Precision::f32, Precision::f16_mixed, Precision::bf16_mixed}) {
    Model model = make_model(Which::fused);
    DataLoader loader(data.input, data.target, {.batch_size = 32});
    Trainer trainer({.precision = precision, .device = device(), .max_steps = 30});
    trainer.fit(model, loader);
    losses.push_back(trainer.losses());
  }
  for (std::size_t i = 0; i < losses[0].size(); ++i) {
    EXPECT_NEAR(losses[1][i], losses[0][i], 2e-3 * losses[0][i]);  // f16 products: 11 bits
    EXPECT_NEAR(losses[2][i], losses[0][i], 2e-2 * losses[0][i]);  // bf16 products: 8 bits
  }
}

TEST_P(TrainerTest, RefusesToClipForAnOwnerThatCannotBeforeAnyWork) {
  const Data data = make_data(8);
  for (const Precision precision : {Precision::f32, Precision::f16_mixed, Precision::bf16_mixed}) {
    for (const optim::GradientClip& clip :
         {optim::GradientClip{.max_norm = 0.5}, optim::GradientClip{.max_value = 0.5}}) {
      Model model = make_model(Which::stubborn);
      DataLoader loader(data.input, data.target, {.batch_size = 8});
      Trainer trainer({.precision = precision, .device = device(), .max_steps = 1, .gradient_clip = clip});
      try {
        trainer.fit(model, loader);
        FAIL() << "no error";
      } catch (const StateError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("Stubborn"), std::string::npos) << text;
        EXPECT_NE(text.find("Turn clipping off"), std::string::npos) << text;
        EXPECT_NE(text.find("Adam"), std::string::npos) << text;
      }
      EXPECT_EQ(model.steps, 0);
    }
    Model model = make_model(Which::stubborn);
    DataLoader loader(data.input, data.target, {.batch_size = 8});
    Trainer trainer({.precision = precision, .device = device(), .max_steps = 1});
    EXPECT_NO_THROW(trainer.fit(model, loader)) << "without clipping there is nothing to refuse";
  }
}

TEST_P(TrainerTest, AFusedStepReadsNothingBackAndAllocatesNothingAfterTheThird) {
  struct Watch : trainer::Callback {
    Device device;
    std::vector<std::int64_t> syncs;
    std::vector<std::int64_t> allocations;
    explicit Watch(Device d) : device(d) {}
    void on_step_end(const Trainer&, const trainer::StepInfo&) override {
      syncs.push_back(host_sync_count());
      allocations.push_back(memory_stats(device).allocations);
    }
  };
  const Data data = make_data(8);
  for (const Precision precision : {Precision::f32, Precision::f16_mixed, Precision::bf16_mixed}) {
    for (const optim::GradientClip& clip : {optim::GradientClip{}, optim::GradientClip{.max_norm = 0.1}}) {
      Model model = make_model(Which::fused);
      DataLoader loader(data.input, data.target, {.batch_size = 8});
      const auto watch = std::make_shared<Watch>(device());
      Trainer trainer(
          {.precision = precision, .device = device(), .max_steps = 30, .gradient_clip = clip, .callbacks = {watch}});
      trainer.fit(model, loader);
      for (std::size_t i = 1; i < watch->syncs.size(); ++i) EXPECT_EQ(watch->syncs[i], watch->syncs[0]) << i;
      for (std::size_t i = 3; i < watch->allocations.size(); ++i) {
        EXPECT_EQ(watch->allocations[i], watch->allocations[2]) << "step " << i + 1;
      }
    }
  }
}

TEST_P(TrainerTest, AccumulatedMicroBatchesEqualOneLargeBatch) {
  const Data data = make_data(32);
  std::vector<Tensor> weights;
  std::vector<int> calls;
  for (const std::int64_t parts : {1, 4}) {
    for (const Which which : {Which::fused, Which::unfused}) {
      Model model = make_model(which);
      DataLoader loader(data.input, data.target, {.batch_size = 32 / parts});
      Trainer trainer({.precision = Precision::f16_mixed,
                       .device = device(),
                       .max_steps = 10,
                       .gradient_clip = {.max_norm = 0.5},
                       .accumulate_batches = parts});
      trainer.fit(model, loader);
      EXPECT_EQ(model.steps, 10 * parts);
      weights.push_back(model.parameters()[0]);
    }
  }
  const std::vector<float> whole = weights[0].to_vector<float>();
  const std::vector<float> split = weights[2].to_vector<float>();
  EXPECT_TRUE(same_bits(weights[0], weights[1]));
  EXPECT_TRUE(same_bits(weights[2], weights[3]));
  // The same sums in another order, products in f16; ten steps of size 0.01 each.
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], split[i], 2e-3);
}

TEST_P(TrainerTest, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  const Data data = make_data(40);
  const TemporaryFolder folder;
  for (const Which which : {Which::fused, Which::unfused}) {
    const auto options = [&](std::int64_t steps) {
      return trainer::TrainerOptions{.precision = Precision::f16_mixed,
                                     .device = device(),
                                     .max_steps = steps,
                                     .gradient_clip = {.max_norm = 0.5},
                                     .scaler = {.init_scale = 4194304.0, .growth_interval = 4}};
    };
    const auto loader = [&] { return DataLoader(data.input, data.target, {.batch_size = 8, .shuffle = true}); };
    Model straight = make_model(which);
    {
      DataLoader batches = loader();
      Trainer(options(23)).fit(straight, batches);
    }
    const std::filesystem::path file = folder.path() / "checkpoint.safetensors";
    {
      Model first = make_model(which);
      DataLoader batches = loader();
      auto o = options(11);
      o.callbacks = {std::make_shared<trainer::Checkpoint>(file, 4)};
      Trainer(o).fit(first, batches);
    }
    Model second(which);  // other weights, to be replaced
    DataLoader batches = loader();
    auto o = options(23);
    o.resume_from = file;
    Trainer resumed(o);
    resumed.fit(second, batches);
    EXPECT_EQ(resumed.losses().size(), 12u);
    expect_same_parameters(straight, second, "resumed");
  }
}

TEST_P(TrainerTest, EpochsAndStepsBoundTheRun) {
  const Data data = make_data(10);
  const auto steps = [&](std::int64_t max_steps, std::int64_t max_epochs, bool drop_last, std::int64_t accumulate) {
    Model model = make_model(Which::sgd);
    DataLoader loader(data.input, data.target, {.batch_size = 4, .drop_last = drop_last});
    Trainer trainer(
        {.device = device(), .max_steps = max_steps, .max_epochs = max_epochs, .accumulate_batches = accumulate});
    trainer.fit(model, loader);
    EXPECT_EQ(static_cast<std::int64_t>(trainer.losses().size()), trainer.steps_done());
    return trainer.steps_done();
  };
  EXPECT_EQ(steps(-1, 2, false, 1), 6);
  EXPECT_EQ(steps(-1, 2, true, 1), 4);
  EXPECT_EQ(steps(5, 2, false, 1), 5);
  EXPECT_EQ(steps(7, -1, false, 1), 7);
  EXPECT_EQ(steps(-1, 2, false, 4), 1);
  EXPECT_EQ(steps(0, -1, false, 1), 0);
}

TEST(Trainer, ProgressPrintsStepsAndLosses) {
  const Data data = make_data(8);
  std::ostringstream out;
  Model model = make_model(Which::sgd);
  DataLoader loader(data.input, data.target, {.batch_size = 8});
  Trainer trainer(
      {.max_steps = 5, .callbacks = {std::make_shared<trainer::Progress>(out, trainer::ProgressOptions{.every = 2})}});
  trainer.fit(model, loader);
  const std::string text = out.str();
  for (const char* part : {"step 2/5", "step 4/5", "step 5/5", "loss ", "steps/s", "epoch"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(Trainer, RefusesNonsense) {
  EXPECT_THROW(Trainer(trainer::TrainerOptions{}), ValueError);
  EXPECT_THROW(Trainer({.max_steps = -2}), ValueError);
  EXPECT_THROW(Trainer({.max_steps = 1, .gradient_clip = {.max_norm = -1}}), ValueError);
  EXPECT_THROW(Trainer({.max_steps = 1, .gradient_clip = {.max_norm = NAN}}), ValueError);
  EXPECT_THROW(Trainer({.max_steps = 1, .accumulate_batches = 0}), ValueError);
  EXPECT_THROW(Trainer({.device = {DeviceType::cuda, 99}, .max_steps = 1}), DeviceError);
  const Data data = make_data(8);
  EXPECT_THROW(DataLoader(data.input, rows(data.target, 0, 4)), ShapeError);
  EXPECT_THROW(DataLoader(data.input, data.target, {.batch_size = 0}), ValueError);
  EXPECT_THROW(DataLoader(data.input, data.target, {.batch_size = 9, .drop_last = true}), ValueError);
  EXPECT_THROW(trainer::Checkpoint("x", 0), ValueError);
  EXPECT_THROW(trainer::Progress({.every = 0}), ValueError);
  EXPECT_THROW(Trainer({.max_steps = 1}).save_checkpoint("x"), StateError);
  const TemporaryFolder folder;
  Model model = make_model(Which::sgd);
  DataLoader loader(data.input, data.target, {.batch_size = 8});
  Trainer missing({.max_steps = 1, .resume_from = folder.path() / "missing"});
  EXPECT_THROW(missing.fit(model, loader), IOError);
}

TEST(DataLoader, EveryEpochShowsEverySampleOnceAndRepeatsExactly) {
  const Tensor samples = tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  DataLoader a(samples, samples, {.batch_size = 3, .shuffle = true, .seed = 1});
  DataLoader b(samples, samples, {.batch_size = 3, .shuffle = true, .seed = 1});
  std::vector<std::vector<float>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<float> seen;
    for (std::int64_t i = 0; i < a.batches(); ++i) {
      const Batch batch = a.batch(epoch, i);
      EXPECT_TRUE(same_bits(batch.input, batch.target));
      for (const float value : batch.input.to_vector<float>()) seen.push_back(value);
    }
    epochs.push_back(seen);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, samples.to_vector<float>());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_TRUE(same_bits(b.batch(2, 1).input, tensor(std::span<const float>(epochs[2]).subspan(3, 3), {3})));
}

}  // namespace
}  // namespace fusegrad
