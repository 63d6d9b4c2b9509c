#pragma once
// What a module, an optimizer, a scaler or a generator writes down to go on from later: named tensors and named
// numbers. One type for all of them, so that a checkpoint is one file of one format.

#include <filesystem>
#include <map>
#include <string>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

/// Named tensors and named numbers. A number is a double: integers up to 2⁵³ are exact.
struct StateDict {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, double> numbers;
};

/// Writes `state` as a safetensors file: tensors as they are, numbers as metadata, each the shortest decimal text that
/// reads back to the same double. Throws what `save_safetensors` throws, and like it never leaves half a file.
///
///     save("model.safetensors", {.tensors = {{"weight", weight}}, .numbers = {{"step", 12}}});
void save(const std::filesystem::path& path, const StateDict& state);

/// Reads such a file; tensors arrive on the CPU. The metadata key "format", which other libraries write, is skipped.
/// Throws `IOError` for all that `load_safetensors` refuses and for metadata that is no number.
StateDict load_state(const std::filesystem::path& path);

}  // namespace fusegrad
