#include <algorithm>
#include <cstdint>

#include <fusegrad/kernels/tensor_list.h>

namespace fusegrad::kernels {

std::vector<Piece> make_pieces(std::span<const std::int64_t> sizes, std::int64_t piece_size, EmptyTensors empty) {
  const auto count = [&](std::int64_t numel) {
    if (numel == 0) return std::int64_t{empty == EmptyTensors::one_empty_piece ? 1 : 0};
    return (numel + piece_size - 1) / piece_size;
  };
  std::int64_t total = 0;
  for (const std::int64_t numel : sizes) {
    total += count(numel);
    if (sizes.size() <= UINT32_MAX && count(numel) <= UINT32_MAX) continue;
    throw ValueError({.op = "make_pieces",
                      .got = cat(sizes.size(), " tensors, one of ", numel, " elements"),
                      .want = cat("at most 2^32 tensors of at most 2^32 pieces of ", piece_size, " elements"),
                      .way_out = ""});
  }
  std::vector<Piece> pieces;
  pieces.reserve(static_cast<std::size_t>(total));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::int64_t k = 0; k < count(sizes[i]); ++k) {
      pieces.push_back({.tensor = static_cast<std::uint32_t>(i), .index = static_cast<std::uint32_t>(k)});
    }
  }
  return pieces;
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
  chunks_.assign(make_pieces(sizes, math::kChunk), device_);
}

}  // namespace fusegrad::kernels
