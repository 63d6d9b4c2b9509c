#pragma once
// Memory of tensors. Freed blocks are kept and handed out again, so a training step that repeats its shapes takes
// nothing from the system after its first rounds, on the CPU (64-byte aligned blocks) as on CUDA (the device's
// stream-ordered pool below).

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <fusegrad/runtime/device.h>

namespace fusegrad {

/// Counters of one device.
struct MemoryStats {
  std::int64_t bytes_now = 0;       ///< held by live tensors
  std::int64_t bytes_peak = 0;      ///< the most of `bytes_now` since the last `reset_peak_memory`
  std::int64_t bytes_reserved = 0;  ///< taken from the system: live blocks and blocks kept for reuse
  std::int64_t allocations = 0;     ///< blocks taken from the system so far; blocks handed out again do not count
};

MemoryStats memory_stats(Device device);
void reset_peak_memory(Device device);
/// Gives the blocks kept for reuse back to the system.
void empty_cache(Device device);

/// One block of memory and the version of what is in it. Views share a storage, and so its version.
class Storage {
 public:
  /// Uninitialised memory. Throws `DeviceError` if the device is not there or is full.
  Storage(std::size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  /// Not an atomic increment, which would cost an optimizer of a thousand tensors more than its launch: two threads
  /// that write to one tensor at once race for its elements anyway.
  void bump_version() { version_.store(version() + 1, std::memory_order_relaxed); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
  std::size_t block_ = 0;
  Device device_;
  void* stream_ = nullptr;
  std::atomic<std::uint64_t> version_{0};
};

/// Copies bytes between any two devices, in the order of the destination's current stream (the source's where only the
/// source is a GPU). To a GPU it never waits; from a GPU to the CPU it returns when the bytes are there and counts one
/// host synchronisation.
void copy_bytes(void* dst, Device dst_device, const void* src, Device src_device, std::size_t bytes);

/// Sets bytes to zero in stream order.
void zero_bytes(void* dst, Device device, std::size_t bytes);

}  // namespace fusegrad
