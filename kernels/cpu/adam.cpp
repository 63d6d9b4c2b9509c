#include <algorithm>
#include <cstddef>

#include <fusegrad/kernels/adam.h>
#include <fusegrad/kernels/cpu/parallel.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::for_each_index;
using fusegrad::cpu::parallel_for;
using fusegrad::cpu::vectorized;

void adam_step(AdamStep step, const AdamStepArgs& args) {
  visit_math(args.out.dtype(), "adam_step", [&]<class T>(TypeTag<T>) {
    visit_adam_step(step, [&]<class Step>(Step) {
      const T* a = args.a.data<T>();
      const T* b = args.b.defined() ? args.b.data<T>() : a;
      const T* c = args.c.defined() ? args.c.data<T>() : a;
      T* out = args.out.data<T>();
      const T x = static_cast<T>(args.x);
      const T y = static_cast<T>(args.y);
      for_each_index(args.out.numel(), [=](std::int64_t i) { out[i] = Step::value(a[i], b[i], c[i], x, y); });
    });
  });
}

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
void update(T* p, const T* g, T* m, T* v, T* v_max, const math::AdamCoefficients<T>& c, const math::AdamGroup& group,
            std::int64_t count) {
  using math::WeightDecay;
  const auto choose_maximize = [&]<bool kAmsgrad, WeightDecay kDecay>() {
    group.maximize != 0 ? update<T, kAmsgrad, kDecay, true>(p, g, m, v, v_max, c, count)
                        : update<T, kAmsgrad, kDecay, false>(p, g, m, v, v_max, c, count);
  };
  const auto choose_amsgrad = [&]<WeightDecay kDecay>() {
    v_max != nullptr ? choose_maximize.template operator()<true, kDecay>()
                     : choose_maximize.template operator()<false, kDecay>();
  };
  switch (group.decay) {
    case WeightDecay::none:
      return choose_amsgrad.template operator()<WeightDecay::none>();
    case WeightDecay::l2:
      return choose_amsgrad.template operator()<WeightDecay::l2>();
    case WeightDecay::decoupled:
      return choose_amsgrad.template operator()<WeightDecay::decoupled>();
  }
}

template <class P>
void update_chunk(const AdamTensor& tensor, const math::AdamGroup& group,
                  const math::AdamCoefficients<double>& coefficients, const math::GradScalars& scalars,
                  std::int64_t begin, std::int64_t end, Block<MathType<P>>& block) {
  using T = MathType<P>;
  const math::AdamCoefficients<T> c = math::rounded<T>(coefficients);
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t count = std::min(kBlock, end - at);
    visit_floating(tensor.grad_dtype, "fused_adam", [&]<class G>(TypeTag<G>) {
      read_gradient(static_cast<const G*>(tensor.grad) + at, math::read_factors<MathType<G>>(scalars), block.grad,
                    count);
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
    T* v_max = tensor.max_exp_avg_sq == nullptr ? nullptr : static_cast<T*>(tensor.max_exp_avg_sq) + at;
    update(p, block.grad, m, v, v_max, c, group, count);
    if constexpr (!std::is_same_v<P, T>) convert_all(p, stored, count);
    if (tensor.copy != nullptr) {
      visit_floating(tensor.copy_dtype, "fused_adam",
                     [&]<class C>(TypeTag<C>) { convert_all(p, static_cast<C*>(tensor.copy) + at, count); });
    }
  }
}

}  // namespace

void fused_adam(const FusedAdamArgs& args) {
  if (args.grad.found_inf != nullptr && *args.grad.found_inf != 0.0f) return;
  const AdamTensor* tensors = args.tensors.data();
  const math::AdamGroup* groups = args.groups.data();
  for (std::int64_t i = 0; i < args.tensors.size(); ++i) {
    const math::AdamGroup& group = groups[tensors[i].group];
    math::AdamClock& clock = args.clocks[tensors[i].clock];
    clock = math::advanced(clock, group);
    args.coefficients[i] = math::adam_coefficients(group, clock);
  }
  const Chunk* chunks = args.chunks.data();
  // A chunk of Adam is worth a thread only if it is full; count elements, not chunks, for small models.
  std::int64_t elements = 0;
  for (std::int64_t i = 0; i < args.tensors.size(); ++i) elements += tensors[i].numel;
  const std::int64_t grain = elements < fusegrad::cpu::kGrain ? args.chunks.size() : 1;
  parallel_for(args.chunks.size(), std::max<std::int64_t>(1, grain), [&](std::int64_t first, std::int64_t last) {
    Block<float> block;
    Block<double> block_f64;
    for (std::int64_t i = first; i < last; ++i) {
      const AdamTensor& tensor = tensors[chunks[i].tensor];
      const math::AdamGroup& group = groups[tensor.group];
      const math::AdamCoefficients<double>& coefficients = args.coefficients[chunks[i].tensor];
      const std::int64_t begin = chunks[i].begin;
      const std::int64_t end = std::min(tensor.numel, begin + math::kChunk);
      visit_floating(tensor.param_dtype, "fused_adam", [&]<class P>(TypeTag<P>) {
        if constexpr (std::is_same_v<P, double>) {
          update_chunk<P>(tensor, group, coefficients, args.grad, begin, end, block_f64);
        } else {
          update_chunk<P>(tensor, group, coefficients, args.grad, begin, end, block);
        }
      });
    }
  });
}

}  // namespace fusegrad::kernels::cpu
