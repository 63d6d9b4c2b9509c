#include <fusegrad/kernels/cpu/grad_check.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::parallel_for;
using fusegrad::cpu::vectorized;

namespace {

// Calls `body(elements, begin, end, chunk)` for every chunk of the list, over all cores. `body` is generic in the
// element type.
template <class Body>
void for_each_chunk(const TensorList& list, const Body& body) {
  const ListedTensor* tensors = list.tensors().data();
  const Piece* chunks = list.chunks().data();
  const std::int64_t count = list.chunk_count();
  std::int64_t elements = 0;
  for (const ListedTensor& tensor : list.tensors().host()) elements += tensor.numel;
  parallel_for(count, chunk_grain(elements, count), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      const ListedTensor& tensor = tensors[chunks[c].tensor];
      const std::int64_t begin = chunks[c].index * math::kChunk;
      const std::int64_t end = std::min(tensor.numel, begin + math::kChunk);
      visit_floating(tensor.dtype, "gradients",
                     [&]<class G>(TypeTag<G>) { body(static_cast<G*>(tensor.data), begin, end, c); });
    }
  });
}

// Replaces every gradient by `change(gradient)`, which is generic in the math type.
template <class G, class Change>
void change_all(G* g, std::int64_t begin, std::int64_t end, const Change& change) {
  vectorized(
      [=](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) g[i] = change(g[i]);
      },
      begin, end);
}

}  // namespace

void check_gradients(TensorList& grads, const GradCheck& check) {
  if (!check.wanted()) return;
  publish(find(check, grads.chunk_count(), [&](const auto& body) { for_each_chunk(grads, body); }), check);
}

void unscale_gradients(TensorList& grads, const float* inverse_scale, float* found_inf) {
  const float inverse = *inverse_scale;
  std::atomic<bool> found{false};
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t) {
    using M = MathType<G>;
    if (any_nonfinite(g, begin, end, inverse)) found = true;
    const M factor = static_cast<M>(inverse);
    change_all(g, begin, end,
               [factor](G element) { return convert<G>(math::scaled_gradient<G>(convert<M>(element), factor)); });
  });
  *found_inf = found ? 1.0f : 0.0f;
}

void multiply_gradients(const TensorList& grads, const double* factor) {
  const double coefficient = *factor;
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t) {
    using M = MathType<G>;
    const M rounded = static_cast<M>(coefficient);
    change_all(g, begin, end,
               [rounded](G element) { return convert<G>(math::scaled_gradient<G>(convert<M>(element), rounded)); });
  });
}

void clamp_gradients(const TensorList& grads, double limit) {
  for_each_chunk(grads, [&]<class G>(G* g, std::int64_t begin, std::int64_t end, std::int64_t) {
    using M = MathType<G>;
    const M bound = static_cast<M>(limit);
    change_all(g, begin, end, [bound](G element) { return convert<G>(math::clamped(convert<M>(element), bound)); });
  });
}

void update_scale(const ScaleUpdate& update, const DeviceArray<const float*>& found_inf) {
  bool found = false;
  for (const float* flag : found_inf.host()) found = found || *flag != 0.0f;
  move_scale(update, found);
}

}  // namespace fusegrad::kernels::cpu
