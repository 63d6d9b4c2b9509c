#include <algorithm>

#include <fusegrad/kernels/tensor_list.h>

namespace fusegrad::kernels {

std::vector<Chunk> make_chunks(std::span<const std::int64_t> sizes) {
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::int64_t begin = 0; begin < sizes[i]; begin += math::kChunk) {
      chunks.push_back({.tensor = static_cast<std::int64_t>(i), .begin = begin});
    }
  }
  return chunks;
}

void TensorList::assign(std::span<const Tensor> tensors, std::string_view op) {
  std::vector<ListedTensor> rows;
  rows.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    require_same_device({tensors.front(), tensor}, op);
    rows.push_back({.data = tensor.raw(), .numel = tensor.numel(), .dtype = tensor.dtype()});
  }
  device_ = tensors.empty() ? kCPU : tensors.front().device();
  // The chunks depend on the sizes alone, which hardly ever change.
  const auto same_size = [](const ListedTensor& a, const ListedTensor& b) { return a.numel == b.numel; };
  const std::span<const ListedTensor> before = tensors_.host();
  const bool unchanged =
      chunks_.is_on(device_) && std::equal(rows.begin(), rows.end(), before.begin(), before.end(), same_size);
  tensors_.assign(rows, device_);
  if (unchanged) return;
  std::vector<std::int64_t> sizes(rows.size());
  std::transform(rows.begin(), rows.end(), sizes.begin(), [](const ListedTensor& row) { return row.numel; });
  chunks_.assign(make_chunks(sizes), device_);
}

}  // namespace fusegrad::kernels
