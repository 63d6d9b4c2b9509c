#include <atomic>
#include <vector>

#include <fusegrad/kernels/cpu/reduction.h>
#include <fusegrad/kernels/grad_scaler.h>
#include <fusegrad/kernels/math/norm.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::parallel_for;
using fusegrad::cpu::reduce_chunk;
using fusegrad::cpu::vectorized;

namespace {

// Calls `body(elements, begin, end)` for every chunk of the list, over all cores. `body` is generic in the element
// type.
template <class Body>
void for_each_chunk(const TensorList& list, const Body& body) {
  const ListedTensor* tensors = list.tensors().data();
  const Chunk* chunks = list.chunks().data();
  const std::int64_t count = list.chunk_count();
  std::int64_t elements = 0;
  for (const ListedTensor& tensor : list.tensors().host()) elements += tensor.numel;
  const std::int64_t grain = elements < fusegrad::cpu::kGrain ? count : 1;
  parallel_for(count, std::max<std::int64_t>(1, grain), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      const ListedTensor& tensor = tensors[chunks[c].tensor];
      const std::int64_t begin = chunks[c].begin;
      const std::int64_t end = std::min(tensor.numel, begin + math::kChunk);
      visit_floating(tensor.dtype, "gradients",
                     [&]<class G>(TypeTag<G>) { body(static_cast<G*>(tensor.data), begin, end, c); });
    }
  });
}

// True if any product is not finite. Written as a sum of flags so that it vectorises.
template <class G>
bool any_nonfinite(const G* g, std::int64_t begin, std::int64_t end, float inverse_scale) {
  using M = MathType<G>;
  const M factor = static_cast<M>(inverse_scale);
  std::int32_t bad = 0;
  std::int32_t* const count = &bad;
  vectorized(
      [=](std::int64_t first, std::int64_t last) {
        std::int32_t found = 0;
        for (std::int64_t i = first; i < last; ++i) found |= math::is_finite(convert<M>(g[i]) * factor) ? 0 : 1;
        *count = found;
      },
      begin, end);
  return bad != 0;
}

void find_nonfinite(const TensorList& grads, const GradCheck& check) {
  if (check.found_inf == nullptr) return;
  std::atomic<bool> found{false};
  const float inverse = check.inverse_scale == nullptr ? 1.0f : *check.inverse_scale;
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t) {
    if (any_nonfinite(g, begin, end, inverse)) found = true;
  });
  if (found) *check.found_inf = 1.0f;
}

template <class Norm>
void norm_of(const TensorList& grads, const GradCheck& check, const Norm& norm) {
  std::vector<double> partial(static_cast<std::size_t>(grads.chunk_count()));
  const bool scaled = check.inverse_scale != nullptr;
  const float inverse = scaled ? *check.inverse_scale : 1.0f;
  std::atomic<bool> found{false};
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t chunk) {
    using M = MathType<G>;
    if (check.found_inf != nullptr && any_nonfinite(g, begin, end, inverse)) found = true;  // the chunk is in cache now
    const M factor = static_cast<M>(inverse);
    const auto load = [=](std::int64_t i) {
      const M raw = convert<M>(g[i]);
      return norm.contribution(static_cast<double>(scaled ? math::scaled_gradient<G>(raw, factor) : raw));
    };
    partial[static_cast<std::size_t>(chunk)] =
        reduce_chunk(begin, end, load, [norm](double a, double b) { return norm.combine(a, b); });
  });
  if (found) *check.found_inf = 1.0f;
  const double* values = partial.data();
  *check.norm_out = norm.total(reduce_chunk(
      0, grads.chunk_count(), [=](std::int64_t i) { return values[i]; },
      [norm](double a, double b) { return norm.combine(a, b); }));
}

}  // namespace

void check_gradients(const TensorList& grads, const GradCheck& check) {
  switch (check.norm) {
    case GradCheck::Norm::none:
      return find_nonfinite(grads, check);
    case GradCheck::Norm::l2:
      return norm_of(grads, check, math::L2Norm{});
    case GradCheck::Norm::max:
      return norm_of(grads, check, math::MaxNorm{});
    case GradCheck::Norm::l1:
      return norm_of(grads, check, math::L1Norm{});
    case GradCheck::Norm::p:
      return norm_of(grads, check, math::PNorm{check.p});
  }
}

void unscale_gradients(const TensorList& grads, const float* inverse_scale, float* found_inf) {
  const float inverse = *inverse_scale;
  std::atomic<bool> found{false};
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t) {
    using M = MathType<G>;
    if (any_nonfinite(g, begin, end, inverse)) found = true;
    const M factor = static_cast<M>(inverse);
    vectorized(
        [=](std::int64_t first, std::int64_t last) {
          for (std::int64_t i = first; i < last; ++i) {
            g[i] = convert<G>(math::scaled_gradient<G>(convert<M>(g[i]), factor));
          }
        },
        begin, end);
  });
  if (found) *found_inf = 1.0f;
}

void multiply_gradients(const TensorList& grads, const double* factor) {
  const double coefficient = *factor;
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t) {
    using M = MathType<G>;
    const M rounded = static_cast<M>(coefficient);
    vectorized(
        [=](std::int64_t first, std::int64_t last) {
          for (std::int64_t i = first; i < last; ++i) {
            g[i] = convert<G>(math::scaled_gradient<G>(convert<M>(g[i]), rounded));
          }
        },
        begin, end);
  });
}

void clamp_gradients(const TensorList& grads, double limit) {
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t) {
    using M = MathType<G>;
    const M bound = static_cast<M>(limit);
    vectorized(
        [=](std::int64_t first, std::int64_t last) {
          for (std::int64_t i = first; i < last; ++i) g[i] = convert<G>(math::clamped(convert<M>(g[i]), bound));
        },
        begin, end);
  });
}

void clip_coefficient(Device, const double* norm, double max_norm, double* coefficient) {
  *coefficient = math::clip_coefficient(*norm, max_norm);
}

void update_scale(Device, const ScalerPointers& state, const float* found_inf, const math::ScalerOptions& options) {
  const math::ScalerState now{*state.scale, *state.inverse_scale, *state.growth_tracker, *state.skipped,
                              *state.skipped_in_a_row};
  const math::ScalerState next = math::updated(now, *found_inf != 0.0f, options);
  *state.scale = next.scale;
  *state.inverse_scale = next.inverse;
  *state.growth_tracker = next.growth_tracker;
  *state.skipped = next.skipped;
  *state.skipped_in_a_row = next.skipped_in_a_row;
}

}  // namespace fusegrad::kernels::cpu
