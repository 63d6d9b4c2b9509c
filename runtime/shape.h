#pragma once
// Sizes of a tensor: a small array without heap memory, so that making a tensor or launching a kernel copies it freely.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <fusegrad/runtime/error.h>

namespace fusegrad {

/// Up to eight sizes, outermost first. An empty shape is a scalar (one element).
class Shape {
 public:
  static constexpr int kMaxDims = 8;

  Shape() = default;
  /// Throws `ShapeError` for a negative size, more than eight of them, or a product beyond 2⁶³−1.
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes);

  [[nodiscard]] int dims() const { return dims_; }
  [[nodiscard]] std::int64_t numel() const { return numel_; }
  /// The size of dimension `dim`; negative ones count from the end. Throws `ShapeError` out of range.
  [[nodiscard]] std::int64_t operator[](int dim) const { return sizes_[static_cast<std::size_t>(wrap(dim))]; }
  /// `dim` with negative values counted from the end. Throws `ShapeError` out of range.
  [[nodiscard]] int wrap(int dim) const;

  [[nodiscard]] const std::int64_t* begin() const { return sizes_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return sizes_.data() + dims_; }
  [[nodiscard]] std::span<const std::int64_t> sizes() const { return {begin(), end()}; }

  /// The sizes from `first` on, up to and without `last`.
  [[nodiscard]] Shape slice(int first, int last) const;
  /// This shape with one more, innermost, size.
  [[nodiscard]] Shape append(std::int64_t size) const;

  /// "[2, 3]".
  [[nodiscard]] std::string str() const;

  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMaxDims> sizes_{};
  int dims_ = 0;
  std::int64_t numel_ = 1;
};

/// The shape that `a` and `b` broadcast to (sizes aligned at the end, 1 stretches). Throws `ShapeError` in the name of
/// `op` where two sizes differ and neither is 1.
Shape broadcast(const Shape& a, const Shape& b, std::string_view op);

}  // namespace fusegrad
