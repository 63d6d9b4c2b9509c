#pragma once
// Two copies of the same random parameters, for a fused optimizer and its unfused twin, fed with the same gradients.

#include <memory>
#include <random>

#include <gtest/gtest.h>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/autograd/ops.h>
#include <fusegrad/optim/adam.h>
#include <fusegrad/tests/bits.h>

namespace fusegrad {

/// Random values of very different sizes: x·2^e with e up to ±`spread`.
inline Tensor wild(const Shape& shape, std::mt19937& random, DType dtype, Device device, int spread = 8) {
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> exponent(-spread, spread);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& value : values) value = std::ldexp(normal(random), exponent(random));
  return to(tensor(std::span<const double>(values), shape, {.dtype = dtype}), device);
}

struct Twins {
  std::vector<Tensor> fused;
  std::vector<Tensor> unfused;

  Twins(std::span<const Shape> shapes, std::mt19937& random, DType dtype, Device device) {
    for (const Shape& shape : shapes) {
      const Tensor value = wild(shape, random, dtype, device, 2);
      fused.push_back(clone(value).requires_grad_());
      unfused.push_back(clone(value).requires_grad_());
    }
  }

  /// Gives both sides the same gradient for parameter `i`.
  void set_grad(std::size_t i, const Tensor& grad) {
    fused[i].set_grad(grad.defined() ? clone(grad) : grad);
    unfused[i].set_grad(grad.defined() ? clone(grad) : grad);
  }

  void expect_same(const std::string& where) const {
    for (std::size_t i = 0; i < fused.size(); ++i) {
      ASSERT_TRUE(same_bits(fused[i], unfused[i])) << where << ", parameter " << i;
    }
  }
};

/// Expects two optimizers' states to have the same bits, step counts included.
inline void expect_same_state(const StateDict& a, const StateDict& b, const std::string& where) {
  EXPECT_EQ(a.numbers, b.numbers) << where;
  ASSERT_EQ(a.tensors.size(), b.tensors.size()) << where;
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << where << ": " << name;
    ASSERT_TRUE(same_bits(tensor, b.tensors.at(name))) << where << ": " << name;
  }
}

}  // namespace fusegrad
