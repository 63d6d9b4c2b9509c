// Law 5 against PyTorch itself: every tensor of a file that PyTorch drew, written by
// tests/data/make_random_reference.py, is drawn again and compared.

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include <fusegrad/kernels/random.h>
#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

// One tensor of the reference file: how it was drawn.
struct Entry {
  std::map<std::string, std::string> fields;

  explicit Entry(const std::string& text) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, '|');) {
      const std::size_t equals = part.find('=');
      fields[part.substr(0, equals)] = part.substr(equals + 1);
    }
  }
  [[nodiscard]] std::int64_t integer(const std::string& key) const { return std::stoll(fields.at(key)); }
  [[nodiscard]] double real(const std::string& key) const { return std::stod(fields.at(key)); }
  [[nodiscard]] DType dtype() const { return parse_dtype(fields.at("dtype")); }
  [[nodiscard]] std::int64_t begin() const { return std::stoll(fields.at("slice")); }
  [[nodiscard]] bool is_normal() const { return fields.at("fn") == "normal"; }
  /// All but the slice: entries that agree in it are parts of one draw.
  [[nodiscard]] bool same_draw(const Entry& other) const {
    std::map<std::string, std::string> a = fields;
    a["slice"] = other.fields.at("slice");
    return a == other.fields;
  }
};

template <class Generator>
Tensor draw(const Entry& entry, Generator generator, Device device) {
  const Tensor y = Tensor::empty({entry.integer("n")}, entry.dtype(), device);
  for (std::int64_t call = 0; call < entry.integer("call"); ++call) {
    if (entry.is_normal()) {
      kernels::normal(y, entry.real("a"), entry.real("b"), generator);
    } else {
      kernels::uniform(y, entry.real("a"), entry.real("b"), generator);
    }
  }
  return y;
}

// How far our number may lie from PyTorch's: `absolute` times the standard deviation and `relative`.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

Tolerance tolerance(const Entry& entry, Device device) {
  if (!entry.is_normal()) return {};
  const DType dtype = entry.dtype();
  const double half_unit = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  if (entry.fields.at("device") == "cpu") {
    if (dtype == DType::f32 && entry.integer("n") >= 16) return {};
    // The C library's log, sine and cosine may round differently from those of the machine that drew the file. In 16
    // bits each operation rounds, so that a number at a tie moves the result by a few units in the last place.
    if (dtype == DType::f32) return {2e-7, 2e-7};
    if (dtype == DType::f64) return {1e-14, 1e-14};
    return {8 * half_unit, 4 * half_unit};
  }
  // A f64 logarithm compiled without contraction, as ours is, differs from PyTorch's in its last bits; sines on the CPU
  // are taken of a rounded multiple of π.
  if (dtype == DType::f64) return {1e-14, 1e-14};
  if (device.is_cuda()) return {};
  // A GPU's fast sine and cosine err by 2^-21.4 within ±π and more beyond. 16-bit numbers are the f32 ones, rounded
  // once: a number at a tie goes to its neighbour.
  if (dtype == DType::f32) return {1e-5, 2e-6};
  return {1e-5, 2 * half_unit};
}

// Tensors of more elements, which take gigabytes, are drawn on a GPU only.
constexpr std::int64_t kMostOnTheCpu = std::int64_t{1} << 24;

class PyTorchReference : public DeviceTest {
 protected:
  // Compares all tensors drawn by `generator_device` with `fn`.
  static void compare(const std::string& generator_device, const std::string& fn) {
    const std::filesystem::path path =
        std::filesystem::path(FUSEGRAD_SOURCE_DIR) / "tests/data/random_reference.safetensors";
    ASSERT_TRUE(std::filesystem::exists(path)) << path << " is missing; tests/data/make_random_reference.py writes it";
    const TensorFile file = load_safetensors(path);
    const auto blocks = file.metadata.find("max_blocks");
    ASSERT_NE(blocks, file.metadata.end()) << path << " was drawn without a GPU";
    const std::int64_t max_blocks = std::stoll(blocks->second);

    int compared = 0;
    std::optional<Entry> last;
    Tensor drawn;
    for (const auto& [text, expected] : file.tensors) {
      const Entry entry(text);
      if (entry.fields.at("device") != generator_device || entry.fields.at("fn") != fn) continue;
      if (device().is_cpu() && entry.integer("n") > kMostOnTheCpu) continue;
      if (!last || !last->same_draw(entry)) {
        const auto seed = static_cast<std::uint64_t>(entry.integer("seed"));
        drawn = (generator_device == "cpu" ? draw(entry, CpuGenerator(seed), device())
                                           : draw(entry, CudaGenerator(seed, {.max_blocks = max_blocks}), device()));
        last = entry;
      }
      expect_close(entry, drawn, expected, text);
      if (HasFatalFailure()) return;
      ++compared;
    }
    EXPECT_GE(compared, 100) << "a file with less is not the whole reference";
  }

 private:
  static void expect_close(const Entry& entry, const Tensor& drawn, const Tensor& expected, const std::string& text) {
    const Tolerance allowed = tolerance(entry, device());
    const double std = entry.is_normal() ? entry.real("b") : 1;
    const std::vector<double> got = drawn.alias(expected.shape(), entry.begin()).to_vector<double>();
    const std::vector<double> want = expected.to_vector<double>();
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_LE(std::fabs(got[i] - want[i]), allowed.absolute * std + allowed.relative * std::fabs(want[i]))
          << text << ", element " << i << " of the slice: got " << got[i] << ", PyTorch has " << want[i];
    }
  }
};
FUSEGRAD_ON_EVERY_DEVICE(PyTorchReference);

TEST_P(PyTorchReference, CpuUniformsAreEqualBitForBit) { compare("cpu", "uniform"); }
TEST_P(PyTorchReference, CpuNormalsAreEqual) { compare("cpu", "normal"); }
TEST_P(PyTorchReference, CudaUniformsAreEqualBitForBit) { compare("cuda", "uniform"); }
TEST_P(PyTorchReference, CudaNormalsAreEqualOnAGpuAndCloseOnTheCpu) { compare("cuda", "normal"); }

}  // namespace
}  // namespace fusegrad
