#pragma once
// Many tensors as the subject of one launch. A list of tensors is cut into pieces of equal size; the pieces lie in
// device memory, so neither their number nor that of the tensors is limited by what a launch can carry.

#include <span>
#include <vector>

#include <fusegrad/kernels/check_workspace.h>
#include <fusegrad/kernels/math/reduction.h>
#include <fusegrad/runtime/device_array.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

/// Elements [index·size, (index + 1)·size) of tensor `tensor`, cut off at its end; the size is the same for all pieces.
struct Piece {
  std::uint32_t tensor = 0;
  std::uint32_t index = 0;
  bool operator==(const Piece&) const = default;
};

/// What to do with tensors without elements.
enum class EmptyTensors : std::uint8_t { leave_out, one_empty_piece };

/// The pieces of tensors with these numbers of elements, in order. Throws `ValueError` if there are more tensors, or
/// more pieces of one tensor, than 2³².
std::vector<Piece> make_pieces(std::span<const std::int64_t> sizes, std::int64_t piece_size,
                               EmptyTensors empty = EmptyTensors::leave_out);

/// One tensor of a list, as kernels see it.
struct ListedTensor {
  void* data = nullptr;
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  bool operator==(const ListedTensor&) const = default;
};

/// Tensors of one device (any sizes and floating dtypes), ready for a launch over all of them. Assigning the same
/// tensors again costs a comparison.
class TensorList {
 public:
  /// Throws `DeviceError` in the name of `op` if the tensors are on different devices.
  void assign(std::span<const Tensor> tensors, std::string_view op);
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] std::int64_t chunk_count() const { return chunks_.size(); }
  [[nodiscard]] const DeviceArray<ListedTensor>& tensors() const { return tensors_; }
  /// Pieces of `math::kChunk` elements.
  [[nodiscard]] const DeviceArray<Piece>& chunks() const { return chunks_; }
  [[nodiscard]] CheckWorkspace& check_workspace() { return check_workspace_; }

 private:
  Device device_ = kCPU;
  DeviceArray<ListedTensor> tensors_;
  DeviceArray<Piece> chunks_;
  CheckWorkspace check_workspace_;
};

}  // namespace fusegrad::kernels
