#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include <fusegrad/runtime/new_file.h>
#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/runtime/state_dict.h>

namespace fusegrad {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are its readers here");

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kDataAlignment = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view text;
};
// In the order in which the reference library writes them.
constexpr std::array kDTypeNames{DTypeName{DType::i64, "I64"}, DTypeName{DType::f64, "F64"},
                                 DTypeName{DType::f32, "F32"}, DTypeName{DType::bf16, "BF16"},
                                 DTypeName{DType::f16, "F16"}};

std::size_t rank_of(DType dtype) {
  const auto found = std::ranges::find(kDTypeNames, dtype, &DTypeName::dtype);
  return static_cast<std::size_t>(found - kDTypeNames.begin());
}

// A name from a file, short enough for a message.
std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 200;
  return text.size() <= kShown ? cat('"', text, '"') : cat('"', text.substr(0, kShown), "…\"");
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& got, const std::string& want) {
  throw IOError({.op = "load_safetensors", .got = cat(path.string(), ": ", got), .want = want, .way_out = ""});
}

// What the header says of one tensor, checked as far as one entry goes.
struct Entry {
  std::string name;
  std::optional<DType> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

// Takes the header as the parser meets it. No document is built, so neither depth nor length can exhaust memory, and a
// key that comes twice is seen. Every function returns true, "go on", or throws.
class HeaderReader {
 public:
  explicit HeaderReader(const std::filesystem::path& path) : path_(path) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(std::int64_t value) { return unexpected(cat("a number with a minus sign, ", value)); }
  bool number_float(double, const std::string& text) { return unexpected(cat("the number ", text)); }
  bool binary(nlohmann::json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ != Place::list) return unexpected(cat("the number ", value));
    if (list_.size() == list_limit_) fail(cat("more than ", list_limit_, " numbers"), "no more than that");
    list_.push_back(value);
    return true;
  }

