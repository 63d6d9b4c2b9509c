// Shapes count their elements without overflow and refuse what cannot be a size.

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/shape.h>

namespace fusegrad {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().dims(), 0);
  EXPECT_EQ(Shape({7}).numel(), 7);
  EXPECT_EQ(Shape({2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape({2, 0, 4}).numel(), 0);
  EXPECT_EQ(Shape({1, 1, 1, 1, 1, 1, 1, 2}).dims(), 8);
}

TEST(Shape, CountsUpToTheLargestIntegerAndNoFurther) {
  EXPECT_EQ(Shape({kMax}).numel(), kMax);
  EXPECT_EQ(Shape({1, kMax, 1}).numel(), kMax);
  const std::int64_t root = std::int64_t{1} << 32;
  EXPECT_EQ(Shape({root, root / 2 - 1}).numel(), root * (root / 2 - 1));
  EXPECT_THROW((Shape{root, root / 2}), ShapeError);
  EXPECT_THROW((Shape{kMax, 2}), ShapeError);
  EXPECT_THROW((Shape{root, root, root}), ShapeError);  // 2^96 wraps to 0
}

TEST(Shape, AnEmptyDimensionMakesHugeOthersHarmless) {
  EXPECT_EQ(Shape({kMax, kMax, 0}).numel(), 0);
  EXPECT_EQ(Shape({0, kMax, kMax}).numel(), 0);
}

TEST(Shape, RefusesNegativeSizesEvenBesideAnEmptyOne) {
  EXPECT_THROW((Shape{-1}), ShapeError);
  EXPECT_THROW((Shape{0, -1}), ShapeError);
  EXPECT_THROW((Shape{-2, -3}), ShapeError);
  EXPECT_THROW((Shape{std::numeric_limits<std::int64_t>::min()}), ShapeError);
}

TEST(Shape, RefusesNineSizes) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_THROW((void)Shape({1, 1, 1, 1, 1, 1, 1, 1}).append(1), ShapeError);
  EXPECT_THROW(Shape(std::span<const std::int64_t>(std::vector<std::int64_t>(1000, 1))), ShapeError);
}

TEST(Shape, NegativeDimensionsCountFromTheEnd) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_EQ(shape.wrap(-2), 1);
  EXPECT_THROW((void)shape[3], ShapeError);
  EXPECT_THROW((void)shape[-4], ShapeError);
  EXPECT_THROW((void)Shape()[0], ShapeError);
  EXPECT_THROW((void)Shape()[-1], ShapeError);
}

TEST(Shape, SlicesAndAppends) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.slice(1, 3), Shape({3, 5}));
  EXPECT_EQ(shape.slice(0, 0), Shape());
  EXPECT_EQ(shape.append(0), Shape({2, 3, 5, 0}));
}

TEST(Shape, EqualityComparesSizesAndTheirNumber) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({2}), Shape({2, 1}));
  EXPECT_NE(Shape({0, 1}), Shape({0, 2}));
  EXPECT_NE(Shape(), Shape({1}));
}

TEST(Shape, PrintsItsSizes) {
  EXPECT_EQ(Shape().str(), "[]");
  EXPECT_EQ(Shape({2, 3}).str(), "[2, 3]");
}

TEST(Broadcast, StretchesOnesAndAlignsAtTheEnd) {
  EXPECT_EQ(broadcast({2, 3}, {3}, "add"), Shape({2, 3}));
  EXPECT_EQ(broadcast({2, 1}, {1, 3}, "add"), Shape({2, 3}));
  EXPECT_EQ(broadcast({}, {4, 2}, "add"), Shape({4, 2}));
  EXPECT_EQ(broadcast({1}, {0}, "add"), Shape({0}));
}

TEST(Broadcast, RefusesOtherSizesInTheNameOfTheOperation) {
  EXPECT_THROW(broadcast({2, 3}, {2}, "add"), ShapeError);
  EXPECT_THROW(broadcast({0}, {2}, "add"), ShapeError);
  try {
    broadcast({2}, {3}, "mse_loss");
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_EQ(error.fault().op, "mse_loss");
    EXPECT_EQ(error.fault().got, "[2] and [3]");
  }
}

}  // namespace
}  // namespace fusegrad
