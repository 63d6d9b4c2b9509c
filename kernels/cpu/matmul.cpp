#include <fusegrad/kernels/matmul.h>

#if FUSEGRAD_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#include <fusegrad/kernels/cpu/parallel.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/math/ieee.h>

namespace fusegrad::kernels::cpu {

using fusegrad::cpu::parallel_for;
using fusegrad::cpu::vectorized;

namespace {

template <class T>
Tensor transposed(const Tensor& x) {
  const std::int64_t rows = x.size(0);
  const std::int64_t columns = x.size(1);
  Tensor y = Tensor::empty({columns, rows}, x.dtype());
  const T* in = x.data<T>();
  T* out = y.data<T>();
  constexpr std::int64_t kTile = 32;
  parallel_for((rows + kTile - 1) / kTile, 8, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t r0 = first * kTile; r0 < std::min(rows, last * kTile); r0 += kTile) {
      for (std::int64_t c0 = 0; c0 < columns; c0 += kTile) {
        for (std::int64_t c = c0; c < std::min(columns, c0 + kTile); ++c) {
          for (std::int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) out[c * rows + r] = in[r * columns + c];
        }
      }
    }
  });
  return y;
}

// out = a·b for row-major operands. A stretch of one row of `out` stays in registers and cache while the rows of `b`
// stream through; every element is a chain of fma in the order of k, whatever the number of threads.
template <class T>
void plain_matmul(const T* a, const T* b, T* out, MatmulSize size) {
  const auto [m, n, k] = size;
  constexpr std::int64_t kTile = 256;
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, n * k));
  parallel_for(m, grain, [=, m = m, n = n, k = k](std::int64_t first, std::int64_t last) {
    (void)m;
    vectorized(
        [=](std::int64_t row_begin, std::int64_t row_end) {
          for (std::int64_t tile = 0; tile < n; tile += kTile) {
            const std::int64_t width = std::min(kTile, n - tile);
            for (std::int64_t i = row_begin; i < row_end; ++i) {
              T sums[kTile] = {};
              for (std::int64_t p = 0; p < k; ++p) {
                const T left = a[i * k + p];
                const T* right = b + p * n + tile;
                for (std::int64_t j = 0; j < width; ++j) sums[j] = math::fma(left, right[j], sums[j]);
              }
              for (std::int64_t j = 0; j < width; ++j) out[i * n + tile + j] = sums[j];
            }
          }
        },
        first, last);
  });
}

template <class T>
void plain(const Tensor& a, const Tensor& b, const MatmulArgs& args, MatmulSize size, T* out) {
  const Tensor left = args.op_a == Op::transpose ? transposed<T>(a) : a;
  const Tensor right = args.op_b == Op::transpose ? transposed<T>(b) : b;
  plain_matmul(left.data<T>(), right.data<T>(), out, size);
}

#if FUSEGRAD_WITH_ONEDNN
// Below this many multiplications the library's own set-up takes longer than the plain loop.
constexpr std::int64_t kLibraryFrom = 1 << 14;

void library(const Tensor& a, const Tensor& b, const MatmulArgs& args, MatmulSize size, float* out) {
  const char op_a = args.op_a == Op::transpose ? 'T' : 'N';
  const char op_b = args.op_b == Op::transpose ? 'T' : 'N';
  const dnnl_status_t status = dnnl_sgemm(op_a, op_b, size.m, size.n, size.k, 1.0f, a.data<float>(), a.size(1),
                                          b.data<float>(), b.size(1), 0.0f, out, size.n);
  if (status != dnnl_success) {
    throw Error(
        {.op = "matmul",
         .got = cat("oneDNN status ", static_cast<int>(status), " for ", a.shape().str(), " and ", b.shape().str()),
         .want = "success",
         .way_out = "Configure with -DFUSEGRAD_ONEDNN=OFF to use the plain product"});
  }
}
#endif

void multiply(const Tensor& a, const Tensor& b, const MatmulArgs& args, const Tensor& out) {
  const MatmulSize size = matmul_size(args);
  if (size.k == 0) return kernels::fill(out, 0);
  if (out.dtype() == DType::f64) return plain(a, b, args, size, out.data<double>());
#if FUSEGRAD_WITH_ONEDNN
  if (size.m * size.n * size.k >= kLibraryFrom) return library(a, b, args, size, out.data<float>());
#endif
  plain(a, b, args, size, out.data<float>());
}

template <class T>
void add_bias(const Tensor& product, const Tensor& bias) {
  T* out = product.data<T>();
  const T* row = bias.data<T>();
  const std::int64_t columns = bias.numel();
  const std::int64_t grain = std::max<std::int64_t>(1, fusegrad::cpu::kGrain / columns);
  parallel_for(product.numel() / columns, grain, [=](std::int64_t first, std::int64_t last) {
    vectorized(
        [=](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
#pragma GCC ivdep
            for (std::int64_t c = 0; c < columns; ++c) out[r * columns + c] += row[c];
          }
        },
        first, last);
  });
}

}  // namespace

void matmul(const MatmulArgs& args, const Tensor& out) {
  const DType wide = math_dtype(args.a.dtype());
  const Tensor product = out.dtype() == wide ? out : Tensor::empty(out.shape(), wide);
  multiply(converted(args.a, wide), converted(args.b, wide), args, product);
  if (args.bias.defined()) {
    const Tensor bias = converted(args.bias, wide);
    wide == DType::f64 ? add_bias<double>(product, bias) : add_bias<float>(product, bias);
  }
  if (!product.is_same(out)) kernels::copy(product, out);
}

}  // namespace fusegrad::kernels::cpu
