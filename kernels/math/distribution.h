#pragma once
// What the CUDA generator makes of the words of one Philox draw, and which elements of a tensor get it. Host loop and
// device kernel share it, so the CPU draws a GPU's numbers.

#include <cstdint>
#include <type_traits>

#include <fusegrad/kernels/math/box_muller.h>
#include <fusegrad/kernels/math/philox.h>
#include <fusegrad/runtime/dtype.h>

namespace fusegrad::math {

/// Numbers of math type M that four words make: four floats or two doubles.
template <class M>
inline constexpr int kPhiloxValues = std::is_same_v<M, double> ? 2 : 4;

/// The numbers of one draw.
template <class M>
struct PhiloxValues {
  M value[kPhiloxValues<M>];
};

/// u·(to − from) + from, rounded to T; a value that rounding raised to `to` becomes `from`, so the range is [from, to).
template <class T>
struct PhiloxUniform {
  using M = MathType<T>;
  M from = 0;
  M to = 1;
  M range = 1;  ///< to − from, rounded to T

  static FUSEGRAD_HD PhiloxValues<M> values(const PhiloxWords& words) {
    if constexpr (std::is_same_v<M, double>) {
      return {unit_interval(words.x, words.y), unit_interval(words.z, words.w)};
    } else {
      return {unit_interval(words.x), unit_interval(words.y), unit_interval(words.z), unit_interval(words.w)};
    }
  }
  FUSEGRAD_HD T element(M u) const {
    const T value = convert<T>(fma(u, range, from));
    return convert<M>(value) == to ? convert<T>(from) : value;
  }
};

/// The distribution of [from, to), whose bounds are rounded to T first.
template <class T>
PhiloxUniform<T> make_uniform(double from, double to) {
  using M = MathType<T>;
  const M low = convert<M>(convert<T>(from));
  const M high = convert<M>(convert<T>(to));
  return {low, high, convert<M>(convert<T>(high - low))};
}

/// n·std + mean, rounded to T.
template <class T>
struct PhiloxNormal {
  using M = MathType<T>;
  M mean = 0;
  M std = 1;

  static FUSEGRAD_HD PhiloxValues<M> values(const PhiloxWords& words) {
    if constexpr (std::is_same_v<M, double>) {
      const SineCosine<double> pair = cuda_normal_pair(words);
      return {pair.sine, pair.cosine};
    } else {
      const SineCosine<float> first = cuda_normal_pair(words.x, words.y);
      const SineCosine<float> second = cuda_normal_pair(words.z, words.w);
      return {first.sine, first.cosine, second.sine, second.cosine};
    }
  }
  FUSEGRAD_HD T element(M n) const { return convert<T>(fma(n, std, mean)); }
};

/// The distribution of that mean and standard deviation, which are rounded to T's math type first.
template <class T>
PhiloxNormal<T> make_normal(double mean, double std) {
  using M = MathType<T>;
  return {static_cast<M>(mean), static_cast<M>(std)};
}

/// How PyTorch shares a tensor among threads. In round r, thread t of `threads` makes one draw, the (offset/4 + r)-th
/// of its subsequence t, and gives its numbers to elements first, first + threads, …, where first = t + r·threads·k for
/// k numbers a draw.
struct PhiloxLaunch {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::int64_t count = 0;    ///< elements
  std::int64_t threads = 0;  ///< 256 · blocks
  std::int64_t rounds = 0;   ///< ⌈count / (threads · numbers of a draw)⌉
};

/// Makes the draw of one thread in one round and stores it.
template <class T, class Distribution>
FUSEGRAD_HD void philox_store(const PhiloxLaunch& launch, const Distribution& distribution, std::int64_t thread,
                              std::int64_t round, T* out) {
  using M = MathType<T>;
  std::int64_t i = thread + round * launch.threads * kPhiloxValues<M>;
  if (i >= launch.count) return;
  const std::uint64_t counter = launch.offset / 4 + static_cast<std::uint64_t>(round);
  const PhiloxValues<M> values = Distribution::values(philox(launch.seed, counter, static_cast<std::uint64_t>(thread)));
  for (int k = 0; k < kPhiloxValues<M> && i < launch.count; ++k, i += launch.threads) {
    out[i] = distribution.element(values.value[k]);
  }
}

}  // namespace fusegrad::math
