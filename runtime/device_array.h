#pragma once
// Rows of plain data that live on a device, such as the table of an optimizer's parameters. Kept beside a host copy, so
// that handing over the same rows again costs a comparison and no upload.

#include <algorithm>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <fusegrad/runtime/memory.h>

namespace fusegrad {

template <class Row>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<Row>);

 public:
  /// Makes `rows` the contents, on `device`, in stream order and without waiting. Does nothing if they are already.
  void assign(std::span<const Row> rows, Device device) {
    const bool same_place = is_on(device);
    if (same_place && std::equal(rows.begin(), rows.end(), host_.begin(), host_.end())) return;
    host_.assign(rows.begin(), rows.end());
    const std::size_t bytes = rows.size_bytes();
    if (!same_place || storage_->bytes() < bytes) storage_ = std::make_unique<Storage>(bytes, device);
    copy_bytes(storage_->data(), device, host_.data(), kCPU, bytes);
  }

  /// Where the rows were last put; the CPU before that.
  [[nodiscard]] Device device() const { return storage_ == nullptr ? kCPU : storage_->device(); }
  /// True if the rows were last put on `device`.
  [[nodiscard]] bool is_on(Device device) const { return storage_ != nullptr && storage_->device() == device; }
  /// The rows, in device memory.
  [[nodiscard]] const Row* data() const {
    return storage_ == nullptr ? nullptr : static_cast<const Row*>(storage_->data());
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(host_.size()); }
  /// The rows as last handed over.
  [[nodiscard]] std::span<const Row> host() const { return host_; }

 private:
  std::vector<Row> host_;
  std::unique_ptr<Storage> storage_;
};

}  // namespace fusegrad
