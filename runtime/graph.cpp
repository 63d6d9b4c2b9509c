#include <utility>

#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/error.h>
#include <fusegrad/runtime/graph.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad {
namespace {

thread_local bool capturing = false;

// Ends the recording on every way out.
class Recording {
 public:
  explicit Recording(Device device) : device_(device), stream_(current_stream(device).handle()) {
    cuda::begin_capture(stream_, device_.index);
    capturing = true;
  }
  ~Recording() {
    if (capturing) cuda::abandon_capture(stream_, device_.index);
    capturing = false;
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  cuda::CapturedGraph finish() {
    capturing = false;
    return cuda::end_capture(stream_, device_.index);
  }

 private:
  Device device_;
  void* stream_;
};

}  // namespace

bool is_capturing() { return capturing; }

void require_not_capturing(const char* op) {
  if (!capturing) return;
  throw StateError({.op = op,
                    .got = "a call while a graph is being recorded",
                    .want = "work that makes no tensors, uploads nothing and never waits",
                    .way_out = "Run the work once before Graph::capture, so that all it needs is there, and keep its "
                               "results in tensors made beforehand"});
}

Graph Graph::capture(Device device, std::function<void()> work) {
  require_available(device, "Graph::capture");
  require_not_capturing("Graph::capture");
  Graph graph(device);
  if constexpr (kCudaBuilt) {
    if (device.is_cuda()) {
      Recording recording(device);
      work();
      const cuda::CapturedGraph captured = recording.finish();
      graph.recording_ = std::shared_ptr<void>(captured.executable, cuda::destroy_graph);
      graph.kernel_count_ = captured.kernels;
      return graph;
    }
  }
  graph.work_ = std::move(work);
  return graph;
}

void Graph::replay() const {
  if constexpr (kCudaBuilt) {
    if (device_.is_cuda()) {
      return cuda::launch_graph(recording_.get(), current_stream(device_).handle(), device_.index);
    }
  }
  work_();
}

}  // namespace fusegrad
