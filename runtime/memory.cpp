#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/error.h>
#include <fusegrad/runtime/graph.h>
#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallStep = 512;       // blocks up to 1 MiB come in multiples of this
constexpr std::size_t kLargeStep = 64 << 10;  // larger ones in multiples of this
constexpr std::size_t kSmallLimit = 1 << 20;

std::size_t block_size(std::size_t bytes) {
  const std::size_t step = bytes <= kSmallLimit ? kSmallStep : kLargeStep;
  if (bytes > SIZE_MAX - step) return bytes;  // more than there is; the system will say so
  return (std::max<std::size_t>(bytes, 1) + step - 1) / step * step;
}

void* system_allocate(std::size_t bytes, Device device, void* stream) {
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) return cuda::allocate(bytes, device.index, stream);
  }
  (void)stream;
  return std::aligned_alloc(kAlignment, bytes);
}

void system_release(void* memory, Device device, void* stream) {
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) return cuda::release(memory, device.index, stream);
  }
  (void)stream;
  std::free(memory);
}

// Blocks of one device. A free block waits under the stream it was made on, because only there is its next use ordered
// behind its last one.
class Pool {
  struct Free;
  using FreeBlocks = std::multimap<std::pair<void*, std::size_t>, Free>;  // by stream and size
  struct Free {
    void* memory;
    std::list<FreeBlocks::iterator>::iterator age;
  };

 public:
  explicit Pool(Device device) : device_(device) {}

  std::pair<void*, std::size_t> take(std::size_t bytes, void* stream) {
    const std::size_t wanted = block_size(bytes);
    const std::lock_guard lock(mutex_);
    auto [memory, size] = reuse(wanted, stream);
    if (memory == nullptr) {
      size = wanted;
      memory = system_allocate(size, device_, stream);
      if (memory == nullptr) {
        give_back_cached();
        memory = system_allocate(size, device_, stream);
      }
      if (memory == nullptr) {
        throw DeviceError({.op = "allocate",
                           .got = cat(bytes, " bytes on ", device_.str(), ", with ", stats_.bytes_now, " in use"),
                           .want = "that much free memory",
                           .way_out = "Use a smaller batch, or free tensors first"});
      }
      stats_.bytes_reserved += static_cast<std::int64_t>(size);
      ++stats_.allocations;
    }
    stats_.bytes_now += static_cast<std::int64_t>(wanted);
    stats_.bytes_peak = std::max(stats_.bytes_peak, stats_.bytes_now);
    highest_ = std::max(highest_, stats_.bytes_now);
    return {memory, size};
  }

  void give(void* memory, std::size_t size, std::size_t bytes, void* stream) {
    const std::lock_guard lock(mutex_);
    stats_.bytes_now -= static_cast<std::int64_t>(block_size(bytes));
    const auto block = free_.emplace(std::pair(stream, size), Free{memory, {}});
    block->second.age = by_age_.insert(by_age_.end(), block);
    // Never keep more than was ever in use at once: enough for any repeating step, and a bound on what is held. The
    // blocks that have waited longest go first, so that sizes of an earlier phase make room for those of this one.
    while (stats_.bytes_reserved - stats_.bytes_now > highest_) give_back(by_age_.front());
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.bytes_peak = stats_.bytes_now;
  }

  void empty() {
    const std::lock_guard lock(mutex_);
    give_back_cached();
  }

 private:
  // The smallest free block that fits and wastes at most a quarter of what is asked.
  std::pair<void*, std::size_t> reuse(std::size_t wanted, void* stream) {
    const auto found = free_.lower_bound(std::pair(stream, wanted));
    if (found == free_.end() || found->first.first != stream || found->first.second > wanted + wanted / 4) {
      return {nullptr, 0};
    }
    const std::pair<void*, std::size_t> block{found->second.memory, found->first.second};
    by_age_.erase(found->second.age);
    free_.erase(found);
    return block;
  }

  void give_back(FreeBlocks::iterator block) {
    system_release(block->second.memory, device_, block->first.first);
    stats_.bytes_reserved -= static_cast<std::int64_t>(block->first.second);
    by_age_.erase(block->second.age);
    free_.erase(block);
  }

  void give_back_cached() {
    while (!by_age_.empty()) give_back(by_age_.front());
  }

  Device device_;
  std::mutex mutex_;
  FreeBlocks free_;
  std::list<FreeBlocks::iterator> by_age_;  // oldest first
  MemoryStats stats_;
  std::int64_t highest_ = 0;
};

// Pools outlive every tensor, static ones included, so they are never destroyed.
Pool& pool(Device device) {
  static std::mutex mutex;
  static auto& pools = *new std::map<std::pair<DeviceType, int>, std::unique_ptr<Pool>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Pool>& slot = pools[{device.type, device.index}];
  if (!slot) slot = std::make_unique<Pool>(device);
  return *slot;
}

}  // namespace

MemoryStats memory_stats(Device device) { return pool(device).stats(); }
void reset_peak_memory(Device device) { pool(device).reset_peak(); }
void empty_cache(Device device) { pool(device).empty(); }

Storage::Storage(std::size_t bytes, Device device) : bytes_(bytes), device_(device) {
  require_available(device, "allocate");
  if (bytes == 0) return;
  if (device.is_cuda()) require_not_capturing("allocate");
  stream_ = current_stream(device).handle();
  std::tie(data_, block_) = pool(device).take(bytes, stream_);
}

Storage::~Storage() {
  if (data_ != nullptr) pool(device_).give(data_, block_, bytes_, stream_);
}

void copy_bytes(void* dst, Device dst_device, const void* src, Device src_device, std::size_t bytes) {
  if (bytes == 0) return;
  if constexpr (kCudaBuilt) {
    if (dst_device.is_cuda() && src_device.is_cuda()) {
      if (dst_device != src_device) synchronize(src_device);  // the other device's stream does not order our copy
      return cuda::copy_on_device(dst, dst_device.index, src, src_device.index, bytes,
                                  current_stream(dst_device).handle());
    }
    if (dst_device.is_cuda()) {
      require_not_capturing("a copy from the CPU");
      return cuda::copy_to_device(dst, src, bytes, dst_device.index, current_stream(dst_device).handle());
    }
    if (src_device.is_cuda()) {
      require_not_capturing("a read from the GPU");
      count_host_sync();
      return cuda::copy_to_host(dst, src, bytes, src_device.index, current_stream(src_device).handle());
    }
  }
  std::memcpy(dst, src, bytes);
}

void zero_bytes(void* dst, Device device, std::size_t bytes) {
  if (bytes == 0) return;
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) return cuda::zero(dst, bytes, device.index, current_stream(device).handle());
  }
  std::memset(dst, 0, bytes);
}

}  // namespace fusegrad
