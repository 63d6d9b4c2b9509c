#pragma once
// Element types, what the compiler knows of them, and how a run-time dtype selects a template.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fusegrad/runtime/error.h>
#include <fusegrad/runtime/half.h>

namespace fusegrad {

enum class DType : std::uint8_t { f16, bf16, f32, f64, i64 };

/// "f16", "bf16", "f32", "f64" or "i64".
std::string_view name(DType dtype);

/// The dtype of that name. Throws `DTypeError` for any other text.
DType parse_dtype(std::string_view text);

/// Bytes of one element.
constexpr std::size_t element_size(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) { return dtype != DType::i64; }
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// The dtype that arithmetic on `dtype` is carried out in: f32 for the 16-bit types, else the dtype itself.
constexpr DType math_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

/// The narrowest dtype that holds both: any floating type over i64, the wider of two, f32 for f16 with bf16.
constexpr DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::i64) return b;
  if (b == DType::i64) return a;
  if (a == DType::f64 || b == DType::f64) return DType::f64;
  return DType::f32;
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::f16> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::i64> {};

/// The dtype whose elements are of C++ type `T`.
template <class T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

/// The C++ type that arithmetic on `T` is carried out in: `float` for the 16-bit types, else `T`.
template <class T>
using MathType = std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

/// Carries a type into a generic lambda: `[&]<class T>(TypeTag<T>) { … }`.
template <class T>
struct TypeTag {
  using type = T;
};

/// Calls `body` with the tag of a floating `dtype`. Throws `DTypeError` in the name of `op` for i64.
template <class Body>
decltype(auto) visit_floating(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::f16:
      return std::forward<Body>(body)(TypeTag<Float16>{});
    case DType::bf16:
      return std::forward<Body>(body)(TypeTag<BFloat16>{});
    case DType::f32:
      return std::forward<Body>(body)(TypeTag<float>{});
    case DType::f64:
      return std::forward<Body>(body)(TypeTag<double>{});
    case DType::i64:
      break;
  }
  throw DTypeError({.op = std::string(op),
                    .got = std::string(name(dtype)),
                    .want = "a floating dtype: f16, bf16, f32 or f64",
                    .way_out = "Convert first: to(x, DType::f32)"});
}

/// Calls `body` with the tag of any `dtype`.
template <class Body>
decltype(auto) visit(DType dtype, Body&& body) {
  if (dtype == DType::i64) return std::forward<Body>(body)(TypeTag<std::int64_t>{});
  return visit_floating(dtype, "visit", std::forward<Body>(body));
}

/// Calls `body` with `TypeTag<float>` or, for f64, `TypeTag<double>`: the dtypes that arithmetic is carried out in.
template <class Body>
decltype(auto) visit_math(DType dtype, std::string_view op, Body&& body) {
  return visit_floating(dtype, op, [&]<class T>(TypeTag<T>) { return body(TypeTag<MathType<T>>{}); });
}

/// Converts one element between any two dtypes, rounding to nearest even where both are floating.
template <class To, class From>
FUSEGRAD_HD To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, std::int64_t> && sizeof(To) == 2) {
    return To(static_cast<double>(value));
  } else if constexpr (sizeof(From) == 2) {
    return convert<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace fusegrad
