// Files round-trip bit for bit, and no file, however broken, does anything but load or throw IOError.

#include <bit>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/tests/device_test.h>
#include <fusegrad/tests/runtime/temporary_folder.h>

namespace fusegrad {
namespace {

// A tensor of random bytes: every bit pattern of its dtype may occur, NaNs among them.
Tensor random_bits(const Shape& shape, DType dtype, Device device = kCPU) {
  std::mt19937 random(7);
  Tensor host = Tensor::empty(shape, dtype);
  std::string bytes(host.bytes(), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  Tensor tensor = Tensor::empty(shape, dtype, device);
  copy_bytes(tensor.raw(), device, bytes.data(), kCPU, bytes.size());
  return tensor;
}

std::string bytes_of(const Tensor& tensor) {
  std::string bytes(tensor.bytes(), '\0');
  copy_bytes(bytes.data(), kCPU, tensor.raw(), tensor.device(), bytes.size());
  return bytes;
}

// The bytes of a file with this header text and this much data.
std::string file_bytes(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes.append(header).append(data_bytes, 'd');
}

std::string message_of(const std::filesystem::path& path) {
  try {
    (void)load_safetensors(path);
  } catch (const IOError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

class SafetensorsOnDevice : public DeviceTest {};

TEST_P(SafetensorsOnDevice, EveryDTypeRoundTripsBitForBit) {
  TensorFile file{.tensors = {}, .metadata = {{"who", "Zoë \"quoted\"\n"}, {"empty", ""}}};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64}) {
    const std::string prefix(name(dtype));
    file.tensors[prefix + ".matrix"] = random_bits({3, 5}, dtype, device());
    file.tensors[prefix + ".scalar"] = random_bits({}, dtype, device());
    file.tensors[prefix + ".empty"] = random_bits({4, 0, 2}, dtype, device());
    file.tensors[prefix + ".eight"] = random_bits({1, 2, 1, 2, 1, 2, 1, 3}, dtype, device());
  }
  const TemporaryFolder folder;
  save_safetensors(folder / "x.safetensors", file);
  const TensorFile back = load_safetensors(folder / "x.safetensors");
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    ASSERT_TRUE(back.tensors.contains(name)) << name;
    const Tensor& loaded = back.tensors.at(name);
    EXPECT_EQ(loaded.device(), kCPU);
    EXPECT_EQ(loaded.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(loaded.shape(), tensor.shape()) << name;
    EXPECT_EQ(bytes_of(loaded), bytes_of(tensor)) << name;
  }
}
FUSEGRAD_ON_EVERY_DEVICE(SafetensorsOnDevice);

TEST(Safetensors, ReadsAFileOfTheReferenceLibraryAndWritesItsVeryBytes) {
  const std::filesystem::path path = std::filesystem::path(FUSEGRAD_SOURCE_DIR) / "tests/data/seed_2809.safetensors";
  const TensorFile file = load_safetensors(path);
  ASSERT_EQ(file.tensors.size(), 4u);
  EXPECT_EQ(file.tensors.at("bias").shape(), Shape({10}));
  for (const char* matrix : {"data", "target", "weight"}) EXPECT_EQ(file.tensors.at(matrix).shape(), Shape({10, 10}));
  const auto first_bits = [&](const char* name) {
    return std::bit_cast<std::uint32_t>(file.tensors.at(name).span<float>().front());
  };
  EXPECT_EQ(first_bits("bias"), 0xbe188b07u);
  EXPECT_EQ(first_bits("data"), 0x3fd83671u);
  EXPECT_EQ(first_bits("target"), 0x3f0f7293u);
  EXPECT_EQ(first_bits("weight"), 0xbd3533e3u);
  const TemporaryFolder folder;
  save_safetensors(folder / "again", file);
  EXPECT_EQ(read_file(folder / "again"), read_file(path));
}

TEST(Safetensors, EveryTensorStartsAtAMultipleOfItsElementSize) {
  TensorFile file;
  file.tensors["a"] = random_bits({3}, DType::f16);
  file.tensors["b"] = random_bits({1}, DType::f64);
  file.tensors["c"] = random_bits({1}, DType::f32);
  file.tensors["d"] = random_bits({1}, DType::bf16);
  const TemporaryFolder folder;
  save_safetensors(folder / "x", file);
  const std::string bytes = read_file(folder / "x");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes.substr(8 + header), bytes_of(file.tensors["b"]) + bytes_of(file.tensors["c"]) +
                                          bytes_of(file.tensors["d"]) + bytes_of(file.tensors["a"]));
}

TEST(Safetensors, NoTensorsIsAFileToo) {
  const TemporaryFolder folder;
  save_safetensors(folder / "x", {});
  EXPECT_TRUE(load_safetensors(folder / "x").tensors.empty());
}

// --- Lies. -----------------------------------------------------------------------------------------------------------

struct Lie {
  const char* what;
  std::string header;
  std::size_t data_bytes;
  const char* said;  // part of the message
};

std::string f32_entry(const char* shape, const char* offsets) {
  return cat(R"({"dtype":"F32","shape":)", shape, R"(,"data_offsets":)", offsets, "}");
}
std::string one_tensor(const char* shape, const char* offsets) {
  return cat(R"({"x":)", f32_entry(shape, offsets), "}");
}
std::string two_tensors(const char* offsets_x, const char* offsets_y) {
  return cat(R"({"x":)", f32_entry("[1]", offsets_x), R"(,"y":)", f32_entry("[1]", offsets_y), "}");
}

std::vector<Lie> lies() {
  return {
      {"no JSON", "{not json}", 0, "no valid JSON"},
      {"cut JSON", R"({"x":{"dtype":"F32")", 0, "no valid JSON"},
      {"text after the object", "{} x", 0, "no valid JSON"},
      {"second object", "{}{}", 0, "no valid JSON"},
      {"zero byte, then more", std::string("{}\0{\"x\":1}", 10), 0, "plain JSON object"},
      {"byte order mark", "\xef\xbb\xbf{}", 0, "plain JSON object"},
      {"empty header", "", 0, "plain JSON object"},
      {"not UTF-8", "{\"\xff\":1}", 0, "no valid JSON"},
      {"list", "[]", 0, "plain JSON object"},
      {"number", "1", 0, "plain JSON object"},
      {"deep lists", R"({"x":)" + std::string(1'000'000, '['), 0, "a list under \"x\""},
      {"deep objects",
       [] {
         std::string text;
         for (int i = 0; i < 100'000; ++i) text += R"({"x":)";
         return text;
       }(),
       0, "the key \"x\""},
      {"entry is a number", R"({"x":1})", 0, "the number 1 under \"x\""},
      {"entry is null", R"({"x":null})", 0, "null under \"x\""},
      {"entry is empty", R"({"x":{}})", 0, "lacks a key"},
      {"no dtype", R"({"x":{"shape":[1],"data_offsets":[0,4]}})", 4, "lacks a key"},
      {"no shape", R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4, "lacks a key"},
      {"no offsets", R"({"x":{"dtype":"F32","shape":[1]}})", 4, "lacks a key"},
      {"unknown key", R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"stride":[1]}})", 4, "\"stride\""},
      {"unknown dtype", R"({"x":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "F33"},
      {"lower-case dtype", R"({"x":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "f32"},
      {"dtype we lack", R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4, "U8"},
      {"dtype is a number", R"({"x":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", 4, "want text"},
      {"dtype is a list", R"({"x":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, "want text"},
      {"shape is a number", R"({"x":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "whole numbers"},
      {"shape is an object", R"({"x":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", 4, "whole numbers"},
      {"negative size", one_tensor("[-1]", "[0,4]"), 4, "minus sign"},
      {"two negative sizes", one_tensor("[-1,-1]", "[0,4]"), 4, "minus sign"},
      {"fraction", one_tensor("[1.5]", "[0,4]"), 4, "1.5"},
      {"whole fraction", one_tensor("[1.0]", "[0,4]"), 4, "1.0"},
      {"exponent", one_tensor("[1e0]", "[0,4]"), 4, "1e0"},
      {"NaN", one_tensor("[NaN]", "[0,4]"), 4, "no valid JSON"},
      {"infinity", one_tensor("[1e999]", "[0,4]"), 4, "no valid JSON"},
      {"size as text", one_tensor(R"(["1"])", "[0,4]"), 4, "whole numbers"},
      {"size is a list", one_tensor("[[1]]", "[0,4]"), 4, "whole numbers"},
      {"size is true", one_tensor("[true]", "[0,4]"), 4, "whole numbers"},
      {"size 2^63", one_tensor("[9223372036854775808]", "[0,4]"), 4, "2^63"},
      {"size 2^64", one_tensor("[18446744073709551616]", "[0,4]"), 4, "whole numbers"},
      {"product 2^64", one_tensor("[4294967296,4294967296]", "[0,0]"), 0, "2^63"},
      {"bytes 2^64", one_tensor("[4611686018427387904]", "[0,0]"), 0, "2^64"},
      {"bytes 2^64 + 4", one_tensor("[4611686018427387905]", "[0,4]"), 4, "2^64"},
      {"nine sizes", one_tensor("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 8"},
      {"one offset", one_tensor("[1]", "[0]"), 4, "1 data_offsets"},
      {"three offsets", one_tensor("[1]", "[0,4,4]"), 4, "more than 2"},
      {"offsets reversed", one_tensor("[1]", "[4,0]"), 4, "[4, 0]"},
      {"offsets past the end", one_tensor("[2]", "[0,8]"), 4, "[0, 8]"},
      {"offset negative", one_tensor("[1]", "[-4,0]"), 4, "minus sign"},
      {"offset 2^64-1", one_tensor("[1]", "[0,18446744073709551615]"), 4, "18446744073709551615"},
      {"shape too small", one_tensor("[1]", "[0,8]"), 8, "4 bytes"},
      {"shape too large", one_tensor("[3]", "[0,8]"), 8, "12 bytes"},
      {"scalar with no bytes", one_tensor("[]", "[0,0]"), 0, "4 bytes"},
      {"empty with bytes", one_tensor("[0]", "[0,4]"), 4, "0 bytes"},
      {"does not start at 0", one_tensor("[1]", "[4,8]"), 8, "from byte 0"},
      {"empty one does not start at 0", one_tensor("[0]", "[4,4]"), 4, "from byte 0"},
      {"hole", two_tensors("[0,4]", "[8,12]"), 12, "from byte 4"},
      {"overlap", two_tensors("[0,4]", "[2,6]"), 6, "from byte 4"},
      {"same range twice", two_tensors("[0,4]", "[0,4]"), 4, "from byte 4"},
      {"trailing bytes", one_tensor("[1]", "[0,4]"), 5, "1 bytes after"},
      {"bytes without tensors", "{}", 1, "1 bytes after"},
      {"name twice", cat(R"({"x":)", f32_entry("[1]", "[0,4]"), R"(,"x":)", f32_entry("[1]", "[4,8]"), "}"), 8,
       "twice"},
      {"name twice, one escaped",
       cat(R"({"x":)", f32_entry("[1]", "[0,4]"), R"(,"\u0078":)", f32_entry("[1]", "[4,8]"), "}"), 8, "twice"},
      {"key twice", R"({"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
      {"metadata key twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "twice"},
      {"metadata is text", R"({"__metadata__":"x"})", 0, "__metadata__"},
      {"metadata is a list", R"({"__metadata__":[]})", 0, "__metadata__"},
      {"metadata holds a number", R"({"__metadata__":{"a":1}})", 0, "want text"},
      {"metadata holds an object", R"({"__metadata__":{"a":{}}})", 0, "want text"},
      {"metadata holds a list", R"({"__metadata__":{"a":["b"]}})", 0, "want text"},
      {"metadata holds null", R"({"__metadata__":{"a":null}})", 0, "want text"},
  };
}

TEST(Safetensors, RefusesEveryLieAndNamesTheFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "lie.safetensors";
  for (const Lie& lie : lies()) {
    write_file(path, file_bytes(lie.header, lie.data_bytes));
    const std::string message = message_of(path);
    EXPECT_NE(message.find(path.string()), std::string::npos) << lie.what << ": \"" << message << '"';
    EXPECT_NE(message.find(lie.said), std::string::npos) << lie.what << ": \"" << message << '"';
    EXPECT_LT(message.size(), 1000u) << lie.what;
  }
}

TEST(Safetensors, AcceptsTheTruthTheLiesWereMadeFrom) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "x";
  for (const auto& [header, data_bytes] : std::vector<std::pair<std::string, std::size_t>>{
           {one_tensor("[1]", "[0,4]"), 4},
           {one_tensor("[]", "[0,4]") + "    ", 4},
           {one_tensor("[0]", "[0,0]"), 0},
           {one_tensor("[4294967296,4294967296,0]", "[0,0]"), 0},
           {two_tensors("[4,8]", "[0,4]"), 8},
           {R"({"__metadata__":{"format":"pt"}})", 0},
           {R"({"":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}})", 4}}) {
    write_file(path, file_bytes(header, data_bytes));
    EXPECT_NO_THROW((void)load_safetensors(path)) << header;
  }
}

TEST(Safetensors, RefusesShortFilesAndHeadersThatLeaveTheFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "x";
  for (std::size_t bytes = 0; bytes < 8; ++bytes) {
    write_file(path, std::string(bytes, '\0'));
    EXPECT_NE(message_of(path).find("at least 8"), std::string::npos) << bytes;
  }
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{100'000'000}}) {
    std::string bytes = file_bytes("{}", 0);
    std::memcpy(bytes.data(), &length, sizeof length);
    write_file(path, bytes);
    EXPECT_NE(message_of(path).find("a header inside the file"), std::string::npos) << length;
  }
  for (const std::uint64_t length : {std::uint64_t{100'000'001}, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    std::string bytes = file_bytes("{}", 0);
    std::memcpy(bytes.data(), &length, sizeof length);
    write_file(path, bytes);
    EXPECT_NE(message_of(path).find("at most 100000000"), std::string::npos) << length;
  }
}

TEST(Safetensors, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  EXPECT_THROW((void)load_safetensors(folder.path()), IOError);
  EXPECT_THROW((void)load_safetensors(folder / "missing"), IOError);
  EXPECT_THROW((void)load_safetensors("/dev/zero"), IOError);
}

TEST(Safetensors, MutatedFilesLoadOrThrowIOErrorAndNothingElse) {
  TensorFile file{.tensors = {}, .metadata = {{"step", "12"}}};
  file.tensors["weight"] = random_bits({2, 3}, DType::f32);
  file.tensors["half"] = random_bits({5}, DType::f16);
  file.tensors["count"] = random_bits({}, DType::i64);
  file.tensors["none"] = random_bits({0, 3}, DType::bf16);
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "x";
  save_safetensors(path, file);
  const std::string whole = read_file(path);

  std::mt19937 random(2809);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random()) % limit; };
  const std::string telling = "{}[]\",:0123456789-.eE \\utnf";
  int loaded = 0;
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole;
    switch (round % 5) {
      case 0:  // one bit
        bytes[below(bytes.size())] ^= static_cast<char>(1u << below(8));
        break;
      case 1:  // a few bytes
        for (std::size_t n = 1 + below(4); n > 0; --n) bytes[below(bytes.size())] = static_cast<char>(random());
        break;
      case 2:  // cut off
        bytes.resize(below(bytes.size()));
        break;
      case 3:  // a character that means something to JSON
        bytes[8 + below(bytes.size() - 8)] = telling[below(telling.size())];
        break;
      default:  // a piece taken out or doubled, the header's length kept true
        const std::size_t at = 8 + below(bytes.size() - 8);
        const std::string piece = bytes.substr(at, 1 + below(12));
        below(2) == 0 ? bytes.erase(at, piece.size()) : bytes.insert(at, piece);
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.data(), sizeof length);
        if (at < 8 + length) length += bytes.size() - whole.size();
        std::memcpy(bytes.data(), &length, sizeof length);
    }
    write_file(path, bytes);
    try {
      (void)load_safetensors(path);
      ++loaded;
    } catch (const IOError&) {
      ++refused;
    }
  }
  // Flips in the data are no lie the format could notice; most others are.
  EXPECT_GT(loaded, 1'000);
  EXPECT_GT(refused, 10'000);
}

// --- Writing. --------------------------------------------------------------------------------------------------------

TEST(Safetensors, AFailedSaveLeavesTheOldFileAndNoOther) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "x";
  const TensorFile good{.tensors = {{"a", random_bits({2}, DType::f32)}}, .metadata = {}};
  save_safetensors(path, good);
  const std::string before = read_file(path);

  TensorFile bad = good;
  bad.tensors["undefined"] = Tensor();
  EXPECT_THROW(save_safetensors(path, bad), StateError);
  bad = good;
  bad.tensors["__metadata__"] = random_bits({2}, DType::f32);
  EXPECT_THROW(save_safetensors(path, bad), ValueError);
  bad = good;
  bad.tensors["\xff"] = random_bits({2}, DType::f32);
  EXPECT_THROW(save_safetensors(path, bad), ValueError);
  bad = good;
  bad.metadata["a"] = "\xc3";
  EXPECT_THROW(save_safetensors(path, bad), ValueError);

  EXPECT_EQ(read_file(path), before);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"x"});
}

