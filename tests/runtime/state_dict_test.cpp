// Numbers and tensors of a state come back with every bit, and text that is no number is refused.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/runtime/state_dict.h>
#include <fusegrad/tests/runtime/temporary_folder.h>

namespace fusegrad {
namespace {

TEST(StateDict, NumbersComeBackAsTheSameDoubles) {
  StateDict state;
  state.tensors["exp_avg"] = Tensor::empty({3}, DType::f32);
  std::ranges::copy(std::vector{1.0f, -0.0f, 1e-45f}, state.tensors["exp_avg"].span<float>().begin());
  const std::vector<double> numbers{0.0,
                                    -0.0,
                                    0.1,
                                    1e-3,
                                    65536.0,
                                    9007199254740992.0,
                                    std::numbers::pi,
                                    std::numeric_limits<double>::max(),
                                    -std::numeric_limits<double>::min(),
                                    std::numeric_limits<double>::denorm_min(),
                                    std::numeric_limits<double>::infinity(),
                                    -std::numeric_limits<double>::infinity()};
  for (std::size_t i = 0; i < numbers.size(); ++i) state.numbers[cat("n", i)] = numbers[i];
  state.numbers["nan"] = std::numeric_limits<double>::quiet_NaN();
  const TemporaryFolder folder;
  save(folder / "x", state);
  const StateDict back = load_state(folder / "x");
  ASSERT_EQ(back.numbers.size(), state.numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(back.numbers.at(cat("n", i))), std::bit_cast<std::uint64_t>(numbers[i]));
  }
  EXPECT_TRUE(std::isnan(back.numbers.at("nan")));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(back.tensors.at("exp_avg").span<float>()[i]),
              std::bit_cast<std::uint32_t>(state.tensors.at("exp_avg").span<float>()[i]));
  }
  EXPECT_EQ(load_safetensors(folder / "x").metadata.at("n2"), "0.1");
}

TEST(StateDict, RefusesMetadataThatIsNoNumberButSkipsTheFormatKey) {
  const TemporaryFolder folder;
  for (const char* text : {"", "x", "1x", " 1", "1 ", "0x10", "1e999", "1,5", "--1"}) {
    save_safetensors(folder / "x", {.tensors = {}, .metadata = {{"lr", text}}});
    EXPECT_THROW((void)load_state(folder / "x"), IOError) << text;
  }
  save_safetensors(folder / "x", {.tensors = {}, .metadata = {{"format", "pt"}, {"lr", "0.5"}}});
  EXPECT_EQ(load_state(folder / "x").numbers, (std::map<std::string, double>{{"lr", 0.5}}));
}

}  // namespace
}  // namespace fusegrad
