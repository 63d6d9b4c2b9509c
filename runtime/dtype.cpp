#include <fusegrad/runtime/dtype.h>

namespace fusegrad {

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i64:
      return "i64";
  }
  return "an unknown dtype";
}

DType parse_dtype(std::string_view text) {
  for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64}) {
    if (name(dtype) == text) return dtype;
  }
  throw DTypeError(
      {.op = "parse_dtype", .got = cat('"', text, '"'), .want = "f16, bf16, f32, f64 or i64", .way_out = ""});
}

}  // namespace fusegrad
