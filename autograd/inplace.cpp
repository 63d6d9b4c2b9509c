#include <fusegrad/autograd/grad_mode.h>
#include <fusegrad/autograd/inplace.h>
#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/random.h>
#include <fusegrad/runtime/generator.h>

namespace fusegrad {

using kernels::Binary;
using kernels::Side;

namespace {

void require_detached(const Tensor& source, std::string_view op) {
  if (!grad_enabled() || !source.requires_grad()) return;
  throw StateError({.op = std::string(op),
                    .got = "a source that requires a gradient",
                    .want = "a source without one: in-place writes are not recorded",
                    .way_out = "Use the out-of-place operation, or source.detach(), or a NoGrad guard"});
}

}  // namespace

void require_writable(const Tensor& x, std::string_view op) {
  if (!grad_enabled() || !x.requires_grad()) return;
  throw StateError({.op = std::string(op),
                    .got = x.is_leaf() ? "a leaf that requires a gradient" : "a recorded result",
                    .want = "a tensor that autograd does not follow",
                    .way_out = "Write under a NoGrad guard, or compute a new tensor instead"});
}

Tensor fill_(const Tensor& x, double value) {
  require_writable(x, "fill_");
  kernels::fill(x, value);
  x.bump_version();
  return x;
}

Tensor zero_(const Tensor& x) {
  require_writable(x, "zero_");
  zero_bytes(x.raw(), x.device(), x.bytes());
  x.bump_version();
  return x;
}

Tensor copy_(const Tensor& dst, const Tensor& src) {
  require_writable(dst, "copy_");
  require_detached(src, "copy_");
  require_same_shape(dst, src, "copy_");
  kernels::copy(src, dst);
  dst.bump_version();
  return dst;
}

Tensor add_(const Tensor& x, const Tensor& y, double alpha) {
  require_writable(x, "add_");
  require_detached(y, "add_");
  require_same_shape(x, y, "add_");
  require_same_device({x, y}, "add_");
  y.require_dtype(x.dtype(), "add_");
  if (alpha == 1.0) {
    kernels::binary(Binary::add, x, y, x);
  } else {
    const Tensor scaled = Tensor::empty(y.shape(), y.dtype(), y.device());
    kernels::binary_scalar(Binary::mul, y, alpha, Side::right, scaled);
    kernels::binary(Binary::add, x, scaled, x);
  }
  x.bump_version();
  return x;
}

Tensor mul_(const Tensor& x, double factor) {
  require_writable(x, "mul_");
  kernels::binary_scalar(Binary::mul, x, factor, Side::right, x);
  x.bump_version();
  return x;
}

Tensor uniform_(const Tensor& x, double from, double to) {
  require_writable(x, "uniform_");
  if (x.device().is_cpu()) {
    kernels::uniform(x, from, to, default_cpu_generator());
  } else {
    kernels::uniform(x, from, to, default_cuda_generator(x.device().index));
  }
  x.bump_version();
  return x;
}

Tensor normal_(const Tensor& x, double mean, double std) {
  require_writable(x, "normal_");
  if (x.device().is_cpu()) {
    kernels::normal(x, mean, std, default_cpu_generator());
  } else {
    kernels::normal(x, mean, std, default_cuda_generator(x.device().index));
  }
  x.bump_version();
  return x;
}

}  // namespace fusegrad
