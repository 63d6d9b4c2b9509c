// The 16-bit types against a reference that shares nothing with them: values are decoded from the definition of the
// formats by ldexp, and rounding is a search for the nearest of all representable values.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/dtype.h>
#include <fusegrad/runtime/half.h>

namespace fusegrad {
namespace {

// What IEEE 754 says of a format: exponent and fraction bits.
struct Format {
  int exponent_bits;
  int fraction_bits;
};

template <class Half>
constexpr Format kFormat = std::is_same_v<Half, Float16> ? Format{5, 10} : Format{8, 7};

// The value of a non-negative finite pattern; for the first pattern that is not finite, the power of two that the
// format would go on with, which is what overflow is decided by.
template <class Half>
double decoded(std::uint32_t magnitude) {
  const auto [exponent_bits, fraction_bits] = kFormat<Half>;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(magnitude >> fraction_bits);
  const double fraction = std::ldexp(magnitude & ((1u << fraction_bits) - 1u), -fraction_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}

template <class Half>
constexpr std::uint32_t infinity_bits() {
  const auto [exponent_bits, fraction_bits] = kFormat<Half>;
  return ((1u << exponent_bits) - 1u) << fraction_bits;
}

// All values from 0 up, the one beyond the largest included: sorted, so that the nearest is found by bisection.
template <class Half>
const std::vector<double>& ladder() {
  static const std::vector<double> values = [] {
    std::vector<double> all;
    for (std::uint32_t bits = 0; bits <= infinity_bits<Half>(); ++bits) all.push_back(decoded<Half>(bits));
    return all;
  }();
  return values;
}

// Round to nearest, ties to the even pattern. The midpoint of two neighbours has at most 12 significant bits, so it is
// exact in double, and so is every comparison with it.
template <class Half>
std::uint32_t nearest_bits(double value) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const double magnitude = std::fabs(value);
  const std::vector<double>& steps = ladder<Half>();
  if (magnitude >= steps.back()) return sign | infinity_bits<Half>();
  const auto above = std::upper_bound(steps.begin(), steps.end(), magnitude);
  const std::uint32_t low = static_cast<std::uint32_t>(above - steps.begin()) - 1;
  const double middle = (steps[low] + steps[low + 1]) / 2;
  const bool up = magnitude > middle || (magnitude == middle && low % 2 == 1);
  return sign | (up ? low + 1 : low);
}

template <class Half>
bool is_nan_bits(std::uint32_t bits) {
  return (bits & 0x7fffu) > infinity_bits<Half>();
}

template <class Half>
class HalfTest : public testing::Test {};

struct HalfName {
  template <class Half>
  static std::string GetName(int) {
    return std::is_same_v<Half, Float16> ? "f16" : "bf16";
  }
};

using Halves = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Halves, HalfName);

TYPED_TEST(HalfTest, All65536PatternsHaveTheValueOfTheFormat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = static_cast<float>(TypeParam::from_bits(static_cast<std::uint16_t>(bits)));
    if (is_nan_bits<TypeParam>(bits)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if ((bits & 0x7fffu) == infinity_bits<TypeParam>()) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(std::fabs(value)), decoded<TypeParam>(bits & 0x7fffu)) << bits;
    }
    if (!std::isnan(value)) {
      ASSERT_EQ(std::signbit(value), bits >= 0x8000u) << bits;
    }
  }
}

TYPED_TEST(HalfTest, All65536PatternsComeBackFromFloatAndDouble) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const TypeParam half = TypeParam::from_bits(static_cast<std::uint16_t>(bits));
    const std::uint32_t through_float = TypeParam(static_cast<float>(half)).bits;
    const std::uint32_t through_double = TypeParam(static_cast<double>(half)).bits;
    if (is_nan_bits<TypeParam>(bits)) {
      ASSERT_TRUE(is_nan_bits<TypeParam>(through_float)) << bits;
      ASSERT_TRUE(is_nan_bits<TypeParam>(through_double)) << bits;
    } else {
      ASSERT_EQ(through_float, bits);
      ASSERT_EQ(through_double, bits);
    }
  }
}

// At each value, at each midpoint of two neighbours, and one float to either side of both.
TYPED_TEST(HalfTest, FloatsAtAndBesideEveryValueAndEveryTieRoundToNearestEven) {
  const std::vector<double>& steps = ladder<TypeParam>();
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    for (const double place : {steps[i], (steps[i] + steps[i + 1]) / 2}) {
      const float exact = static_cast<float>(place);
      ASSERT_EQ(static_cast<double>(exact), place);
      for (const float value : {exact, std::nextafter(exact, 0.0f), std::nextafter(exact, HUGE_VALF)}) {
        ASSERT_EQ(TypeParam(value).bits, nearest_bits<TypeParam>(value)) << value;
        ASSERT_EQ(TypeParam(-value).bits, nearest_bits<TypeParam>(-value)) << value;
      }
    }
  }
}

// Beside a tie lie doubles that round to the tie as floats: rounding twice would pick the wrong neighbour.
TYPED_TEST(HalfTest, DoublesBesideEveryTieAreRoundedOnce) {
  const std::vector<double>& steps = ladder<TypeParam>();
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const double tie = (steps[i] + steps[i + 1]) / 2;
    for (const double value : {tie, std::nextafter(tie, 0.0), std::nextafter(tie, HUGE_VAL), tie * (1 - 0x1p-26),
                               tie * (1 + 0x1p-26), tie * (1 - 0x1p-40), tie * (1 + 0x1p-40)}) {
      ASSERT_EQ(TypeParam(value).bits, nearest_bits<TypeParam>(value)) << value;
      ASSERT_EQ(TypeParam(-value).bits, nearest_bits<TypeParam>(-value)) << value;
    }
  }
}

