#include <atomic>
#include <map>

#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/graph.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad {
namespace {

std::atomic<std::int64_t> host_syncs{0};

std::map<int, void*>& current_handles() {
  static thread_local std::map<int, void*> handles;
  return handles;
}

}  // namespace

std::int64_t host_sync_count() { return host_syncs.load(); }

void count_host_sync() { ++host_syncs; }

Stream::Stream(Device device) : device_(device) {
  require_available(device, "Stream");
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) {
      handle_ = cuda::make_stream(device.index);
      owned_ = std::shared_ptr<void>(handle_, [index = device.index](void* s) { cuda::destroy_stream(s, index); });
    }
  }
}

void Stream::synchronize() const {
  require_not_capturing("Stream::synchronize");
  count_host_sync();
  if constexpr (kCudaBuilt) {
    if (device_.is_cuda()) cuda::synchronize_stream(handle_, device_.index);
  }
}

Stream current_stream(Device device) {
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) {
      void*& handle = current_handles()[device.index];
      if (handle == nullptr) handle = cuda::default_stream(device.index);
      return {device, handle};
    }
  }
  return {device, nullptr};
}

StreamGuard::StreamGuard(const Stream& stream)
    : device_(stream.device()), previous_(current_stream(stream.device()).handle()) {
  if (device_.is_cuda()) current_handles()[device_.index] = stream.handle();
}

StreamGuard::~StreamGuard() {
  if (device_.is_cuda()) current_handles()[device_.index] = previous_;
}

Event::Event(Device device) : device_(device) {
  require_available(device, "Event");
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) handle_ = std::shared_ptr<void>(cuda::make_event(device.index), cuda::destroy_event);
  }
}

void Event::record() {
  if constexpr (kCudaBuilt) {
    if (device_.is_cuda()) return cuda::record_event(handle_.get(), current_stream(device_).handle(), device_.index);
  }
  time_ = std::chrono::steady_clock::now();
}

bool Event::done() const {
  if constexpr (kCudaBuilt) {
    if (device_.is_cuda()) return cuda::event_done(handle_.get());
  }
  return true;
}

void Event::synchronize() const {
  require_not_capturing("Event::synchronize");
  count_host_sync();
  if constexpr (kCudaBuilt) {
    if (device_.is_cuda()) cuda::synchronize_event(handle_.get());
  }
}

void Event::block_current_stream() const {
  if constexpr (kCudaBuilt) {
    if (device_.is_cuda()) cuda::wait_event(handle_.get(), current_stream(device_).handle(), device_.index);
  }
}

double Event::elapsed_ms(const Event& later) const {
  if constexpr (kCudaBuilt) {
    if (device_.is_cuda()) return static_cast<double>(cuda::elapsed_ms(handle_.get(), later.handle_.get()));
  }
  return std::chrono::duration<double, std::milli>(later.time_ - time_).count();
}

void synchronize(Device device) {
  require_not_capturing("synchronize");
  count_host_sync();
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) cuda::synchronize_device(device.index);
  }
}

}  // namespace fusegrad
