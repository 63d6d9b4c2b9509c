#pragma once
// Work recorded once and replayed as one launch (a CUDA graph). On the CPU, where a call costs what it does, a replay
// simply calls the work again; code written for both needs no branch.

#include <cstdint>
#include <functional>
#include <memory>

#include <fusegrad/runtime/device.h>

namespace fusegrad {

/// Recorded work of one device. A handle: copies name the same recording.
///
///     step();                                           // once as usual: makes state, tables and scratch memory
///     const Graph graph = Graph::capture(kCUDA, step);  // records, runs nothing
///     for (int i = 0; i < 1000; ++i) graph.replay();
///
/// A replay reads and writes the addresses that were recorded, so they must stay: the work may use tensors that outlive
/// the graph, and must not make any, wait for the device, or upload anything. It then throws `StateError` while it is
/// being recorded, and nothing is recorded.
class Graph {
 public:
  /// Records what `work` puts into the current stream of `device`. Throws what `work` throws, `StateError` inside
  /// another capture, and `DeviceError` if the device is not there or the driver cannot record the work.
  static Graph capture(Device device, std::function<void()> work);
  /// Puts the recorded work into the current stream. Never waits.
  void replay() const;
  /// Kernels that a replay launches; 0 on the CPU.
  [[nodiscard]] std::int64_t kernel_count() const { return kernel_count_; }
  [[nodiscard]] Device device() const { return device_; }

 private:
  explicit Graph(Device device) : device_(device) {}
  Device device_;
  std::int64_t kernel_count_ = 0;
  std::shared_ptr<void> recording_;
  std::function<void()> work_;  // the CPU's
};

/// True while this thread records a graph of a GPU.
bool is_capturing();

/// Throws `StateError` in the name of `op` while this thread records a graph of a GPU.
void require_not_capturing(const char* op);

}  // namespace fusegrad
