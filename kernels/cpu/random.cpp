#include <fusegrad/kernels/cpu/parallel.h>
#include <fusegrad/kernels/random.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::parallel_for;
using fusegrad::cpu::vectorized;

namespace {

// Significant bits of a dtype: a uniform of the CPU generator takes as many low bits of a draw.
template <class T>
inline constexpr int kDigits = 0;
template <>
inline constexpr int kDigits<Float16> = 11;
template <>
inline constexpr int kDigits<BFloat16> = 8;
template <>
inline constexpr int kDigits<float> = 24;
template <>
inline constexpr int kDigits<double> = 53;

// A uniform of [0, 1), exact in T.
template <class T>
MathType<T> next_uniform(CpuGenerator& generator) {
  using M = MathType<T>;
  constexpr M kStep = M(1) / static_cast<M>(std::uint64_t{1} << kDigits<T>);
  if constexpr (std::is_same_v<T, double>) {
    return static_cast<M>(generator.random64() & ((std::uint64_t{1} << kDigits<T>)-1)) * kStep;
  } else {
    return static_cast<M>(generator.random() & ((std::uint32_t{1} << kDigits<T>)-1)) * kStep;
  }
}

// What two uniforms of a block become: elements j and j + 8 of it.
template <class T>
struct NormalPair {
  T first;
  T second;
};

template <class M>
NormalPair<M> normal_pair(M u1, M u2, M mean, M std) {
  const math::SineCosine<M> pair = math::cpu_normal_pair(u1, u2);
  return {math::fma(pair.cosine, std, mean), math::fma(pair.sine, std, mean)};
}

// In a 16-bit dtype the reference rounds after each operation, except within the angle.
template <class T>
requires(sizeof(T) == 2) NormalPair<T> normal_pair(T u1, T u2, T mean, T std) {
  const auto rounded = [](float x) { return convert<float>(convert<T>(x)); };
  const float log = rounded(std::log(rounded(1.0f - convert<float>(u1))));
  const float radius = rounded(std::sqrt(rounded(-2.0f * log)));
  const float angle = convert<float>(convert<T>(2.0 * math::kPi * convert<double>(u2)));
  const auto element = [&](float trigonometric) {
    const float scaled = rounded(rounded(radius * rounded(trigonometric)) * convert<float>(std));
    return convert<T>(scaled + convert<float>(mean));
  };
  return {element(std::cos(angle)), element(std::sin(angle))};
}

constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kPairs = kBlock / 2;

// Turns the uniforms of `blocks` blocks of 16, in place, to normals.
template <class T>
void transform_blocks(T* data, std::int64_t blocks, T mean, T std) {
  const auto transform = [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      T* x = data + block * kBlock;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < kPairs; ++j) {
        const NormalPair<T> pair = normal_pair(x[j], x[j + kPairs], mean, std);
        x[j] = pair.first;
        x[j + kPairs] = pair.second;
      }
    }
  };
  constexpr std::int64_t kGrain = fusegrad::cpu::kGrain / kBlock;
  parallel_for(blocks, kGrain, [&](std::int64_t begin, std::int64_t end) { vectorized(transform, begin, end); });
}

template <class T>
void fill_with_uniforms(T* data, std::int64_t count, CpuGenerator& generator) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = convert<T>(next_uniform<T>(generator));
}

// From 16 elements on: uniforms everywhere, then blocks. If they are no multiple of 16, the last 16 are drawn anew.
template <class T>
void normal_blocks(T* data, std::int64_t count, T mean, T std, CpuGenerator& generator) {
  fill_with_uniforms(data, count, generator);
  transform_blocks(data, count / kBlock, mean, std);
  if (count % kBlock == 0) return;
  T* last = data + count - kBlock;
  fill_with_uniforms(last, kBlock, generator);
  transform_blocks(last, 1, mean, std);
}

// Below 16 elements: in double, each pair made when its first number is asked for.
double next_normal(CpuGenerator& generator) {
  if (const std::optional<double> cached = generator.take_cached_normal()) return *cached;
  const double u1 = next_uniform<double>(generator);
  const double u2 = next_uniform<double>(generator);
  const double radius = math::sqrt(-2.0 * std::log1p(-u2));
  const double angle = 2.0 * math::kPi * u1;
  generator.cache_normal(radius * std::sin(angle));
  return radius * std::cos(angle);
}

// The draws of all threads and rounds, shared among the CPU's.
template <class T, class Distribution>
void philox_fill(const Tensor& y, const math::PhiloxLaunch& launch, const Distribution& distribution) {
  T* out = y.data<T>();
  parallel_for(launch.rounds * launch.threads, fusegrad::cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    vectorized(
        [=](std::int64_t first, std::int64_t last) {
          for (std::int64_t draw = first; draw < last; ++draw) {
            math::philox_store(launch, distribution, draw % launch.threads, draw / launch.threads, out);
          }
        },
        begin, end);
  });
}

}  // namespace

void uniform(const Tensor& y, double from, double to, CpuGenerator& generator) {
  visit_floating(y.dtype(), "uniform", [&]<class T>(TypeTag<T>) {
    using M = MathType<T>;
    const M low = convert<M>(convert<T>(from));
    const M range = convert<M>(convert<T>(convert<M>(convert<T>(to)) - low));
    for (T& element : y.span<T>()) element = convert<T>(math::fma(next_uniform<T>(generator), range, low));
  });
}

void normal(const Tensor& y, double mean, double std, CpuGenerator& generator) {
  visit_floating(y.dtype(), "normal", [&]<class T>(TypeTag<T>) {
    if (y.numel() >= kBlock) {
      return normal_blocks(y.data<T>(), y.numel(), convert<T>(mean), convert<T>(std), generator);
    }
    for (T& element : y.span<T>()) element = convert<T>(math::fma(next_normal(generator), std, mean));
  });
}

void philox_uniform(const Tensor& y, double from, double to, const math::PhiloxLaunch& launch) {
  visit_floating(y.dtype(), "uniform",
                 [&]<class T>(TypeTag<T>) { philox_fill<T>(y, launch, math::make_uniform<T>(from, to)); });
}

void philox_normal(const Tensor& y, double mean, double std, const math::PhiloxLaunch& launch) {
  visit_floating(y.dtype(), "normal",
                 [&]<class T>(TypeTag<T>) { philox_fill<T>(y, launch, math::make_normal<T>(mean, std)); });
}

}  // namespace fusegrad::kernels::cpu
