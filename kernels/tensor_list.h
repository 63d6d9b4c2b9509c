#pragma once
// Many tensors as the subject of one launch. A list of tensors is cut into chunks of `math::kChunk` elements; the
// chunks lie in device memory, so neither their number nor that of the tensors is limited by what a launch can carry,
// and empty tensors simply have none.

#include <span>
#include <vector>

#include <fusegrad/kernels/math/reduction.h>
#include <fusegrad/runtime/device_array.h>
#include <fusegrad/runtime/tensor.h>

namespace fusegrad::kernels {

/// Elements [begin, begin + kChunk) of tensor `tensor`, cut off at its end.
struct Chunk {
  std::int64_t tensor = 0;
  std::int64_t begin = 0;
  bool operator==(const Chunk&) const = default;
};

/// The chunks of tensors of these sizes, in order.
std::vector<Chunk> make_chunks(std::span<const std::int64_t> sizes);

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
  [[nodiscard]] const DeviceArray<Chunk>& chunks() const { return chunks_; }

 private:
  Device device_ = kCPU;
  DeviceArray<ListedTensor> tensors_;
  DeviceArray<Chunk> chunks_;
};

}  // namespace fusegrad::kernels