  bool string(const std::string& text) {
    if (place_ == Place::metadata) {
      metadata_.emplace(key_, text);
      return true;
    }
    if (place_ != Place::entry || key_ != "dtype") return unexpected(cat("the text ", shown(text)));
    const auto found = std::ranges::find(kDTypeNames, text, &DTypeName::text);
    if (found == kDTypeNames.end()) fail(cat("dtype ", shown(text)), "F16, BF16, F32, F64 or I64");
    entry_.dtype = found->dtype;
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = key_ == kMetadataKey ? Place::metadata : Place::entry;
      entry_ = {.name = key_, .dtype = {}, .shape = {}, .offsets = {}};
      keys_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(const std::string& text) {
    std::set<std::string>& seen = place_ == Place::top ? names_ : keys_;
    if (!seen.insert(text).second) fail(cat("the key ", shown(text), " twice"), "each key once");
    if (place_ == Place::entry && text != "dtype" && text != "shape" && text != "data_offsets") {
      fail(cat("the key ", shown(text)), "dtype, shape and data_offsets only");
    }
    key_ = text;
    return true;
  }

  bool end_object() {
    if (place_ == Place::entry) {
      if (!entry_.dtype || !entry_.shape || !entry_.offsets) {
        fail("an entry that lacks a key", "dtype, shape and data_offsets");
      }
      entries_.push_back(std::move(entry_));
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::entry || key_ == "dtype") return unexpected("a list");
    place_ = Place::list;
    list_limit_ = key_ == "shape" ? Shape::kMaxDims : 2;
    list_.clear();
    return true;
  }

  bool end_array() {
    place_ = Place::entry;
    if (key_ == "shape") {
      entry_.shape = list_;
    } else {
      if (list_.size() != 2) fail(cat(list_.size(), " data_offsets"), "two: begin and end");
      entry_.offsets = list_;
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    refuse(path_, cat("a header that is no valid JSON at byte ", position), "JSON text in UTF-8");
  }

  std::vector<Entry> take_entries() { return std::move(entries_); }
  std::map<std::string, std::string> take_metadata() { return std::move(metadata_); }

 private:
  enum class Place { outside, top, metadata, entry, list };

  [[noreturn]] void fail(const std::string& got, const std::string& want) const {
    const std::string where = place_ == Place::entry || place_ == Place::list
                                  ? cat("tensor ", shown(entry_.name), ": ")
                                  : std::string(place_ == Place::metadata ? "__metadata__: " : "header: ");
    refuse(path_, cat(where, got), want);
  }

  // For a value of a kind that has no business at this place.
  bool unexpected(const std::string& got) const {
    const std::string under = place_ == Place::outside ? "" : cat(" under ", shown(key_));
    switch (place_) {
      case Place::outside:
      case Place::top:
        fail(got + under, "an object of objects");
      case Place::metadata:
        fail(got + under, "text");
      case Place::entry:
        fail(got + under, key_ == "dtype" ? "text" : "a list of whole numbers");
      case Place::list:
        fail(got + under, "whole numbers from 0 to 2^63-1");
    }
    return false;
  }

  const std::filesystem::path& path_;
  Place place_ = Place::outside;
  std::string key_;
  std::set<std::string> names_;
  std::set<std::string> keys_;
  Entry entry_;
  std::vector<std::uint64_t> list_;
  std::size_t list_limit_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

// The shape of an entry whose size equals its range. `data_bytes` is what the file holds behind its header.
Shape checked_shape(const std::filesystem::path& path, const Entry& entry, std::uint64_t data_bytes) {
  const std::string where = cat("tensor ", shown(entry.name), ": ");
  const std::uint64_t begin = entry.offsets->front();
  const std::uint64_t end = entry.offsets->back();
  const std::string range = cat("data_offsets [", begin, ", ", end, "]");
  if (begin > end || end > data_bytes) {
    refuse(path, where + range, cat("a range within ", data_bytes, " bytes of data"));
  }
  std::vector<std::int64_t> sizes;
  for (const std::uint64_t size : *entry.shape) {
    if (size > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      refuse(path, cat(where, "a size of ", size), "sizes below 2^63");
    }
    sizes.push_back(static_cast<std::int64_t>(size));
  }
  Shape shape;
  try {
    shape = Shape(std::span<const std::int64_t>(sizes));
  } catch (const ShapeError& error) {
    refuse(path, where + error.fault().got, error.fault().want);
  }
  std::uint64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(static_cast<std::uint64_t>(shape.numel()),
                                               static_cast<std::uint64_t>(element_size(*entry.dtype)), &bytes);
  if (overflow || bytes != end - begin) {
    const std::string wanted = overflow ? "2^64 or more" : cat(bytes);
    refuse(path, cat(where, range), cat(wanted, " bytes, for shape ", shape.str(), " of ", name(*entry.dtype)));
  }
  return shape;
}

std::string read_exactly(std::ifstream& in, const std::filesystem::path& path, std::uint64_t bytes) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) refuse(path, "a short read", cat(bytes, " bytes"));
  return text;
}

// Bytes to write before the tensors: the header's length and its text, padded with spaces.
std::string header_text(const TensorFile& file, const std::vector<std::pair<std::string, Tensor>>& ordered) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) header[std::string(kMetadataKey)] = file.metadata;
  std::uint64_t begin = 0;
  for (const auto& [name, tensor] : ordered) {
    const std::uint64_t end = begin + tensor.bytes();
    nlohmann::ordered_json& entry = header[name];
    entry["dtype"] = kDTypeNames[rank_of(tensor.dtype())].text;
    entry["shape"] = tensor.shape().sizes();
    entry["data_offsets"] = {begin, end};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw ValueError({.op = "save_safetensors",
                      .got = "a tensor's name or metadata that is not UTF-8",
                      .want = "text in UTF-8",
                      .way_out = ""});
  }
  text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  if (text.size() > kMaxHeader) {
    throw ValueError({.op = "save_safetensors",
                      .got = cat("a header of ", text.size(), " bytes"),
                      .want = cat("at most ", kMaxHeader),
                      .way_out = "Split the tensors over several files"});
  }
  const std::uint64_t length = text.size();
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &length, kLengthBytes);
  return out + text;
}

}  // namespace

