// Recording work and replaying it.

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/runtime/graph.h>
#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/stream.h>
#include <fusegrad/tests/bits.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

class GraphTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(GraphTest);

TEST_P(GraphTest, AReplayDoesTheWorkAgainOnWhatIsThereThen) {
  const Tensor x = full({5}, 1.0, {.device = device()});
  const Tensor y = full({5}, 2.0, {.device = device()});
  const Graph graph = Graph::capture(device(), [&] { add_(x, y); });
  EXPECT_EQ(x.to_vector<double>()[0], 1.0) << "recording runs nothing";
  graph.replay();
  fill_(y, 10.0);
  graph.replay();
  EXPECT_EQ(x.to_vector<double>()[4], 13.0);
  EXPECT_EQ(graph.kernel_count(), device().is_cuda() ? 1 : 0);
}

TEST_P(GraphTest, AReplayNeverWaits) {
  const Tensor x = zeros({5}, {.device = device()});
  const Graph graph = Graph::capture(device(), [&] { mul_(x, 2.0); });
  const std::int64_t before = host_sync_count();
  graph.replay();
  EXPECT_EQ(host_sync_count(), before);
}

TEST(Graph, WorkThatAReplayCouldNotRepeatIsRefusedAndLeavesTheStreamUsable) {
  FUSEGRAD_REQUIRE_CUDA();
  const Tensor x = zeros({5}, {.device = kCUDA});
  EXPECT_THROW(Graph::capture(kCUDA, [&] { (void)(x + x); }), StateError) << "makes a tensor";
  EXPECT_THROW(Graph::capture(kCUDA, [&] { (void)x.to_vector<float>(); }), StateError) << "reads";
  EXPECT_THROW(Graph::capture(kCUDA, [&] { synchronize(kCUDA); }), StateError) << "waits";
  const Tensor host = ones({5});
  EXPECT_THROW(Graph::capture(kCUDA, [&] { copy_bytes(x.raw(), kCUDA, host.raw(), kCPU, host.bytes()); }), StateError)
      << "uploads";
  EXPECT_THROW(Graph::capture(kCUDA, [&] { (void)Graph::capture(kCUDA, [] {}); }), StateError) << "records";
  EXPECT_FALSE(is_capturing());
  fill_(x, 3.0);
  EXPECT_EQ(x.to_vector<double>()[0], 3.0);
}

TEST(Graph, MemoryMayOutliveItsStream) {
  FUSEGRAD_REQUIRE_CUDA();
  Tensor x;
  {
    const Stream stream(kCUDA);
    const StreamGuard guard(stream);
    x = full({1 << 20}, 2.0, {.device = kCUDA});
    (void)full({1 << 18}, 2.0, {.device = kCUDA});  // goes back to the cache, under that stream
  }
  EXPECT_EQ(x.to_vector<double>()[7], 2.0);
  x = Tensor();
  empty_cache(kCUDA);
  EXPECT_EQ(full({3}, 4.0, {.device = kCUDA}).to_vector<double>()[0], 4.0) << "the next launch sees no old error";
}

}  // namespace
}  // namespace fusegrad
