#pragma once
// Tensors in files other programs can read. The format is safetensors: a header of JSON, then the bytes of all tensors
// without gaps. A file may come from anywhere, so every statement of its header is checked before it is believed.

#include <filesystem>
#include <map>
#include <string>

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

/// The contents of a safetensors file.
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads a file; all tensors arrive on the CPU. Knows the dtypes F16, BF16, F32, F64 and I64, and up to eight
/// dimensions. Throws `IOError`, naming the file and the tensor, for a file that cannot be read and for every header
/// that is not exact: wrong JSON, names twice, unknown keys or dtypes, sizes that do not match, offsets that leave the
/// file or do not cover its data once, without gaps and from 0. Never takes more memory than a small multiple of the
/// file's size.
TensorFile load_safetensors(const std::filesystem::path& path);

/// Writes a file from tensors of any dtype on any device (those on a GPU are waited for). Data is ordered by dtype, the
/// widest first, then by name, as the reference library does; so every tensor is aligned to its element size. The bytes
/// go to a temporary file in the same folder, which is synced and then renamed: at every moment `path` is the old file
/// or the whole new one. Throws `IOError` if the file cannot be written, `StateError` for an undefined tensor and
/// `ValueError` for a name that the format cannot hold ("__metadata__", or text that is not UTF-8).
void save_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace fusegrad
