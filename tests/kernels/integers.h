#pragma once
// Tensors of random small integers. Their sums and products are exact in any order, so that results compare without a
// tolerance.

#include <random>
#include <span>
#include <vector>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>

namespace fusegrad {

/// Elements drawn evenly from −most … most.
inline Tensor random_integers(const Shape& shape, DType dtype, Device device, int most, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> value(-most, most);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values) v = value(random);
  return to(tensor(std::span<const double>(values), shape, {.dtype = dtype}), device);
}

}  // namespace fusegrad
