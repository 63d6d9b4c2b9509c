#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <type_traits>
#include <vector>

#include <fusegrad/runtime/cuda/check.h>
#include <fusegrad/runtime/cuda/driver.h>

namespace fusegrad::cuda {
namespace {

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t as_event(void* event) { return static_cast<cudaEvent_t>(event); }

// Keeps the memory of freed blocks in the driver's pool instead of returning it at every synchronisation.
void keep_pool_memory(int device) {
  cudaMemPool_t pool = nullptr;
  FUSEGRAD_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
  std::uint64_t threshold = UINT64_MAX;
  FUSEGRAD_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

// Pinned blocks that uploads pass through. A block is free again when the event behind its last upload is done.
class Staging {
 public:
  void upload(void* dst, const void* src, std::size_t bytes, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    Block& block = find(bytes);
    std::memcpy(block.memory, src, bytes);
    FUSEGRAD_CUDA_CHECK(cudaMemcpyAsync(dst, block.memory, bytes, cudaMemcpyHostToDevice, stream));
    FUSEGRAD_CUDA_CHECK(cudaEventRecord(block.done, stream));
  }

 private:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
    cudaEvent_t done = nullptr;
  };

  Block& find(std::size_t bytes) {
    for (Block& block : blocks_) {
      if (block.bytes >= bytes && cudaEventQuery(block.done) == cudaSuccess) return block;
    }
    (void)cudaGetLastError();  // "not ready" is an answer here, and must not look like a fault to the next launch
    Block block;
    block.bytes = bytes < 4096 ? 4096 : bytes;
    FUSEGRAD_CUDA_CHECK(cudaMallocHost(&block.memory, block.bytes));
    FUSEGRAD_CUDA_CHECK(cudaEventCreateWithFlags(&block.done, cudaEventDisableTiming));
    blocks_.push_back(block);
    return blocks_.back();
  }

  std::mutex mutex_;
  std::vector<Block> blocks_;
};

// One set of long-lived objects a device, made on first use and kept until the process ends: at exit the driver may be
// gone before static destructors run.
struct DeviceObjects {
  cudaStream_t stream = nullptr;
  DeviceProperties properties;
  Staging staging;
};

DeviceObjects& objects(int device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, DeviceObjects>();
  const std::lock_guard lock(mutex);
  DeviceObjects& found = all[device];
  if (found.stream == nullptr) {
    const DeviceGuard guard(device);
    keep_pool_memory(device);
    DeviceProperties& p = found.properties;
    FUSEGRAD_CUDA_CHECK(cudaDeviceGetAttribute(&p.compute_capability_major, cudaDevAttrComputeCapabilityMajor, device));
    FUSEGRAD_CUDA_CHECK(cudaDeviceGetAttribute(&p.multiprocessors, cudaDevAttrMultiProcessorCount, device));
    FUSEGRAD_CUDA_CHECK(
        cudaDeviceGetAttribute(&p.threads_per_multiprocessor, cudaDevAttrMaxThreadsPerMultiProcessor, device));
    FUSEGRAD_CUDA_CHECK(cudaStreamCreateWithFlags(&found.stream, cudaStreamNonBlocking));
  }
  return found;
}

// The streams that people made and that still exist. Memory may outlive the stream it was made on.
struct MadeStreams {
  std::mutex mutex;
  std::set<void*> streams;
};

MadeStreams& made_streams() {
  static auto& made = *new MadeStreams();
  return made;
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();  // no driver or no GPU: an answer, not a fault
    return 0;
  }
  return count;
}

DeviceGuard::DeviceGuard(int device) {
  FUSEGRAD_CUDA_CHECK(cudaGetDevice(&previous_));
  if (previous_ != device) FUSEGRAD_CUDA_CHECK(cudaSetDevice(device));
}

DeviceGuard::~DeviceGuard() {
  int device = previous_;
  if (cudaGetDevice(&device) == cudaSuccess && device != previous_) (void)cudaSetDevice(previous_);
}

void* allocate(std::size_t bytes, int device, void* stream) {
  const DeviceGuard guard(device);
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, bytes, as_stream(stream));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMallocAsync");
  return memory;
}

void release(void* memory, int device, void* stream) {
  const DeviceGuard guard(device);
  void* const own = default_stream(device);
  if (stream != own) {
    MadeStreams& made = made_streams();
    const std::lock_guard lock(made.mutex);
    // A stream that is gone has finished its work (destroy_stream), so any other can take the memory back.
    if (!made.streams.contains(stream)) stream = own;
  }
  (void)cudaFreeAsync(memory, as_stream(stream));  // runs in destructors, which must not throw
}

