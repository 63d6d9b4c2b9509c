#pragma once
// The sizes of the models that the optimizer benchmarks run over.

#include <cstdint>
#include <string>
#include <vector>

namespace fusegrad::bench {

/// Sizes of one model's parameters.
struct ParameterSet {
  std::string name;
  std::vector<std::int64_t> sizes;
  int phases;  ///< queued between two events
};

/// The 148 tensors of GPT-2 124M.
inline std::vector<std::int64_t> gpt2_sizes() {
  constexpr std::int64_t kWidth = 768;
  std::vector<std::int64_t> sizes{50257 * kWidth, 1024 * kWidth};
  for (int layer = 0; layer < 12; ++layer) {
    for (const std::int64_t size : {kWidth, kWidth, 3 * kWidth * kWidth, 3 * kWidth, kWidth * kWidth, kWidth, kWidth,
                                    kWidth, 4 * kWidth * kWidth, 4 * kWidth, 4 * kWidth * kWidth, kWidth}) {
      sizes.push_back(size);
    }
  }
  sizes.insert(sizes.end(), {kWidth, kWidth});
  return sizes;
}

}  // namespace fusegrad::bench
