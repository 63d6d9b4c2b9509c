#include <algorithm>
#include <cstdint>

#include <fusegrad/kernels/adam_table.h>

namespace fusegrad::kernels {
namespace {

// True if every address of the row can be read as vectors of four elements.
bool is_vector_aligned(const AdamTensor& row) {
  const auto fits = [](const void* memory, DType dtype) {
    const std::size_t bytes = std::min<std::size_t>(16, 4 * element_size(dtype));
    return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0;  // null fits
  };
  const DType moments = row.kind.param == DType::f64 ? DType::f64 : DType::f32;
  return fits(row.param, row.kind.param) && fits(row.grad, row.kind.grad) && fits(row.exp_avg, moments) &&
         fits(row.exp_avg_sq, moments) && fits(row.max_exp_avg_sq, moments) && fits(row.copy, DType::f16);
}

}  // namespace

bool fused_adam_takes(DType param, DType grad) {
  if (!is_floating(param) || !is_floating(grad)) return false;
  return param == grad || grad == DType::f32 || (param == DType::f32 && is_half(grad));
}

void AdamTable::assign(std::vector<AdamTensor> rows, std::span<const math::AdamGroup> groups, Device device) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(rows.size());
  numel_ = 0;
  for (AdamTensor& row : rows) {
    row.aligned = is_vector_aligned(row);
    sizes.push_back(row.numel);
    numel_ += row.numel;
  }
  const bool moved = device != device_ || !chunks_.is_on(device);
  device_ = device;
  tensors_.assign(rows, device);
  groups_.assign(groups, device);
  uniform_kind_.reset();
  uniform_grad_.reset();
  if (!rows.empty()) {
    const AdamKind& first = rows.front().kind;
    if (std::all_of(rows.begin(), rows.end(), [&](const AdamTensor& row) { return row.kind == first; })) {
      uniform_kind_ = first;
    }
    if (std::all_of(rows.begin(), rows.end(), [&](const AdamTensor& row) {
          return row.kind.param == DType::f32 && row.kind.grad == first.grad;
        })) {
      uniform_grad_ = first.grad;
    }
  }
  if (!moved && sizes == sizes_) return;
  chunks_.assign(make_pieces(sizes, math::kChunk, EmptyTensors::one_empty_piece), device);
  if (device.is_cuda()) tiles_.assign(make_pieces(sizes, kAdamTile, EmptyTensors::one_empty_piece), device);
  pending_ = std::make_unique<Storage>(rows.size() * sizeof(math::AdamPending), device);
  sizes_ = std::move(sizes);
}

}  // namespace fusegrad::kernels
