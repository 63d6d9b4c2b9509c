#pragma once
// Streams, events, and the count of times the host waited for a device. On the CPU work is done when a call returns, so
// its streams are empty and its events are time stamps; code written for both needs no branch.

#include <chrono>
#include <cstdint>
#include <memory>

#include <fusegrad/runtime/device.h>

namespace fusegrad {

/// An ordered queue of work on one device. A handle: copies name the same queue.
class Stream {
 public:
  /// A new queue on `device`. When its last handle goes, the host waits for the work in it. Throws `DeviceError` if the
  /// device is not there.
  explicit Stream(Device device);
  [[nodiscard]] Device device() const { return device_; }
  /// The `cudaStream_t`, or null on the CPU.
  [[nodiscard]] void* handle() const { return handle_; }
  /// Waits until all work put in so far is done; counts as a host synchronisation.
  void synchronize() const;

 private:
  friend Stream current_stream(Device device);
  Stream(Device device, void* handle) : device_(device), handle_(handle) {}
  Device device_;
  void* handle_ = nullptr;
  std::shared_ptr<void> owned_;
};

/// The stream that this thread's work on `device` goes to.
Stream current_stream(Device device);

/// Makes a stream current for this thread and its device while the guard lives. Memory is recycled in the order of the
/// stream it was made on: let a tensor used on another stream outlive that use.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Device device_;
  void* previous_;
};

/// A point in a stream.
class Event {
 public:
  explicit Event(Device device);
  /// Marks the end of the work put into the current stream so far.
  void record();
  /// True once that work is done. Never waits.
  [[nodiscard]] bool done() const;
  /// Waits for it; counts as a host synchronisation.
  void synchronize() const;
  /// Makes the current stream wait for it, without the host.
  void block_current_stream() const;
  /// Milliseconds from this event to `later`; both must be done.
  [[nodiscard]] double elapsed_ms(const Event& later) const;

 private:
  Device device_;
  std::shared_ptr<void> handle_;
  std::chrono::steady_clock::time_point time_{};
};

/// Waits for all work of a device; counts as a host synchronisation.
void synchronize(Device device);

/// How often the host has waited for a device, or read a value back from one, since the program began. Reads of CPU
/// tensors count alike (`item`, `to_vector`), so that "a step reads nothing back" can be tested without a GPU.
std::int64_t host_sync_count();

/// Adds one to the count; for code that waits by its own means.
void count_host_sync();

}  // namespace fusegrad
