// Law 5: the same seed gives the same numbers, PyTorch's, on every device and with any number of threads. Compared are
// numbers that PyTorch's documentation prints; random_reference_test.cpp compares many more.

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <omp.h>

#include <fusegrad/kernels/random.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

constexpr std::int64_t kH200Blocks = 1056;

CudaGenerator h200_generator(std::uint64_t seed) { return CudaGenerator(seed, {.max_blocks = kH200Blocks}); }

template <class Generator>
Tensor draw_uniform(std::int64_t count, Generator& generator, DType dtype = DType::f32, Device device = kCPU,
                    double from = 0, double to = 1) {
  const Tensor y = Tensor::empty({count}, dtype, device);
  kernels::uniform(y, from, to, generator);
  return y;
}

template <class Generator>
Tensor draw_normal(std::int64_t count, Generator& generator, DType dtype = DType::f32, Device device = kCPU,
                   double mean = 0, double std = 1) {
  const Tensor y = Tensor::empty({count}, dtype, device);
  kernels::normal(y, mean, std, generator);
  return y;
}

template <class Generator>
std::vector<double> rand(std::int64_t count, Generator generator) {
  return draw_uniform(count, generator).template to_vector<double>();
}

template <class Generator>
std::vector<double> randn(std::int64_t count, Generator generator) {
  return draw_normal(count, generator).template to_vector<double>();
}

// The printed numbers have four decimals.
void expect_prints(const std::vector<double>& got, const std::vector<double>& printed) {
  ASSERT_GE(got.size(), printed.size());
  for (std::size_t i = 0; i < printed.size(); ++i) EXPECT_NEAR(got[i], printed[i], 5.1e-5) << "element " << i;
}

// Equal to the bit, the sign of zero included.
void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> left = a.to_vector<double>();
  const std::vector<double> right = b.to_vector<double>();
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(left[i]), std::bit_cast<std::uint64_t>(right[i]))
        << "element " << i << ": " << left[i] << " and " << right[i];
  }
}

// Published numbers. ------------------------------------------------------------------------------------------------

TEST(CpuRandom, DrawsThePublishedUniforms) {
  expect_prints(rand(10, CpuGenerator(0)), {.4963, .7682, .0885, .1320, .3074, .6341, .4901, .8964, .4556, .6323});
  expect_prints(rand(8, CpuGenerator(42)), {.8823, .9150, .3829, .9593, .3904, .6009, .2566, .7936});
}

TEST(CpuRandom, DrawsThePublishedNormalsBelowSixteen) {
  expect_prints(randn(10, CpuGenerator(0)),
                {1.5410, -.2934, -2.1788, .5684, -1.0845, -1.3986, .4033, .8380, -.7193, -.4033});
  expect_prints(randn(10, CpuGenerator(42)),
                {.3367, .1288, .2345, .2303, -1.1229, -.1863, 2.2082, -.6380, .4617, .2674});
}

TEST(CpuRandom, DrawsThePublishedNormalsFromSixteenOn) {
  expect_prints(randn(16, CpuGenerator(0)), {-1.1258, -1.1524, -.2506, -.4339, .8487, .6920, -.3160, -2.1152, .3223,
                                             -1.2633, .3500, .3081, .1198, 1.2377, 1.1168, -.2473});
  expect_prints(randn(16, CpuGenerator(42)), {1.9269, 1.4873, .9007, -2.1055, .6784, -1.2345, -.0431, -1.6047, -.7521,
                                              1.6487, -.3925, -1.4036, -.7279, -.5594, -.7688, .7624});
}

TEST(CpuRandom, DrawsTheLastSixteenAnewWhereBlocksDoNotFill) {
  expect_prints(randn(20, CpuGenerator(0)), {-1.1258, -1.1524, -.2506, -.4339, .5988, -1.5551});
}

TEST(CudaRandom, DrawsThePublishedUniforms) {
  expect_prints(rand(8, h200_generator(0)), {.3990, .5167, .0249, .9401, .9459, .7967, .4150, .8203});
  expect_prints(rand(6, h200_generator(42)), {.6130, .0101, .3984, .0403, .1563, .4825});
}

TEST(CudaRandom, DrawsThePublishedNormals) {
  expect_prints(randn(10, h200_generator(0)),
                {-.9247, -.4253, -2.6438, .1452, -.1209, -.5797, -.6229, -.3284, -1.0745, -.3631});
  expect_prints(randn(10, h200_generator(42)),
                {.1940, 2.1614, -.1721, .8491, -1.9244, .6530, -.6494, -.8175, .5280, -1.2753});
}