TYPED_TEST(HalfTest, TenMillionRandomFloatsRoundToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000'000; ++i) {
    const std::uint32_t pattern = static_cast<std::uint32_t>(random());
    const float value = std::bit_cast<float>(pattern);
    const std::uint32_t bits = TypeParam(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(is_nan_bits<TypeParam>(bits)) << pattern;
    } else {
      ASSERT_EQ(bits, nearest_bits<TypeParam>(value)) << value;
    }
  }
}

// Random doubles over the exponents that matter; uniform patterns would nearly all overflow or vanish.
TYPED_TEST(HalfTest, TenMillionRandomDoublesRoundToNearestEven) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 10'000'000; ++i) {
    const double fraction = 1 + std::ldexp(static_cast<double>(random() >> 12), -52);
    const int exponent = static_cast<int>(random() % 300) - 160;
    const double value = std::ldexp(random() % 2 == 0 ? fraction : -fraction, exponent);
    ASSERT_EQ(TypeParam(value).bits, nearest_bits<TypeParam>(value)) << value;
  }
}

TYPED_TEST(HalfTest, ExtremeDoublesBecomeInfinityOrZeroOfTheirSign) {
  using Limits = std::numeric_limits<double>;
  const std::uint32_t infinity = infinity_bits<TypeParam>();
  EXPECT_EQ(TypeParam(Limits::max()).bits, infinity);
  EXPECT_EQ(TypeParam(-Limits::max()).bits, infinity | 0x8000u);
  EXPECT_EQ(TypeParam(Limits::infinity()).bits, infinity);
  EXPECT_EQ(TypeParam(-Limits::infinity()).bits, infinity | 0x8000u);
  EXPECT_EQ(TypeParam(Limits::denorm_min()).bits, 0u);
  EXPECT_EQ(TypeParam(-Limits::denorm_min()).bits, 0x8000u);
  EXPECT_EQ(TypeParam(-0.0).bits, 0x8000u);
  EXPECT_TRUE(is_nan_bits<TypeParam>(TypeParam(Limits::quiet_NaN()).bits));
  // Doubles next to the largest float, where the first of the two roundings meets its own overflow.
  const double largest_float = std::numeric_limits<float>::max();
  for (const double value : {largest_float, std::nextafter(largest_float, HUGE_VAL), largest_float * (1 + 0x1p-25)}) {
    EXPECT_EQ(TypeParam(value).bits, nearest_bits<TypeParam>(value)) << value;
  }
}

TYPED_TEST(HalfTest, EveryNaNStaysANaNAndBecomesQuiet) {
  const std::uint32_t quiet = 1u << (kFormat<TypeParam>.fraction_bits - 1);
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint32_t payload = 1; payload < (1u << 23); payload = payload * 2 + 1) {
      const std::uint32_t bits = TypeParam(std::bit_cast<float>(sign | 0x7f800000u | payload)).bits;
      EXPECT_TRUE(is_nan_bits<TypeParam>(bits)) << payload;
      EXPECT_NE(bits & quiet, 0u) << payload;
    }
    // A payload that lives only in the bits a half drops must not turn into infinity.
    EXPECT_TRUE(is_nan_bits<TypeParam>(TypeParam(std::bit_cast<float>(sign | 0x7f800001u)).bits));
  }
}

TEST(Float16, KnownValues) {
  EXPECT_EQ(Float16(1.0f).bits, 0x3c00u);
  EXPECT_EQ(Float16(65504.0f).bits, 0x7bffu);
  EXPECT_EQ(Float16(65519.0f).bits, 0x7bffu);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(Float16(0x1p-24f).bits, 0x0001u);
  EXPECT_EQ(Float16(0x1p-25f).bits, 0x0000u);
  EXPECT_EQ(Float16(0x1.000002p-25f).bits, 0x0001u);
  EXPECT_EQ(Float16(1e-8f).bits, 0x0000u);
}

TEST(BFloat16, KnownValues) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80u);
  EXPECT_EQ(BFloat16(3.14159274f).bits, 0x4049u);
  EXPECT_EQ(BFloat16(0x1.01p0f).bits, 0x3f80u);  // a tie, down to even
  EXPECT_EQ(BFloat16(0x1.03p0f).bits, 0x3f82u);  // a tie, up to even
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80u);
}

// On the way through a float these would be rounded twice. Up to 2^53 a double holds them.
TEST(Convert, IntegersBesideATieAreRoundedOnce) {
  EXPECT_EQ((convert<Float16>(std::int64_t{2049}).bits), Float16(2048.0f).bits);
  EXPECT_EQ((convert<Float16>(std::int64_t{2051}).bits), Float16(2052.0f).bits);
  const std::int64_t tie = (std::int64_t{1} << 40) + (std::int64_t{1} << 32);
  EXPECT_EQ((convert<BFloat16>(tie).bits), BFloat16(0x1p40f).bits);
  EXPECT_EQ((convert<BFloat16>(tie + 1).bits), BFloat16(0x1.02p40f).bits);
  EXPECT_EQ((convert<BFloat16>(tie - 1).bits), BFloat16(0x1p40f).bits);
}

}  // namespace
}  // namespace fusegrad
