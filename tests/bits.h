#pragma once
// Comparison of tensors by bits. NaNs count as equal to each other: their payloads are not promised.

#include <bit>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

/// The elements' bit patterns, NaNs made alike.
inline std::vector<std::uint64_t> bits_of(const Tensor& x) {
  std::vector<std::uint64_t> bits;
  if (!x.defined()) return bits;
  visit(x.dtype(), [&]<class T>(TypeTag<T>) {
    for (const T value : x.to_vector<T>()) {
      if constexpr (std::is_same_v<T, std::int64_t>) {
        bits.push_back(static_cast<std::uint64_t>(value));
      } else if constexpr (sizeof(T) == 2) {
        const auto wide = static_cast<float>(value);
        bits.push_back(wide != wide ? ~std::uint64_t{0} : value.bits);
      } else if constexpr (sizeof(T) == 4) {
        bits.push_back(value != value ? ~std::uint64_t{0} : std::bit_cast<std::uint32_t>(value));
      } else {
        bits.push_back(value != value ? ~std::uint64_t{0} : std::bit_cast<std::uint64_t>(value));
      }
    }
  });
  return bits;
}

/// Passes if shapes, dtypes and all bits are equal; says where the first difference is.
inline testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return testing::AssertionFailure() << "one of them is undefined";
  if (!a.defined()) return testing::AssertionSuccess();
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return testing::AssertionFailure() << a.shape().str() << " " << name(a.dtype()) << " against " << b.shape().str()
                                       << " " << name(b.dtype());
  }
  const std::vector<std::uint64_t> left = bits_of(a);
  const std::vector<std::uint64_t> right = bits_of(b);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i]) {
      return testing::AssertionFailure() << "element " << i << " of " << left.size() << ": " << a.to_vector<double>()[i]
                                         << " against " << b.to_vector<double>()[i] << std::hex << " (bits " << left[i]
                                         << " and " << right[i] << ")";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace fusegrad
