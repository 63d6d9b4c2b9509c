#pragma once
// State of the random generators. There are two, as in PyTorch: one for tensors drawn on the CPU, one whose numbers a
// GPU computes. Both are plain numbers here, so that either can be copied, compared and saved on any machine; what is
// drawn from them stands in <fusegrad/kernels/random.h>.
//
// A generator is not synchronised: threads that share one take turns by their own means, or each has its own.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace fusegrad {

/// The seed of generators that nobody seeded. A program that never calls `manual_seed` draws the same numbers each run.
inline constexpr std::uint64_t kDefaultSeed = 67280421310721;

/// All that the next number of a CpuGenerator depends on.
struct CpuGeneratorState {
  static constexpr std::size_t kWords = 624;

  std::uint64_t seed = 0;
  std::array<std::uint32_t, kWords> words{};
  std::uint32_t next = kWords;          ///< the word that is drawn next; kWords: all are used up
  std::optional<double> cached_normal;  ///< the second of a pair of normals whose first has been handed out

  bool operator==(const CpuGeneratorState&) const = default;
};

/// The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded by the low 32 bits of the seed.
class CpuGenerator {
 public:
  explicit CpuGenerator(std::uint64_t seed = kDefaultSeed);

  /// Starts anew from `seed`; forgets a cached normal.
  void manual_seed(std::uint64_t seed) { *this = CpuGenerator(seed); }
  [[nodiscard]] std::uint64_t seed() const { return state_.seed; }

  [[nodiscard]] const CpuGeneratorState& state() const { return state_; }
  /// Goes on from a saved state. Throws `ValueError`, and changes nothing, if `state.next` is beyond the words.
  void set_state(const CpuGeneratorState& state);

  /// 32 random bits.
  std::uint32_t random() {
    if (state_.next == CpuGeneratorState::kWords) refill();
    std::uint32_t word = state_.words[state_.next++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    return word ^ (word >> 18);
  }
  /// 64 random bits: two draws, the first one high.
  std::uint64_t random64() {
    const std::uint64_t high = random();
    return high << 32 | random();
  }

  /// Keeps the second of a pair of normals for the next call.
  void cache_normal(double value) { state_.cached_normal = value; }
  /// Hands out the normal that was kept, once.
  std::optional<double> take_cached_normal() {
    const std::optional<double> value = state_.cached_normal;
    state_.cached_normal.reset();
    return value;
  }

  bool operator==(const CpuGenerator&) const = default;

 private:
  void refill();
  CpuGeneratorState state_;
};

/// Which GPU's numbers a CudaGenerator draws. Tensors of more than 256 · max_blocks elements get different numbers on
/// GPUs of different size, because PyTorch shares its draws among as many threads as the GPU holds.
struct CudaGeneratorOptions {
  /// The device whose size counts. It need not exist.
  int index = 0;
  /// The most blocks of 256 threads of one launch. Left out: those of device `index`, which are its multiprocessors ·
  /// ⌊threads of a multiprocessor / 256⌋, or where there is no such device those of an H200, 132 · 8.
  std::optional<std::int64_t> max_blocks;
};

/// All that the next number of a CudaGenerator depends on, beside its launch geometry.
struct CudaGeneratorState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< numbers used so far by each thread; a multiple of 4

  bool operator==(const CudaGeneratorState&) const = default;
};

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), a counter-based generator: key = seed, subsequence = thread,
/// counter = offset / 4. Making one and drawing from it needs no GPU.
class CudaGenerator {
 public:
  /// Throws `ValueError` for fewer than one block or a negative device index.
  explicit CudaGenerator(std::uint64_t seed = kDefaultSeed, const CudaGeneratorOptions& options = {});

  /// Starts anew from `seed`, at offset 0.
  void manual_seed(std::uint64_t seed) { state_ = {.seed = seed, .offset = 0}; }
  [[nodiscard]] std::uint64_t seed() const { return state_.seed; }
  [[nodiscard]] std::uint64_t offset() const { return state_.offset; }
  /// Throws `ValueError` unless `offset` is a multiple of 4.
  void set_offset(std::uint64_t offset);

  [[nodiscard]] const CudaGeneratorState& state() const { return state_; }
  /// Goes on from a saved state. Throws `ValueError`, and changes nothing, unless its offset is a multiple of 4.
  void set_state(const CudaGeneratorState& state);

  [[nodiscard]] std::int64_t max_blocks() const { return max_blocks_; }

  /// Takes `numbers` numbers of every thread, rounded up to a multiple of 4; returns the offset of the first.
  std::uint64_t advance(std::uint64_t numbers);

  bool operator==(const CudaGenerator&) const = default;

 private:
  CudaGeneratorState state_;
  std::int64_t max_blocks_ = 0;
};

/// The generator that tensors on the CPU are drawn from unless a call names another.
CpuGenerator& default_cpu_generator();

/// The same for CUDA device `index`. Made on first use, with the seed last given to `manual_seed`. Throws `ValueError`
/// for a negative index.
CudaGenerator& default_cuda_generator(int index = 0);

/// Seeds the default generators of the CPU and of every CUDA device, those not yet made included. Needs no GPU.
void manual_seed(std::uint64_t seed);

}  // namespace fusegrad
