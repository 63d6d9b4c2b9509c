#pragma once
// What the runtime asks of CUDA, in types a plain C++ file can hold: a stream or event is an opaque `void*`. Declared
// in every build, defined only with CUDA; callers stand behind `if constexpr (kCudaBuilt)`.

#include <cstddef>
#include <cstdint>

namespace fusegrad::cuda {

/// Usable devices; 0 where the driver or the GPU is missing. Never throws.
int device_count();

/// Makes `device` current for the calling thread while it lives.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

/// Memory from the device's stream-ordered pool. Returns null when the device is full.
void* allocate(std::size_t bytes, int device, void* stream);
void release(void* memory, int device, void* stream);

/// The stream that a device's work goes to unless a `StreamGuard` says otherwise; made on first use.
void* default_stream(int device);
void* make_stream(int device);
void destroy_stream(void* stream, int device);
void synchronize_stream(void* stream, int device);
void synchronize_device(int device);

void* make_event(int device);
void destroy_event(void* event);
void record_event(void* event, void* stream, int device);
void wait_event(void* event, void* stream, int device);
bool event_done(void* event);
void synchronize_event(void* event);
float elapsed_ms(void* begin, void* end);

/// A recorded graph, ready to launch.
struct CapturedGraph {
  void* executable = nullptr;
  std::int64_t kernels = 0;
};
void begin_capture(void* stream, int device);
CapturedGraph end_capture(void* stream, int device);
/// Ends a capture and drops what it recorded. Never throws.
void abandon_capture(void* stream, int device);
void launch_graph(void* executable, void* stream, int device);
void destroy_graph(void* executable);

/// Host to device without waiting: the bytes are taken into pinned memory before the call returns.
void copy_to_device(void* dst, const void* src, std::size_t bytes, int device, void* stream);
/// Device to host; returns when the bytes are there (one host synchronisation, counted by the caller).
void copy_to_host(void* dst, const void* src, std::size_t bytes, int device, void* stream);
/// Between or within devices, in stream order.
void copy_on_device(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes, void* stream);
void zero(void* dst, std::size_t bytes, int device, void* stream);

/// Multiprocessors, and the threads one of them holds: the launch geometry of the CUDA generator depends on both.
struct DeviceProperties {
  int compute_capability_major = 0;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
};
DeviceProperties device_properties(int device);

}  // namespace fusegrad::cuda