TEST(Safetensors, SavingOverAFolderOrIntoNoneIsAnIOErrorAndLeavesNothingBehind) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "taken" / "inside");
  EXPECT_THROW(save_safetensors(folder / "taken", {}), IOError);
  EXPECT_THROW(save_safetensors(folder / "no" / "such", {}), IOError);
  EXPECT_THROW(save_safetensors("/dev/full/x", {}), IOError);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"taken"});
}

TEST(Safetensors, AFullDiskLeavesTheOldFileAndNoOther) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "x";
  save_safetensors(path, {.tensors = {}, .metadata = {{"old", "1"}}});
  const std::string before = read_file(path);
  // A limit on the size of files stands in for the full disk: the write stops half-way, with an error.
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 4096, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THROW(save_safetensors(path, {.tensors = {{"a", random_bits({4096}, DType::f32)}}, .metadata = {}}), IOError);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(read_file(path), before);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"x"});
}

TEST(Safetensors, TemporaryFilesLeftByAnInterruptedRunDoNotStopASave) {
  const TemporaryFolder folder;
  for (int count = 0; count < 100; ++count) write_file(folder / cat("x.tmp-", ::getpid(), "-", count), "left");
  save_safetensors(folder / "x", {});
  EXPECT_TRUE(load_safetensors(folder / "x").tensors.empty());
}

}  // namespace
}  // namespace fusegrad
