#pragma once
// Batches for a trainer: tensors of samples, cut and shuffled.

#include <cstdint>
#include <optional>
#include <vector>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad::trainer {

/// One batch: inputs and what the model should make of them, sample by sample along dimension 0.
struct Batch {
  Tensor input;
  Tensor target;
};

struct DataLoaderOptions {
  std::int64_t batch_size = 1;  ///< above 0
  bool shuffle = false;
  bool drop_last = false;  ///< leave out a last batch that is smaller
  std::uint64_t seed = 0;  ///< of the shuffles; epoch e is shuffled the same way in every run
};

/// Cuts two tensors with equally many rows into batches. Without shuffling a batch is a view; with it, a copy of the
/// chosen rows on the samples' device.
class DataLoader {
 public:
  /// Throws `ShapeError` for different numbers of samples, `ValueError` for no samples or a batch size below 1.
  DataLoader(const Tensor& inputs, const Tensor& targets, const DataLoaderOptions& options = {});

  [[nodiscard]] std::int64_t batches() const;
  /// Batch `index` of `epoch`; a pure function of both.
  [[nodiscard]] Batch batch(std::int64_t epoch, std::int64_t index);

 private:
  [[nodiscard]] Tensor gather(const Tensor& samples, std::int64_t begin, std::int64_t end) const;

  Tensor inputs_;
  Tensor targets_;
  DataLoaderOptions options_;
  std::optional<std::int64_t> shuffled_epoch_;
  std::vector<std::int64_t> order_;
};

}  // namespace fusegrad::trainer
