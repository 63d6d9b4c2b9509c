#pragma once
// How CPU loops use the cores and the vector units. A loop is a lambda over a range of indices; it is compiled for
// three instruction sets and the machine's own is picked at run time, so one binary serves every x86-64 processor.
// (`flatten` inlines the lambda and all it calls, and so compiles them for the target.) No result depends on the
// choice: formulas use exactly rounded operations, and sums have a fixed order.

#include <algorithm>
#include <cstdint>

#include <omp.h>

namespace fusegrad::cpu {

enum class Isa { base, avx2, avx512 };

/// The best instruction set of this machine.
inline Isa isa() {
#if defined(__x86_64__)
  static const Isa best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      return Isa::avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
    return Isa::base;
  }();
  return best;
#else
  return Isa::base;
#endif
}

namespace detail {

#if defined(__x86_64__)
template <class Loop>
__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"), flatten, noinline)) void run_avx512(
    const Loop& loop, std::int64_t begin, std::int64_t end) {
  loop(begin, end);
}

template <class Loop>
__attribute__((target("avx2,fma"), flatten, noinline)) void run_avx2(const Loop& loop, std::int64_t begin,
                                                                     std::int64_t end) {
  loop(begin, end);
}
#endif

}  // namespace detail

/// Runs `loop(begin, end)` with the machine's vector instructions. The lambda must not throw and must capture by value.
template <class Loop>
void vectorized(const Loop& loop, std::int64_t begin, std::int64_t end) {
#if defined(__x86_64__)
  switch (isa()) {
    case Isa::avx512:
      return detail::run_avx512(loop, begin, end);
    case Isa::avx2:
      return detail::run_avx2(loop, begin, end);
    case Isa::base:
      break;
  }
#endif
  loop(begin, end);
}

/// Below this many elements a second thread costs more than it brings.
inline constexpr std::int64_t kGrain = 16384;

/// Runs `body(begin, end)` over parts of [0, count), on as many threads as there are parts of at least `grain`.
/// Parts begin at multiples of 64 so that threads do not share cache lines. `body` must not throw.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  const std::int64_t wanted = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<std::int64_t>(wanted, omp_get_max_threads()));
  if (threads <= 1 || omp_in_parallel()) return body(0, count);
  const std::int64_t even = (count + threads - 1) / threads;
  const std::int64_t part = grain == 1 ? even : (even + 63) / 64 * 64;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int i = 0; i < threads; ++i) {
    const std::int64_t begin = std::min(count, i * part);
    const std::int64_t end = std::min(count, begin + part);
    if (begin < end) body(begin, end);
  }
}

/// Runs `element(i)` for every i in [0, count), on all cores and in vectors. Elements must not depend on each other.
template <class Element>
void for_each_index(std::int64_t count, const Element& element) {
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    vectorized(
        [element](std::int64_t first, std::int64_t last) {
#pragma GCC ivdep
          for (std::int64_t i = first; i < last; ++i) element(i);
        },
        begin, end);
  });
}

}  // namespace fusegrad::cpu
