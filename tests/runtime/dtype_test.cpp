// What the compiler and the run time know of element types agrees.

#include <array>
#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

#include <fusegrad/runtime/dtype.h>

namespace fusegrad {
namespace {

constexpr std::array kAll{DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64};

TEST(DTypeNames, ReadBackAsTheDTypeTheyName) {
  for (const DType dtype : kAll) EXPECT_EQ(parse_dtype(name(dtype)), dtype);
}

TEST(DTypeNames, RefuseEveryOtherText) {
  for (const char* text : {"", "F32", "float", "f32 ", "f8", "i32"})
    EXPECT_THROW(parse_dtype(text), DTypeError) << text;
}

TEST(Visit, HandsOverTheTypeOfTheDType) {
  for (const DType dtype : kAll) {
    visit(dtype, [&]<class T>(TypeTag<T>) {
      EXPECT_EQ(kDTypeOf<T>, dtype);
      EXPECT_EQ(sizeof(T), element_size(dtype));
    });
  }
}

TEST(VisitFloating, RefusesIntegersInTheNameOfTheOperation) {
  for (const DType dtype : kAll) {
    if (is_floating(dtype)) {
      visit_floating(dtype, "sqrt", [&]<class T>(TypeTag<T>) { EXPECT_EQ(kDTypeOf<T>, dtype); });
    }
  }
  try {
    visit_floating(DType::i64, "sqrt", []<class T>(TypeTag<T>) { FAIL() << "called for i64"; });
    FAIL() << "no error";
  } catch (const DTypeError& error) {
    EXPECT_EQ(error.fault().op, "sqrt");
    EXPECT_EQ(error.fault().got, "i64");
    EXPECT_NE(error.fault().way_out, "");
  }
}

TEST(VisitMath, ComputesHalvesInFloat) {
  for (const DType dtype : kAll) {
    if (!is_floating(dtype)) continue;
    visit_math(dtype, "test", [&]<class T>(TypeTag<T>) { EXPECT_EQ(kDTypeOf<T>, math_dtype(dtype)); });
  }
  EXPECT_EQ(math_dtype(DType::f16), DType::f32);
  EXPECT_EQ(math_dtype(DType::bf16), DType::f32);
  EXPECT_EQ(math_dtype(DType::f64), DType::f64);
}

TEST(Promote, IsCommutativeIdempotentAndAssociativeUpToFloat) {
  for (const DType a : kAll) {
    EXPECT_EQ(promote(a, a), a);
    for (const DType b : kAll) {
      EXPECT_EQ(promote(a, b), promote(b, a));
      for (const DType c : kAll) EXPECT_EQ(promote(promote(a, b), c), promote(a, promote(b, c)));
    }
  }
}

TEST(Promote, HoldsBothValues) {
  EXPECT_EQ(promote(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(promote(DType::f16, DType::f32), DType::f32);
  EXPECT_EQ(promote(DType::bf16, DType::f64), DType::f64);
  EXPECT_EQ(promote(DType::i64, DType::f16), DType::f16);
}

TEST(Convert, KeepsValuesThatBothTypesHold) {
  const auto through = []<class From, class To>(TypeTag<From>, TypeTag<To>) {
    for (const std::int64_t value : {-128, -1, 0, 1, 3, 255}) {
      const From from = convert<From>(value);
      EXPECT_EQ(convert<std::int64_t>(convert<To>(from)), value) << name(kDTypeOf<From>) << name(kDTypeOf<To>);
    }
  };
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      visit(from, [&](auto from_tag) { visit(to, [&](auto to_tag) { through(from_tag, to_tag); }); });
    }
  }
}

TEST(Convert, TruncatesToIntegers) {
  EXPECT_EQ(convert<std::int64_t>(2.9), 2);
  EXPECT_EQ(convert<std::int64_t>(-2.9f), -2);
  EXPECT_EQ(convert<std::int64_t>(Float16(-2.5f)), -2);
}

}  // namespace
}  // namespace fusegrad
