// Streams order work, events measure it, and every wait of the host is counted.

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/error.h>
#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/stream.h>
#include <fusegrad/runtime/tensor.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

class StreamTest : public DeviceTest {};

TEST_P(StreamTest, EveryWaitOfTheHostIsCountedOnce) {
  const Stream stream(device());
  Event event(device());
  event.record();
  std::int64_t count = host_sync_count();
  const auto counted = [&](auto&& wait) {
    wait();
    return host_sync_count() - std::exchange(count, host_sync_count());
  };
  EXPECT_EQ(counted([&] { stream.synchronize(); }), 1);
  EXPECT_EQ(counted([&] { event.synchronize(); }), 1);
  EXPECT_EQ(counted([&] { synchronize(device()); }), 1);
  EXPECT_EQ(counted([&] { count_host_sync(); }), 1);
}

TEST_P(StreamTest, ReadsOfTensorsCountAsOneWait) {
  const Tensor tensor = Tensor::empty({1}, DType::f32, device());
  zero_bytes(tensor.raw(), device(), tensor.bytes());
  const std::int64_t before = host_sync_count();
  (void)tensor.item<float>();
  EXPECT_EQ(host_sync_count(), before + 1);
  (void)tensor.to_vector<double>();
  EXPECT_EQ(host_sync_count(), before + 2);
}

TEST_P(StreamTest, WhatNeedsNoWaitCountsNone) {
  const std::int64_t before = host_sync_count();
  std::vector<float> host(1000, 1.0f);
  const Storage a(4000, device());
  const Storage b(4000, device());
  copy_bytes(a.data(), device(), host.data(), kCPU, 4000);
  copy_bytes(b.data(), device(), a.data(), device(), 4000);
  zero_bytes(a.data(), device(), 4000);
  Event event(device());
  event.record();
  (void)event.done();
  event.block_current_stream();
  EXPECT_EQ(host_sync_count(), before);
}

TEST_P(StreamTest, AnEventIsDoneAfterItsWaitAndMeasuresTime) {
  Event begin(device());
  Event end(device());
  begin.record();
  begin.synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  end.record();
  end.synchronize();
  EXPECT_TRUE(begin.done());
  EXPECT_TRUE(end.done());
  EXPECT_GE(begin.elapsed_ms(end), 15.0);  // sleeping is at least 20 ms; clocks of GPUs tick coarsely
  EXPECT_LT(begin.elapsed_ms(end), 60'000.0);
}

TEST_P(StreamTest, AGuardMakesItsStreamCurrentAndRestoresTheOneBefore) {
  void* const before = current_stream(device()).handle();
  const Stream outer(device());
  const Stream inner(device());
  {
    const StreamGuard guard(outer);
    EXPECT_EQ(current_stream(device()).handle(), outer.handle());
    {
      const StreamGuard nested(inner);
      EXPECT_EQ(current_stream(device()).handle(), inner.handle());
    }
    EXPECT_EQ(current_stream(device()).handle(), outer.handle());
    void* elsewhere = nullptr;
    std::thread([&] { elsewhere = current_stream(device()).handle(); }).join();
    EXPECT_EQ(elsewhere, before);  // other threads keep theirs
  }
  EXPECT_EQ(current_stream(device()).handle(), before);
}

TEST_P(StreamTest, WorkOnAnotherStreamIsOrderedByAnEvent) {
  const Storage source(1 << 20, device());
  const Storage target(1 << 20, device());
  const std::vector<unsigned char> ones(1 << 20, 1);
  zero_bytes(target.data(), device(), target.bytes());
  copy_bytes(source.data(), device(), ones.data(), kCPU, ones.size());
  Event ready(device());
  ready.record();
  const Stream stream(device());
  std::vector<unsigned char> received(ones.size());
  {
    const StreamGuard guard(stream);
    ready.block_current_stream();
    copy_bytes(target.data(), device(), source.data(), device(), ones.size());
    copy_bytes(received.data(), kCPU, target.data(), device(), received.size());
  }
  EXPECT_EQ(received, ones);
}

FUSEGRAD_ON_EVERY_DEVICE(StreamTest);

TEST(Stream, ADeviceThatIsNotThereIsAnError) {
  const Device missing{DeviceType::cuda, cuda_device_count()};
  EXPECT_THROW(Stream{missing}, DeviceError);
  EXPECT_THROW(Event{missing}, DeviceError);
}

TEST(Stream, StreamsOfTheCpuHaveNoHandle) {
  EXPECT_EQ(Stream(kCPU).handle(), nullptr);
  EXPECT_EQ(current_stream(kCPU).device(), kCPU);
}

}  // namespace
}  // namespace fusegrad
