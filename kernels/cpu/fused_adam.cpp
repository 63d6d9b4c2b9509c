// Adam over all parameters on the CPU: a pass that reads the gradients, if something has to be known about them first,
// and a pass that updates.

#include <algorithm>
#include <cstddef>

#include <fusegrad/kernels/cpu/grad_check.h>
#include <fusegrad/kernels/fused_adam.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::parallel_for;
using fusegrad::cpu::vectorized;

namespace {

// A chunk is worked on in blocks that stay in the first-level cache: gradients are read and transformed, the formula
// runs over the math dtype, results are converted and stored. Each byte of the tensors is still touched once, and the
// formula is compiled once per math dtype instead of once per combination of dtypes.
constexpr std::int64_t kBlock = 1024;

template <class T>
struct Block {
  alignas(64) T grad[kBlock];
  alignas(64) T param[kBlock];
};

template <class T, class G>
void read_gradient(const G* grad, const math::GradFactors<MathType<G>>& factors, T* out, std::int64_t count) {
  vectorized(
      [=](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          out[i] = convert<T>(math::transformed_gradient<G>(grad[i], factors));
        }
      },
      0, count);
}

template <class To, class From>
void convert_all(const From* from, To* to, std::int64_t count) {
  vectorized(
      [=](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) to[i] = convert<To>(from[i]);
      },
      0, count);
}

template <class T, bool kAmsgrad, math::WeightDecay kDecay, bool kMaximize>
void update(T* p, const T* g, T* m, T* v, T* v_max, const math::AdamCoefficients<T>& coefficients, std::int64_t count) {
  vectorized(
      [=](std::int64_t first, std::int64_t last) {
#pragma GCC ivdep
        for (std::int64_t i = first; i < last; ++i) {
          T param = p[i];
          T first_moment = m[i];
          T second_moment = v[i];
          T maximum = kAmsgrad ? v_max[i] : T(0);
          math::adam_element<kAmsgrad>(param, g[i], first_moment, second_moment, maximum, coefficients, kDecay,
                                       kMaximize);
          p[i] = param;
          m[i] = first_moment;
          v[i] = second_moment;
          if constexpr (kAmsgrad) v_max[i] = maximum;
        }
      },
      0, count);
}

// Options that hold for a whole chunk become template arguments: GCC vectorises the loop only without their branches.
template <class T>
void update(T* p, const T* g, T* m, T* v, T* v_max, const math::AdamCoefficients<T>& c, const AdamTensor& tensor,
            std::int64_t count) {
  using math::WeightDecay;
  const auto choose_maximize = [&]<bool kAmsgrad, WeightDecay kDecay>() {
    tensor.maximize ? update<T, kAmsgrad, kDecay, true>(p, g, m, v, v_max, c, count)
                    : update<T, kAmsgrad, kDecay, false>(p, g, m, v, v_max, c, count);
  };
  const auto choose_amsgrad = [&]<WeightDecay kDecay>() {
    tensor.kind.amsgrad ? choose_maximize.template operator()<true, kDecay>()
                        : choose_maximize.template operator()<false, kDecay>();
  };
  switch (tensor.kind.decay) {
    case WeightDecay::none:
      return choose_amsgrad.template operator()<WeightDecay::none>();
    case WeightDecay::l2:
      return choose_amsgrad.template operator()<WeightDecay::l2>();
    case WeightDecay::decoupled:
      return choose_amsgrad.template operator()<WeightDecay::decoupled>();
  }
}

template <class P>
void update_chunk(const AdamTensor& tensor, const math::AdamCoefficients<MathType<P>>& coefficients,
                  const math::GradValues& grad, std::int64_t begin, std::int64_t end, Block<MathType<P>>& block) {
  using T = MathType<P>;
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t count = std::min(kBlock, end - at);
    visit_floating(tensor.kind.grad, "fused_adam", [&]<class G>(TypeTag<G>) {
      read_gradient(static_cast<const G*>(tensor.grad) + at, math::GradFactors<MathType<G>>(grad), block.grad, count);
    });
    P* stored = static_cast<P*>(tensor.param) + at;
    T* p = block.param;
    if constexpr (std::is_same_v<P, T>) {
      p = stored;
    } else {
      convert_all(stored, p, count);
    }
    T* m = static_cast<T*>(tensor.exp_avg) + at;
    T* v = static_cast<T*>(tensor.exp_avg_sq) + at;
    T* v_max = tensor.kind.amsgrad ? static_cast<T*>(tensor.max_exp_avg_sq) + at : nullptr;
    update(p, block.grad, m, v, v_max, coefficients, tensor, count);
    if constexpr (!std::is_same_v<P, T>) convert_all(p, stored, count);
    switch (tensor.kind.copy) {
      case CopyKind::none:
        break;
      case CopyKind::f16:
        convert_all(p, static_cast<Float16*>(tensor.copy) + at, count);
        break;
      case CopyKind::bf16:
        convert_all(p, static_cast<BFloat16*>(tensor.copy) + at, count);
        break;
    }
  }
}

// Calls `body(tensor, row, begin, end, chunk)` for every chunk of the table, over all cores.
template <class Body>
void for_each_chunk(const AdamTable& table, const Body& body) {
  const AdamTensor* tensors = table.tensors().data();
  const Piece* chunks = table.chunks().data();
  const std::int64_t count = table.chunks().size();
  parallel_for(count, chunk_grain(table.numel(), count), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      const AdamTensor& tensor = tensors[chunks[c].tensor];
      const std::int64_t begin = chunks[c].index * math::kChunk;
      body(tensor, chunks[c].tensor, begin, std::min(tensor.numel, begin + math::kChunk), c);
    }
  });
}

Findings find_in_gradients(const AdamTable& table, const GradCheck& check) {
  return find(check, table.chunks().size(), [&](const auto& body) {
    for_each_chunk(
        table, [&](const AdamTensor& tensor, std::uint32_t, std::int64_t begin, std::int64_t end, std::int64_t chunk) {
          visit_floating(tensor.kind.grad, "fused_adam",
                         [&]<class G>(TypeTag<G>) { body(static_cast<const G*>(tensor.grad), begin, end, chunk); });
        });
  });
}

void update_all(const FusedAdamArgs& args) {
  AdamTable& table = args.table;
  math::AdamPending* pending = table.pending();
  for (std::int64_t i = 0; i < table.tensors().size(); ++i) {
    const AdamTensor& tensor = table.tensors().data()[i];
    math::AdamClock& clock = args.clocks[tensor.clock];
    pending[i] = math::pending_step(clock, table.groups().data()[tensor.group]);
    clock = pending[i].clock;
  }
  const math::GradValues grad = math::read_values(args.grad);
  for_each_chunk(table,
                 [&](const AdamTensor& tensor, std::uint32_t row, std::int64_t begin, std::int64_t end, std::int64_t) {
                   visit_floating(tensor.kind.param, "fused_adam", [&]<class P>(TypeTag<P>) {
                     Block<MathType<P>> block;
                     update_chunk<P>(tensor, pending[row].coefficients<MathType<P>>(), grad, begin, end, block);
                   });
                 });
}

}  // namespace

void fused_adam(const FusedAdamArgs& args) {
  Findings findings;
  if (args.check.wanted()) {
    findings = find_in_gradients(args.table, args.check);
    publish(findings, args.check);
  }
  if (args.grad.found_inf == nullptr || *args.grad.found_inf == 0.0f) update_all(args);
  if (args.scale_update) move_scale(*args.scale_update, findings.nonfinite);
}

}  // namespace fusegrad::kernels::cpu
