#include <algorithm>

#include <fusegrad/runtime/shape.h>

namespace fusegrad {

Shape::Shape(std::span<const std::int64_t> sizes) {
  if (sizes.size() > kMaxDims) {
    throw ShapeError({.op = "Shape", .got = cat(sizes.size(), " sizes"), .want = "at most 8", .way_out = ""});
  }
  bool empty = false;
  for (std::int64_t size : sizes) {
    if (size < 0) {
      throw ShapeError({.op = "Shape", .got = cat("size ", size), .want = "sizes of 0 or more", .way_out = ""});
    }
    sizes_[static_cast<std::size_t>(dims_++)] = size;
    empty = empty || size == 0;
  }
  if (empty) {
    numel_ = 0;
    return;
  }
  for (std::int64_t size : sizes) {
    if (__builtin_mul_overflow(numel_, size, &numel_)) {
      throw ShapeError({.op = "Shape", .got = str(), .want = "fewer than 2^63 elements", .way_out = ""});
    }
  }
}

int Shape::wrap(int dim) const {
  const int wrapped = dim < 0 ? dim + dims_ : dim;
  if (wrapped < 0 || wrapped >= dims_) {
    throw ShapeError({.op = "size",
                      .got = cat("dimension ", dim, " of shape ", str()),
                      .want = cat("a dimension from ", -dims_, " to ", dims_ - 1),
                      .way_out = ""});
  }
  return wrapped;
}

Shape Shape::slice(int first, int last) const { return Shape(std::span(begin() + first, begin() + last)); }

Shape Shape::append(std::int64_t size) const {
  std::array<std::int64_t, kMaxDims + 1> sizes{};
  std::copy(begin(), end(), sizes.begin());
  sizes[static_cast<std::size_t>(dims_)] = size;
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(dims_) + 1));
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < dims_; ++i) text += cat(i == 0 ? "" : ", ", sizes_[static_cast<std::size_t>(i)]);
  return text + "]";
}

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

Shape broadcast(const Shape& a, const Shape& b, std::string_view op) {
  const int dims = std::max(a.dims(), b.dims());
  std::array<std::int64_t, Shape::kMaxDims> sizes{};
  for (int back = 1; back <= dims; ++back) {
    const std::int64_t in_a = back <= a.dims() ? a[-back] : 1;
    const std::int64_t in_b = back <= b.dims() ? b[-back] : 1;
    if (in_a != in_b && in_a != 1 && in_b != 1) {
      throw ShapeError({.op = std::string(op),
                        .got = cat(a.str(), " and ", b.str()),
                        .want = "sizes that are equal or 1, counted from the last dimension",
                        .way_out = ""});
    }
    sizes[static_cast<std::size_t>(dims - back)] = in_a == 1 ? in_b : in_a;
  }
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(dims)));
}

}  // namespace fusegrad
