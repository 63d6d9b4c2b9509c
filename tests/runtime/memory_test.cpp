// Memory is aligned, counted and handed out again; copies arrive bit for bit on every device.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/device_array.h>
#include <fusegrad/runtime/error.h>
#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/stream.h>
#include <fusegrad/tests/device_test.h>

#if defined(__SANITIZE_ADDRESS__)
// A request for more memory than there is returns null, as without the sanitizer, instead of ending the program.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
#endif

namespace fusegrad {
namespace {

constexpr std::size_t kOddSizes[] = {1, 2, 63, 64, 65, 511, 512, 513, 100'000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1};

class MemoryTest : public DeviceTest {};

TEST_P(MemoryTest, EveryBlockIsAlignedTo64Bytes) {
  std::vector<std::unique_ptr<Storage>> blocks;
  for (const std::size_t bytes : kOddSizes) {
    blocks.push_back(std::make_unique<Storage>(bytes, device()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()->data()) % 64, 0u) << bytes;
    EXPECT_EQ(blocks.back()->bytes(), bytes);
  }
}

TEST_P(MemoryTest, AnEmptyStorageTakesNothing) {
  const MemoryStats before = memory_stats(device());
  const Storage storage(0, device());
  EXPECT_EQ(storage.data(), nullptr);
  EXPECT_EQ(memory_stats(device()).bytes_now, before.bytes_now);
  EXPECT_EQ(memory_stats(device()).allocations, before.allocations);
}

TEST_P(MemoryTest, RepeatingTheSameSizesTakesNothingNewFromTheSystem) {
  const auto round = [&] {
    std::vector<std::unique_ptr<Storage>> live;
    for (const std::size_t bytes : kOddSizes) live.push_back(std::make_unique<Storage>(bytes, device()));
    live.erase(live.begin() + 3);  // freed out of order, taken again within the round
    live.push_back(std::make_unique<Storage>(64, device()));
    for (int i = 0; i < 5; ++i) const Storage passing(3000, device());
  };
  round();
  const MemoryStats before = memory_stats(device());
  for (int i = 0; i < 100; ++i) round();
  const MemoryStats after = memory_stats(device());
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.bytes_reserved, before.bytes_reserved);
  EXPECT_EQ(after.bytes_now, before.bytes_now);
}

// What ran before with other sizes, say an evaluation, must not crowd out the blocks of the step that repeats now.
TEST_P(MemoryTest, BlocksKeptFromOtherSizesDoNotStopTheReuseOfThese) {
  {
    std::vector<std::unique_ptr<Storage>> others;
    for (std::size_t bytes = 2'000; bytes < 40'000; bytes += 2'000) {
      others.push_back(std::make_unique<Storage>(bytes, device()));
    }
  }
  const auto round = [&] {
    const Storage a(1'000'000, device());
    const Storage b(300'000, device());
    const Storage c(90'000, device());
  };
  for (int i = 0; i < 10; ++i) round();
  const std::int64_t before = memory_stats(device()).allocations;
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(memory_stats(device()).allocations, before);
}

TEST_P(MemoryTest, CountsLiveBytesAndTheirPeak) {
  const std::int64_t base = memory_stats(device()).bytes_now;
  reset_peak_memory(device());
  EXPECT_EQ(memory_stats(device()).bytes_peak, base);
  {
    const Storage a(10'000, device());
    EXPECT_GE(memory_stats(device()).bytes_now, base + 10'000);
    const Storage b(20'000, device());
    EXPECT_GE(memory_stats(device()).bytes_now, base + 30'000);
  }
  EXPECT_EQ(memory_stats(device()).bytes_now, base);
  EXPECT_GE(memory_stats(device()).bytes_peak, base + 30'000);
  EXPECT_LT(memory_stats(device()).bytes_peak, base + 30'000 + 2 * 512 + 512);  // blocks are rounded up to 512
  reset_peak_memory(device());
  EXPECT_EQ(memory_stats(device()).bytes_peak, base);
}

TEST_P(MemoryTest, EmptyCacheGivesFreeBlocksBack) {
  { const Storage storage(1 << 22, device()); }
  EXPECT_GT(memory_stats(device()).bytes_reserved, memory_stats(device()).bytes_now);
  empty_cache(device());
  EXPECT_EQ(memory_stats(device()).bytes_reserved, memory_stats(device()).bytes_now);
}

TEST_P(MemoryTest, LiveBlocksNeverOverlap) {
  std::vector<std::unique_ptr<Storage>> live;
  for (int i = 0; i < 200; ++i) {
    live.push_back(std::make_unique<Storage>(static_cast<std::size_t>(1 + 37 * i), device()));
    if (i % 3 == 2) live.erase(live.end() - 2);
  }
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  for (const auto& block : live) {
    const auto begin = reinterpret_cast<std::uintptr_t>(block->data());
    ranges.emplace_back(begin, begin + block->bytes());
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST_P(MemoryTest, MoreThanThereIsIsADeviceErrorThatNamesTheSize) {
  // Up to the largest number: rounding it up to whole blocks must not wrap around to a small one.
  for (const std::size_t bytes : {std::size_t{1} << 60, ~std::size_t{0} - 60'000, ~std::size_t{0}}) {
    try {
      const Storage storage(bytes, device());
      ADD_FAILURE() << "no error for " << bytes;
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find(cat(bytes)), std::string::npos);
    }
  }
  const Storage still_works(64, device());
  EXPECT_NE(still_works.data(), nullptr);
}

TEST_P(MemoryTest, BytesSurviveTheWayToTheDeviceAroundItAndBack) {
  std::vector<unsigned char> sent(300'001);
  std::iota(sent.begin(), sent.end(), static_cast<unsigned char>(3));
  const Storage first(sent.size(), device());
  const Storage second(sent.size(), device());
  copy_bytes(first.data(), device(), sent.data(), kCPU, sent.size());
  copy_bytes(second.data(), device(), first.data(), device(), sent.size());
  std::vector<unsigned char> received(sent.size());
  copy_bytes(received.data(), kCPU, second.data(), device(), sent.size());
  EXPECT_EQ(received, sent);
}

TEST_P(MemoryTest, ASourceMayBeOverwrittenAsSoonAsTheCopyToTheDeviceReturns) {
  std::vector<std::int32_t> source(100'000, 1);
  const std::size_t bytes = source.size() * sizeof(std::int32_t);
  const Storage storage(bytes, device());
  copy_bytes(storage.data(), device(), source.data(), kCPU, bytes);
  std::ranges::fill(source, 2);
  std::vector<std::int32_t> received(source.size());
  copy_bytes(received.data(), kCPU, storage.data(), device(), bytes);
  EXPECT_EQ(received, std::vector<std::int32_t>(source.size(), 1));
}

TEST_P(MemoryTest, ZeroBytesZeroesExactlyItsRange) {
  std::vector<unsigned char> bytes(1001, 0xff);
  const Storage storage(bytes.size(), device());
  copy_bytes(storage.data(), device(), bytes.data(), kCPU, bytes.size());
  zero_bytes(static_cast<std::byte*>(storage.data()) + 1, device(), 999);
  zero_bytes(nullptr, device(), 0);
  copy_bytes(bytes.data(), kCPU, storage.data(), device(), bytes.size());
  EXPECT_EQ(bytes.front(), 0xff);
  EXPECT_EQ(bytes.back(), 0xff);
  EXPECT_EQ(std::vector<unsigned char>(bytes.begin() + 1, bytes.end() - 1), std::vector<unsigned char>(999, 0));
}

TEST_P(MemoryTest, CopiesOfNothingTakeNullPointers) {
  EXPECT_NO_THROW(copy_bytes(nullptr, device(), nullptr, kCPU, 0));
  EXPECT_NO_THROW(copy_bytes(nullptr, kCPU, nullptr, device(), 0));
}

TEST_P(MemoryTest, ADeviceArrayHoldsItsRowsAndUploadsEqualOnesOnce) {
  DeviceArray<int> array;
  EXPECT_EQ(array.data(), nullptr);
  const std::vector<int> rows{1, 2, 3};
  array.assign(rows, device());
  const int* place = array.data();
  array.assign(rows, device());
  EXPECT_EQ(array.data(), place);
  std::vector<int> received(3);
  copy_bytes(received.data(), kCPU, array.data(), device(), 3 * sizeof(int));
  EXPECT_EQ(received, rows);
  array.assign(std::vector<int>{9}, device());
  EXPECT_EQ(array.size(), 1);
  copy_bytes(received.data(), kCPU, array.data(), device(), sizeof(int));
  EXPECT_EQ(received.front(), 9);
}

FUSEGRAD_ON_EVERY_DEVICE(MemoryTest);

TEST(Memory, ADeviceThatIsNotThereIsAnError) {
  EXPECT_THROW(Storage(4, {DeviceType::cuda, cuda_device_count()}), DeviceError);
  EXPECT_THROW(Storage(0, {DeviceType::cuda, cuda_device_count()}), DeviceError);
}

TEST(Memory, ThreadsTakeAndGiveBlocksAtOnce) {
  const std::int64_t base = memory_stats(kCPU).bytes_now;
  std::vector<std::thread> threads;
  std::atomic<int> torn{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &torn] {
      for (int i = 0; i < 2000; ++i) {
        const std::size_t bytes = static_cast<std::size_t>(8 + i % 50 * 64);
        const Storage storage(bytes, kCPU);
        std::memset(storage.data(), t, bytes);
        const auto* data = static_cast<const unsigned char*>(storage.data());
        if (data[0] != t || data[bytes - 1] != t) ++torn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(memory_stats(kCPU).bytes_now, base);
}

}  // namespace
}  // namespace fusegrad
