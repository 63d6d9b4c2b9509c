#include <map>
#include <mutex>

#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/device.h>
#include <fusegrad/runtime/error.h>
#include <fusegrad/runtime/generator.h>

namespace fusegrad {
namespace {

constexpr int kBlockThreads = 256;
constexpr std::int64_t kH200Blocks = 132 * 8;

std::int64_t blocks_of_device(int index) {
  if constexpr (kCudaBuilt) {
    if (index < cuda_device_count()) {
      const cuda::DeviceProperties properties = cuda::device_properties(index);
      return std::int64_t{properties.multiprocessors} * (properties.threads_per_multiprocessor / kBlockThreads);
    }
  }
  return kH200Blocks;
}

void require_index(int index, const char* op) {
  if (index >= 0) return;
  throw ValueError({.op = op, .got = cat("device index ", index), .want = "an index of 0 or more", .way_out = ""});
}

// The default generators. One lock for the map of them; the generators themselves are not synchronised.
struct Defaults {
  std::mutex mutex;
  std::uint64_t seed = kDefaultSeed;
  CpuGenerator cpu;
  std::map<int, CudaGenerator> cuda;
};

Defaults& defaults() {
  static Defaults all;
  return all;
}

}  // namespace

CpuGenerator::CpuGenerator(std::uint64_t seed) {
  state_.seed = seed;
  std::uint32_t word = static_cast<std::uint32_t>(seed);
  state_.words[0] = word;
  for (std::uint32_t i = 1; i < CpuGeneratorState::kWords; ++i) {
    word = 1812433253u * (word ^ (word >> 30)) + i;
    state_.words[i] = word;
  }
}

void CpuGenerator::set_state(const CpuGeneratorState& state) {
  if (state.next > CpuGeneratorState::kWords) {
    throw ValueError({.op = "CpuGenerator::set_state",
                      .got = cat("next word ", state.next),
                      .want = cat("at most ", CpuGeneratorState::kWords),
                      .way_out = "Pass a state that state() returned"});
  }
  state_ = state;
}

// One round of the recurrence: each word from itself, its successor and the word 397 places on, around the ring.
void CpuGenerator::refill() {
  constexpr std::size_t kWords = CpuGeneratorState::kWords;
  constexpr std::size_t kShift = 397;
  auto& words = state_.words;
  const auto twist = [&](std::size_t i, std::size_t successor, std::size_t shifted) {
    const std::uint32_t mixed = (words[i] & 0x80000000u) | (words[successor] & 0x7fffffffu);
    words[i] = words[shifted] ^ (mixed >> 1) ^ ((mixed & 1u) * 0x9908b0dfu);
  };
  for (std::size_t i = 0; i < kWords - kShift; ++i) twist(i, i + 1, i + kShift);
  for (std::size_t i = kWords - kShift; i < kWords - 1; ++i) twist(i, i + 1, i + kShift - kWords);
  twist(kWords - 1, 0, kShift - 1);
  state_.next = 0;
}

CudaGenerator::CudaGenerator(std::uint64_t seed, const CudaGeneratorOptions& options) {
  require_index(options.index, "CudaGenerator");
  max_blocks_ = options.max_blocks ? *options.max_blocks : blocks_of_device(options.index);
  constexpr std::int64_t kMost = 0x7fffffff;  // what a launch can hold
  if (max_blocks_ < 1 || max_blocks_ > kMost) {
    throw ValueError({.op = "CudaGenerator",
                      .got = cat("max_blocks ", max_blocks_),
                      .want = "1 to 2^31 - 1 blocks",
                      .way_out = "Leave it out to take the device's own"});
  }
  manual_seed(seed);
}

void CudaGenerator::set_offset(std::uint64_t offset) { set_state({.seed = state_.seed, .offset = offset}); }

void CudaGenerator::set_state(const CudaGeneratorState& state) {
  if (state.offset % 4 != 0) {
    throw ValueError({.op = "CudaGenerator::set_offset",
                      .got = cat("offset ", state.offset),
                      .want = "a multiple of 4",
                      .way_out = "The generator yields four numbers at a time; pass an offset that offset() returned"});
  }
  state_ = state;
}

std::uint64_t CudaGenerator::advance(std::uint64_t numbers) {
  const std::uint64_t first = state_.offset;
  state_.offset += (numbers + 3) / 4 * 4;
  return first;
}

CpuGenerator& default_cpu_generator() { return defaults().cpu; }

CudaGenerator& default_cuda_generator(int index) {
  require_index(index, "default_cuda_generator");
  Defaults& all = defaults();
  const std::lock_guard lock(all.mutex);
  const auto found = all.cuda.find(index);
  if (found != all.cuda.end()) return found->second;
  return all.cuda.emplace(index, CudaGenerator(all.seed, {.index = index, .max_blocks = {}})).first->second;
}

void manual_seed(std::uint64_t seed) {
  Defaults& all = defaults();
  const std::lock_guard lock(all.mutex);
  all.seed = seed;
  all.cpu.manual_seed(seed);
  for (auto& [index, generator] : all.cuda) generator.manual_seed(seed);
}

}  // namespace fusegrad
