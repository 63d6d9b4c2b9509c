#pragma once
// The summation order of <fusegrad/kernels/math/reduction.h> on the CPU.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fusegrad/kernels/cpu/parallel.h>
#include <fusegrad/kernels/math/reduction.h>

namespace fusegrad::cpu {

/// Combines `load(i)` (a double) for i in [begin, end) as one chunk: `accumulate(lane, value)` adds an element to its
/// lane, `combine(a, b)` adds lanes. Zero is neutral.
template <class Load, class Accumulate, class Combine>
double reduce_chunk(std::int64_t begin, std::int64_t end, const Load& load, const Accumulate& accumulate,
                    const Combine& combine) {
  alignas(64) double lanes[math::kLanes];
  const std::int64_t count = end - begin;
  int width = 1;  // lanes that are not known to be zero, as a power of two
  while (width < math::kLanes && width < count) width *= 2;
  std::fill(lanes, lanes + width, 0.0);
  double* const lane = lanes;
  vectorized(
      [=](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; row += math::kLanes) {
          const std::int64_t columns = std::min<std::int64_t>(math::kLanes, last - row);
#pragma GCC ivdep
          for (std::int64_t j = 0; j < columns; ++j) lane[j] = accumulate(lane[j], load(row + j));
        }
        for (int half = width / 2; half >= 1; half /= 2) {
          for (int j = 0; j < half; ++j) lane[j] = combine(lane[2 * j], lane[2 * j + 1]);
        }
      },
      begin, end);
  return lanes[0];
}

/// The same where an element is added as lanes are.
template <class Load, class Combine>
double reduce_chunk(std::int64_t begin, std::int64_t end, const Load& load, const Combine& combine) {
  return reduce_chunk(begin, end, load, combine, combine);
}

struct Add {
  double operator()(double a, double b) const { return a + b; }
};

/// Combines `load(i)` for i in [0, count) over all cores.
template <class Load, class Combine = Add>
double reduce(std::int64_t count, const Load& load, const Combine& combine = {}) {
  const std::int64_t chunks = (count + math::kChunk - 1) / math::kChunk;
  if (chunks <= 1) return reduce_chunk(0, count, load, combine);
  std::vector<double> partial(static_cast<std::size_t>(chunks));
  parallel_for(chunks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      partial[static_cast<std::size_t>(c)] =
          reduce_chunk(c * math::kChunk, std::min(count, (c + 1) * math::kChunk), load, combine);
    }
  });
  const double* values = partial.data();
  return reduce_chunk(
      0, chunks, [=](std::int64_t i) { return values[i]; }, combine);
}

}  // namespace fusegrad::cpu
