#include <algorithm>
#include <numeric>
#include <random>

#include <fusegrad/autograd/ops.h>
#include <fusegrad/trainer/data.h>

namespace fusegrad::trainer {

DataLoader::DataLoader(const Tensor& inputs, const Tensor& targets, const DataLoaderOptions& options)
    : inputs_(inputs), targets_(targets), options_(options) {
  if (inputs.dims() < 1 || targets.dims() < 1 || inputs.size(0) != targets.size(0)) {
    throw ShapeError({.op = "DataLoader",
                      .got = cat("inputs ", inputs.shape().str(), " and targets ", targets.shape().str()),
                      .want = "equally many samples along dimension 0",
                      .way_out = ""});
  }
  if (inputs.size(0) == 0) {
    throw ValueError({.op = "DataLoader", .got = "no samples", .want = "at least one", .way_out = ""});
  }
  if (options.batch_size < 1) {
    throw ValueError(
        {.op = "DataLoader", .got = cat("batch_size = ", options.batch_size), .want = "1 or more", .way_out = ""});
  }
  if (batches() == 0) {
    throw ValueError({.op = "DataLoader",
                      .got = cat(inputs.size(0), " samples in batches of ", options.batch_size, " with drop_last"),
                      .want = "at least one whole batch",
                      .way_out = "Use a smaller batch_size, or drop_last = false"});
  }
}

std::int64_t DataLoader::batches() const {
  const std::int64_t samples = inputs_.size(0);
  return options_.drop_last ? samples / options_.batch_size : (samples + options_.batch_size - 1) / options_.batch_size;
}

Batch DataLoader::batch(std::int64_t epoch, std::int64_t index) {
  const std::int64_t begin = index * options_.batch_size;
  const std::int64_t end = std::min(inputs_.size(0), begin + options_.batch_size);
  if (!options_.shuffle) return {.input = rows(inputs_, begin, end), .target = rows(targets_, begin, end)};
  if (shuffled_epoch_ != epoch) {
    order_.resize(static_cast<std::size_t>(inputs_.size(0)));
    std::iota(order_.begin(), order_.end(), 0);
    // Fisher and Yates by hand: std::shuffle may differ between standard libraries.
    std::mt19937_64 random(options_.seed + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(epoch + 1));
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
    shuffled_epoch_ = epoch;
  }
  return {.input = gather(inputs_, begin, end), .target = gather(targets_, begin, end)};
}

Tensor DataLoader::gather(const Tensor& samples, std::int64_t begin, std::int64_t end) const {
  const Shape inner = samples.shape().slice(1, samples.dims());
  Shape shape{end - begin};
  for (std::int64_t size : inner) shape = shape.append(size);
  Tensor gathered = Tensor::empty(shape, samples.dtype(), samples.device());
  for (std::int64_t i = begin; i < end; ++i) {
    const Tensor from = samples.alias(inner, order_[static_cast<std::size_t>(i)] * inner.numel());
    const Tensor into = gathered.alias(inner, (i - begin) * inner.numel());
    copy_bytes(into.raw(), into.device(), from.raw(), from.device(), from.bytes());
  }
  return gathered;
}

}  // namespace fusegrad::trainer
