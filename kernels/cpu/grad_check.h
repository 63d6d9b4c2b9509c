#pragma once
// The pass that looks at gradients on the CPU: what a chunk finds, and the sum over all chunks in the one order of
// <fusegrad/kernels/math/reduction.h>.

#include <atomic>
#include <vector>

#include <fusegrad/kernels/cpu/reduction.h>
#include <fusegrad/kernels/grad_scaler.h>
#include <fusegrad/kernels/math/norm.h>

namespace fusegrad::kernels::cpu {

/// What a pass over gradients found.
struct Findings {
  double norm = 0;
  bool nonfinite = false;
};

/// True if any product with the inverse scale is not finite. Written as a sum of flags so that it vectorises.
template <class G>
bool any_nonfinite(const G* g, std::int64_t begin, std::int64_t end, float inverse_scale) {
  using M = MathType<G>;
  const M factor = static_cast<M>(inverse_scale);
  std::int32_t bad = 0;
  std::int32_t* const flag = &bad;
  fusegrad::cpu::vectorized(
      [=](std::int64_t first, std::int64_t last) {
        std::int32_t found = 0;
        for (std::int64_t i = first; i < last; ++i) found |= math::is_finite(convert<M>(g[i]) * factor) ? 0 : 1;
        *flag = found;
      },
      begin, end);
  return bad != 0;
}

/// The norm's share of [begin, end), not yet a total.
template <class Norm, class G>
double norm_share(const G* g, std::int64_t begin, std::int64_t end, float inverse_scale, const Norm& norm) {
  using M = MathType<G>;
  const M factor = static_cast<M>(inverse_scale);
  return fusegrad::cpu::reduce_chunk(
      begin, end,
      [=](std::int64_t i) { return static_cast<double>(math::scaled_gradient<G>(convert<M>(g[i]), factor)); },
      [norm](double sum, double g_i) { return norm.accumulate(sum, g_i); },
      [norm](double a, double b) { return norm.combine(a, b); });
}

/// Looks at the gradients as `check` asks. `for_each_chunk(body)` calls `body(elements, begin, end, chunk)` for all
/// `chunks`, over all cores; the elements are typed.
template <class ForEachChunk>
Findings find(const GradCheck& check, std::int64_t chunks, const ForEachChunk& for_each_chunk) {
  const float inverse = check.inverse_scale == nullptr ? 1.0f : *check.inverse_scale;
  std::atomic<bool> nonfinite{false};
  const auto look = [&]<class Norm>(const Norm& norm) {
    constexpr bool kNormWanted = !std::is_same_v<Norm, math::NoNorm>;
    std::vector<double> shares(kNormWanted ? static_cast<std::size_t>(chunks) : 0);
    for_each_chunk([&]<class G>(const G* g, std::int64_t begin, std::int64_t end, std::int64_t chunk) {
      if (check.found_inf != nullptr && any_nonfinite(g, begin, end, inverse)) nonfinite = true;
      // The chunk is in the cache now.
      if constexpr (kNormWanted) shares[static_cast<std::size_t>(chunk)] = norm_share(g, begin, end, inverse, norm);
    });
    const double* share = shares.data();
    const double sum = kNormWanted ? fusegrad::cpu::reduce_chunk(
                                         0, chunks, [=](std::int64_t i) { return share[i]; },
                                         [norm](double a, double b) { return norm.combine(a, b); })
                                   : 0.0;
    return Findings{.norm = norm.total(sum), .nonfinite = nonfinite};
  };
  switch (check.norm) {
    case GradCheck::Norm::none:
      return look(math::NoNorm{});
    case GradCheck::Norm::l2:
      return look(math::L2Norm{});
    case GradCheck::Norm::max:
      return look(math::MaxNorm{});
    case GradCheck::Norm::l1:
      return look(math::L1Norm{});
    case GradCheck::Norm::p:
      return look(math::PNorm{check.p});
  }
  return {};
}

/// Writes what was asked for.
inline void publish(const Findings& findings, const GradCheck& check) {
  if (check.found_inf != nullptr) *check.found_inf = findings.nonfinite ? 1.0f : 0.0f;
  if (check.norm_out != nullptr) *check.norm_out = findings.norm;
  if (check.clip_coefficient != nullptr) {
    *check.clip_coefficient = math::clip_coefficient(findings.norm, check.max_norm);
  }
}

/// Moves the scale by one step.
inline void move_scale(const ScaleUpdate& update, bool found_inf) {
  const ScalerPointers& state = update.state;
  const math::ScalerState now{*state.scale, *state.inverse_scale, *state.growth_tracker, *state.skipped,
                              *state.skipped_in_a_row};
  const math::ScalerState next = math::updated(now, found_inf, update.options);
  *state.scale = next.scale;
  *state.inverse_scale = next.inverse;
  *state.growth_tracker = next.growth_tracker;
  *state.skipped = next.skipped;
  *state.skipped_in_a_row = next.skipped_in_a_row;
}

/// Chunks that a thread of the CPU takes at least: a second thread is worth it only for many elements, not for many
/// chunks.
inline std::int64_t chunk_grain(std::int64_t elements, std::int64_t chunks) {
  return elements < fusegrad::cpu::kGrain ? std::max<std::int64_t>(1, chunks) : 1;
}

}  // namespace fusegrad::kernels::cpu