TensorFile load_safetensors(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    refuse(path, error ? error.message() : "something that is no regular file", "a safetensors file");
  }
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) refuse(path, "a file that cannot be opened", "a file this program may read");
  if (file_bytes < kLengthBytes) refuse(path, cat(file_bytes, " bytes"), "at least 8, the length of the header");

  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, read_exactly(in, path, kLengthBytes).data(), kLengthBytes);
  if (header_bytes > kMaxHeader) refuse(path, cat("a header of ", header_bytes, " bytes"), cat("at most ", kMaxHeader));
  if (header_bytes > file_bytes - kLengthBytes) {
    refuse(path, cat("a header of ", header_bytes, " bytes in a file of ", file_bytes), "a header inside the file");
  }
  const std::string header = read_exactly(in, path, header_bytes);
  // The parser would take a byte order mark before the text, and a zero byte for its end.
  if (!header.starts_with('{') || header.find('\0') != std::string::npos) {
    refuse(path, "a header that is no plain JSON object", "text from { to }, then spaces");
  }
  HeaderReader reader(path);
  nlohmann::json::sax_parse(header, &reader);

  std::vector<Entry> entries = reader.take_entries();
  std::ranges::sort(entries, {}, [](const Entry& entry) { return *entry.offsets; });
  const std::uint64_t data_bytes = file_bytes - kLengthBytes - header_bytes;
  std::uint64_t covered = 0;
  TensorFile file{.tensors = {}, .metadata = reader.take_metadata()};
  for (const Entry& entry : entries) {
    const Shape shape = checked_shape(path, entry, data_bytes);
    if (entry.offsets->front() != covered) {
      refuse(path, cat("tensor ", shown(entry.name), ": data from byte ", entry.offsets->front()),
             cat("from byte ", covered, ", where the data before it ends"));
    }
    covered = entry.offsets->back();
    const Tensor tensor = Tensor::empty(shape, *entry.dtype);
    if (tensor.bytes() > 0 &&
        !in.read(static_cast<char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()))) {
      refuse(path, cat("tensor ", shown(entry.name), ": a short read"), cat(tensor.bytes(), " bytes"));
    }
    file.tensors.emplace(entry.name, tensor);
  }
  if (covered != data_bytes) {
    refuse(path, cat(data_bytes - covered, " bytes after the last tensor"), "a file that ends with its last tensor");
  }
  return file;
}

void save_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  std::vector<std::pair<std::string, Tensor>> ordered(file.tensors.begin(), file.tensors.end());
  for (const auto& [name, tensor] : ordered) {
    if (name == kMetadataKey) {
      throw ValueError({.op = "save_safetensors",
                        .got = "a tensor named __metadata__",
                        .want = "any other name: the format keeps this one",
                        .way_out = ""});
    }
    if (!tensor.defined()) {
      throw StateError({.op = "save_safetensors",
                        .got = cat("an undefined tensor under ", shown(name)),
                        .want = "tensors with elements",
                        .way_out = "Leave it out of the map"});
    }
  }
  std::ranges::stable_sort(ordered, {}, [](const auto& named) { return rank_of(named.second.dtype()); });
  const std::string header = header_text(file, ordered);

  NewFile out(path, "save_safetensors");
  out.write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : ordered) {
    if (tensor.device().is_cpu()) {
      out.write({static_cast<const std::byte*>(tensor.raw()), tensor.bytes()});
    } else {
      std::vector<std::byte> host(tensor.bytes());
      copy_bytes(host.data(), kCPU, tensor.raw(), tensor.device(), host.size());
      out.write(host);
    }
  }
  out.commit();
}

void save(const std::filesystem::path& path, const StateDict& state) {
  TensorFile file{.tensors = state.tensors, .metadata = {}};
  for (const auto& [name, number] : state.numbers) {
    std::array<char, 32> text{};  // the longest, as -2.2250738585072014e-308, has 24
    const std::to_chars_result result = std::to_chars(text.data(), text.data() + text.size(), number);
    file.metadata.emplace(name, std::string(text.data(), result.ptr));
  }
  save_safetensors(path, file);
}

StateDict load_state(const std::filesystem::path& path) {
  TensorFile file = load_safetensors(path);
  StateDict state{.tensors = std::move(file.tensors), .numbers = {}};
  for (const auto& [name, text] : file.metadata) {
    if (name == "format") continue;
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      refuse(path, cat("metadata ", shown(name), ": ", shown(text)), "a number");
    }
    state.numbers.emplace(name, number);
  }
  return state;
}

}  // namespace fusegrad