void* default_stream(int device) { return objects(device).stream; }

void* make_stream(int device) {
  const DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  FUSEGRAD_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MadeStreams& made = made_streams();
  const std::lock_guard lock(made.mutex);
  made.streams.insert(stream);
  return stream;
}

void destroy_stream(void* stream, int device) {
  const DeviceGuard guard(device);
  (void)cudaStreamSynchronize(as_stream(stream));  // memory of this stream may be used on another one from here on
  {
    MadeStreams& made = made_streams();
    const std::lock_guard lock(made.mutex);
    made.streams.erase(stream);
  }
  (void)cudaStreamDestroy(as_stream(stream));
}

void synchronize_stream(void* stream, int device) {
  const DeviceGuard guard(device);
  FUSEGRAD_CUDA_CHECK(cudaStreamSynchronize(as_stream(stream)));
}

void synchronize_device(int device) {
  const DeviceGuard guard(device);
  FUSEGRAD_CUDA_CHECK(cudaDeviceSynchronize());
}

void* make_event(int device) {
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  FUSEGRAD_CUDA_CHECK(cudaEventCreate(&event));
  return event;
}

void destroy_event(void* event) { (void)cudaEventDestroy(as_event(event)); }

void record_event(void* event, void* stream, int device) {
  const DeviceGuard guard(device);
  FUSEGRAD_CUDA_CHECK(cudaEventRecord(as_event(event), as_stream(stream)));
}

void wait_event(void* event, void* stream, int device) {
  const DeviceGuard guard(device);
  FUSEGRAD_CUDA_CHECK(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0));
}

bool event_done(void* event) {
  const cudaError_t status = cudaEventQuery(as_event(event));
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

void synchronize_event(void* event) { FUSEGRAD_CUDA_CHECK(cudaEventSynchronize(as_event(event))); }

float elapsed_ms(void* begin, void* end) {
  float ms = 0;
  FUSEGRAD_CUDA_CHECK(cudaEventElapsedTime(&ms, as_event(begin), as_event(end)));
  return ms;
}

void begin_capture(void* stream, int device) {
  const DeviceGuard guard(device);
  // Other threads may go on allocating meanwhile.
  FUSEGRAD_CUDA_CHECK(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal));
}

CapturedGraph end_capture(void* stream, int device) {
  const DeviceGuard guard(device);
  cudaGraph_t graph = nullptr;
  FUSEGRAD_CUDA_CHECK(cudaStreamEndCapture(as_stream(stream), &graph));
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, void (*)(cudaGraph_t)> owner(
      graph, [](cudaGraph_t g) { (void)cudaGraphDestroy(g); });
  std::size_t count = 0;
  FUSEGRAD_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  FUSEGRAD_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  CapturedGraph captured;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    FUSEGRAD_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) ++captured.kernels;
  }
  cudaGraphExec_t executable = nullptr;
  FUSEGRAD_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  captured.executable = executable;
  return captured;
}

void abandon_capture(void* stream, int device) {
  const DeviceGuard guard(device);
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(as_stream(stream), &graph) == cudaSuccess && graph != nullptr) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();
}

void launch_graph(void* executable, void* stream, int device) {
  const DeviceGuard guard(device);
  FUSEGRAD_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), as_stream(stream)));
}

void destroy_graph(void* executable) { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable)); }

void copy_to_device(void* dst, const void* src, std::size_t bytes, int device, void* stream) {
  const DeviceGuard guard(device);
  objects(device).staging.upload(dst, src, bytes, as_stream(stream));
}

void copy_to_host(void* dst, const void* src, std::size_t bytes, int device, void* stream) {
  const DeviceGuard guard(device);
  FUSEGRAD_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, as_stream(stream)));
  FUSEGRAD_CUDA_CHECK(cudaStreamSynchronize(as_stream(stream)));
}

void copy_on_device(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes, void* stream) {
  const DeviceGuard guard(dst_device);
  if (dst_device == src_device) {
    FUSEGRAD_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, as_stream(stream)));
  } else {
    FUSEGRAD_CUDA_CHECK(cudaMemcpyPeerAsync(dst, dst_device, src, src_device, bytes, as_stream(stream)));
  }
}

void zero(void* dst, std::size_t bytes, int device, void* stream) {
  const DeviceGuard guard(device);
  FUSEGRAD_CUDA_CHECK(cudaMemsetAsync(dst, 0, bytes, as_stream(stream)));
}

DeviceProperties device_properties(int device) { return objects(device).properties; }

}  // namespace fusegrad::cuda