// The known answers of Philox4x32-10's authors (Random123, kat_vectors).
TEST(Philox, GivesItsAuthorsKnownAnswers) {
  const auto expect_words = [](const math::PhiloxWords& got, const math::PhiloxWords& want) {
    EXPECT_EQ(got.x, want.x);
    EXPECT_EQ(got.y, want.y);
    EXPECT_EQ(got.z, want.z);
    EXPECT_EQ(got.w, want.w);
  };
  expect_words(math::philox(0, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  expect_words(math::philox(kOnes, kOnes, kOnes), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(math::philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

// The 10000th number of the default seed, as the C++ standard states it for std::mt19937.
TEST(CpuGeneratorTest, IsTheStandardsMersenneTwister) {
  CpuGenerator generator(5489);
  for (int i = 0; i < 9999; ++i) generator.random();
  EXPECT_EQ(generator.random(), 4123659995u);
}

TEST(PolynomialLogAndSine, StayCloseToTheExactOnes) {
  // 1.2e-7 is one unit in the last place of 1; the logarithm is measured against its own size.
  for (std::uint32_t i = 1; i < (1u << 24); i += 1237) {
    const float x = static_cast<float>(i) * 0x1p-24f;
    const double log = std::log(static_cast<double>(x));
    ASSERT_NEAR(math::polynomial_log(x), log, 1.2e-7 * std::max(1e-3, std::fabs(log))) << x;
    const float angle = math::kTwoPiFloat * x;
    const math::SineCosine<float> pair = math::polynomial_sine_cosine(angle);
    ASSERT_NEAR(pair.sine, std::sin(static_cast<double>(angle)), 1.2e-7) << angle;
    ASSERT_NEAR(pair.cosine, std::cos(static_cast<double>(angle)), 1.2e-7) << angle;
  }
}

// Generators. -------------------------------------------------------------------------------------------------------

TEST(CpuGeneratorTest, UsesTheLowBitsOfTheSeed) {
  EXPECT_EQ(rand(20, CpuGenerator(7)), rand(20, CpuGenerator(7 + (std::uint64_t{1} << 40))));
  EXPECT_NE(rand(20, CpuGenerator(7)), rand(20, CpuGenerator(8)));
}

TEST(CudaGeneratorTest, UsesAllBitsOfTheSeed) {
  EXPECT_NE(rand(20, h200_generator(7)), rand(20, h200_generator(7 + (std::uint64_t{1} << 40))));
}

TEST(CpuGeneratorTest, KeepsTheSecondNormalForTheNextCall) {
  CpuGenerator generator(3);
  const double first = draw_normal(1, generator).item<double>();
  EXPECT_TRUE(generator.state().cached_normal.has_value());
  const double second = draw_normal(1, generator).item<double>();
  EXPECT_FALSE(generator.state().cached_normal.has_value());
  EXPECT_EQ((std::vector{first, second}), randn(2, CpuGenerator(3)));
}

TEST(CpuGeneratorTest, KeepsTheSecondNormalAcrossOtherDrawsAndAppliesTheNextCallsMeanAndStd) {
  CpuGenerator generator(3);
  draw_normal(1, generator);
  draw_uniform(5, generator);
  draw_normal(32, generator);
  const double kept = draw_normal(1, generator, DType::f64, kCPU, 10, 2).item<double>();
  const double plain = randn(2, CpuGenerator(3))[1];
  EXPECT_NEAR(kept, 10 + 2 * plain, 1e-6);  // `plain` went through f32
}

TEST(CpuGeneratorTest, SeedingForgetsTheSecondNormal) {
  CpuGenerator generator(3);
  draw_normal(1, generator);
  generator.manual_seed(3);
  EXPECT_EQ(generator, CpuGenerator(3));
}

TEST(CpuGeneratorTest, GoesOnFromASavedState) {
  CpuGenerator generator(11);
  draw_uniform(1000, generator);
  draw_normal(3, generator);
  const CpuGeneratorState saved = generator.state();
  const Tensor expected = draw_normal(40, generator);
  CpuGenerator other(99);
  EXPECT_NE(other.state(), saved);
  other.set_state(saved);
  EXPECT_EQ(other.seed(), 11u);
  expect_equal(draw_normal(40, other), expected);
  EXPECT_EQ(other, generator);
}

TEST(CpuGeneratorTest, RefusesAStateWithoutItsWords) {
  CpuGenerator generator(11);
  CpuGeneratorState state = generator.state();
  state.next = CpuGeneratorState::kWords + 1;
  state.seed = 12;
  EXPECT_THROW(generator.set_state(state), ValueError);
  EXPECT_EQ(generator, CpuGenerator(11));
}

TEST(CudaGeneratorTest, GoesOnFromASavedState) {
  CudaGenerator generator = h200_generator(11);
  draw_uniform(1000, generator);
  EXPECT_EQ(generator.offset(), 4u);
  const CudaGeneratorState saved = generator.state();
  const Tensor expected = draw_normal(40, generator);
  CudaGenerator other = h200_generator(99);
  other.set_state(saved);
  expect_equal(draw_normal(40, other), expected);
  EXPECT_EQ(other, generator);
}

TEST(CudaGeneratorTest, RefusesAnOffsetThatIsNoMultipleOfFour) {
  CudaGenerator generator = h200_generator(1);
  generator.set_offset(8);
  EXPECT_THROW(generator.set_offset(9), ValueError);
  EXPECT_THROW(generator.set_state({.seed = 2, .offset = 6}), ValueError);
  EXPECT_EQ(generator.offset(), 8u);
  EXPECT_EQ(generator.seed(), 1u);
}

TEST(CudaGeneratorTest, RefusesALaunchOfNoBlocksAndANegativeDevice) {
  EXPECT_THROW(CudaGenerator(1, {.max_blocks = 0}), ValueError);
  EXPECT_THROW(CudaGenerator(1, {.index = -1, .max_blocks = {}}), ValueError);
  EXPECT_THROW(default_cuda_generator(-1), ValueError);
}

TEST(CudaGeneratorTest, AdvancesFourNumbersARound) {
  CudaGenerator generator(1, {.max_blocks = 2});  // 512 threads, 2048 elements a round, 1024 in f64
  draw_uniform(0, generator);
  EXPECT_EQ(generator.offset(), 0u);
  draw_uniform(1, generator);
  EXPECT_EQ(generator.offset(), 4u);
  draw_uniform(2048, generator);
  EXPECT_EQ(generator.offset(), 8u);
  draw_normal(2049, generator, DType::f16);
  EXPECT_EQ(generator.offset(), 16u);
  draw_normal(1024, generator, DType::f64);
  EXPECT_EQ(generator.offset(), 20u);
  draw_uniform(1025, generator, DType::f64);
  EXPECT_EQ(generator.offset(), 28u);
}

// The numbers of element t + k·T + r·4T are those of thread t: number k of its draw r.
TEST(CudaGeneratorTest, SharesElementsAmongThreadsAsStated) {
  CudaGenerator generator(5, {.max_blocks = 1});
  generator.set_offset(12);
  const std::vector<float> drawn = draw_uniform(1500, generator).to_vector<float>();
  for (const std::size_t i : {0u, 255u, 256u, 700u, 1023u, 1024u, 1499u}) {
    const math::PhiloxWords words = math::philox(5, 12 / 4 + i / 1024, i % 256);
    const std::array<std::uint32_t, 4> all{words.x, words.y, words.z, words.w};
    EXPECT_EQ(drawn[i], math::unit_interval(all[i % 1024 / 256])) << "element " << i;
  }
}

TEST(ManualSeed, SeedsEveryDefaultGenerator) {
  CudaGenerator& made_before = default_cuda_generator(0);
  manual_seed(2809);
  EXPECT_EQ(default_cpu_generator(), CpuGenerator(2809));
  EXPECT_EQ(made_before, CudaGenerator(2809));
  EXPECT_EQ(default_cuda_generator(5).seed(), 2809u);
  draw_uniform(3, default_cpu_generator());
  draw_uniform(3, default_cuda_generator());
  EXPECT_EQ(default_cuda_generator(0).offset(), 4u);
  manual_seed(2809);
  EXPECT_EQ(default_cpu_generator(), CpuGenerator(2809));
  EXPECT_EQ(default_cuda_generator(0).offset(), 0u);
  EXPECT_EQ(&default_cuda_generator(0), &made_before);
}

// Draws. ------------------------------------------------------------------------------------------------------------

class RandomTest : public DeviceTest {};
FUSEGRAD_ON_EVERY_DEVICE(RandomTest);

TEST_P(RandomTest, NumbersDoNotDependOnTheNumberOfThreads) {
  const auto draw_all = [] {
    CpuGenerator cpu(1);
    CudaGenerator cuda = h200_generator(1);
    return std::vector{
        draw_normal(100'003, cpu, DType::f32, device()), draw_uniform(100'003, cpu, DType::f16, device()),
        draw_normal(400'001, cuda, DType::f32, device()), draw_uniform(400'001, cuda, DType::f64, device())};
  };
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<Tensor> alone = draw_all();
  omp_set_num_threads(7);
  const std::vector<Tensor> together = draw_all();
  omp_set_num_threads(threads);
  for (std::size_t i = 0; i < alone.size(); ++i) expect_equal(alone[i], together[i]);
}

TEST_P(RandomTest, TheDeviceOfTheTensorDoesNotChangeTheNumbers) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    CpuGenerator cpu(4);
    CpuGenerator cpu_again(4);
    expect_equal(draw_normal(100, cpu, dtype, device()), draw_normal(100, cpu_again, dtype));
    CudaGenerator cuda = h200_generator(4);
    CudaGenerator cuda_again = h200_generator(4);
    expect_equal(draw_uniform(1'300'000, cuda, dtype, device(), -2, 3),
                 draw_uniform(1'300'000, cuda_again, dtype, kCPU, -2, 3));
    EXPECT_EQ(cuda, cuda_again);
  }
}

TEST_P(RandomTest, UniformsStayInTheirRange) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    CudaGenerator cuda = h200_generator(6);
    for (const double x : draw_uniform(50'000, cuda, dtype, device(), -1, 1).to_vector<double>()) {
      ASSERT_GE(x, -1) << name(dtype);
      ASSERT_LT(x, 1) << name(dtype);
    }
    CpuGenerator cpu(6);
    for (const double x : draw_uniform(50'000, cpu, dtype, device(), 0, 1).to_vector<double>()) {
      ASSERT_GE(x, 0) << name(dtype);
      ASSERT_LT(x, 1) << name(dtype);
    }
  }
}

TEST_P(RandomTest, NormalsHaveTheirMeanAndSpread) {
  constexpr std::int64_t kCount = 400'000;
  const auto check = [](const Tensor& drawn) {
    double sum = 0;
    double squares = 0;
    for (const double x : drawn.to_vector<double>()) {
      sum += x;
      squares += (x - 3) * (x - 3);
    }
    // Six standard errors: 2/√n of the mean, 4·√(2/n) of the variance.
    EXPECT_NEAR(sum / kCount, 3, 6 * 2 / std::sqrt(kCount));
    EXPECT_NEAR(squares / kCount, 4, 6 * 4 * std::sqrt(2.0 / kCount));
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    CpuGenerator cpu(8);
    CudaGenerator cuda = h200_generator(8);
    check(draw_normal(kCount, cpu, dtype, device(), 3, 2));
    check(draw_normal(kCount, cuda, dtype, device(), 3, 2));
  }
}

TEST_P(RandomTest, EmptyTensorsTakeNothing) {
  CpuGenerator cpu(2);
  CudaGenerator cuda = h200_generator(2);
  draw_uniform(0, cpu, DType::f32, device());
  draw_normal(0, cpu, DType::f32, device());
  draw_uniform(0, cuda, DType::f32, device());
  draw_normal(0, cuda, DType::f32, device());
  EXPECT_EQ(cpu, CpuGenerator(2));
  EXPECT_EQ(cuda, h200_generator(2));
}

TEST_P(RandomTest, RefusedCallsChangeNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refuses = [&](auto generator) {
    const auto before = generator;
    const Tensor y = Tensor::empty({3}, DType::f16, device());
    zero_bytes(y.raw(), device(), y.bytes());
    EXPECT_THROW(kernels::uniform(y, 1, 0, generator), ValueError);
    EXPECT_THROW(kernels::uniform(y, nan, 1, generator), ValueError);
    EXPECT_THROW(kernels::uniform(y, 0, 1e6, generator), ValueError);           // 1e6 is infinite in f16
    EXPECT_THROW(kernels::uniform(y, -60'000, 60'000, generator), ValueError);  // and so is the difference
    EXPECT_THROW(kernels::normal(y, 0, -1, generator), ValueError);
    EXPECT_THROW(kernels::normal(y, 0, nan, generator), ValueError);
    const Tensor integers = Tensor::empty({3}, DType::i64, device());
    EXPECT_THROW(kernels::uniform(integers, 0, 1, generator), DTypeError);
    EXPECT_THROW(kernels::normal(integers, 0, 1, generator), DTypeError);
    EXPECT_EQ(generator, before);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 0, 0}));
  };
  refuses(CpuGenerator(2));
  refuses(h200_generator(2));
}

}  // namespace
}  // namespace fusegrad
