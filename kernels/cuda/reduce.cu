// Sums on a GPU.
//
// A sum over one dimension works on [outer, reduced, inner]. The reduced dimension is cut into segments of fixed
// length, so that few columns over many rows (a bias gradient) still fill the GPU; a second launch adds the segments in
// order. Within a segment a block of 32 columns × 8 lanes adds its rows, lane by lane and then the lanes, in double.

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/cuda/reduction.cuh>
#include <fusegrad/kernels/reduce.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::kReduceThreads;
using fusegrad::cuda::launch;
using fusegrad::cuda::reduce_chunk;

namespace {

template <class X, class Y>
void sum_all_as(const Tensor& x, double divisor, const Tensor& y) {
  const X* in = x.data<X>();
  Y* out = y.data<Y>();
  const auto load = [=] __device__(std::int64_t i) { return convert<double>(in[i]); };
  const auto finish = [=] __device__(double total) { *out = convert<Y>(total / divisor); };
  fusegrad::cuda::reduce(x.device(), x.numel(), load, finish);
}

constexpr int kColumns = 32;
constexpr int kRowLanes = 8;
constexpr std::int64_t kSegment = 512;

/// One block a tile of 32 columns of one segment of one outer index.
template <class X, class Y>
__global__ void __launch_bounds__(kColumns* kRowLanes)
    sum_columns(const X* x, ReduceShape shape, std::int64_t segments, std::int64_t tiles, double divisor, Y* y) {
  __shared__ double sums[kRowLanes][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kColumns;
  std::int64_t block = blockIdx.x;
  const std::int64_t tile = block % tiles;
  block /= tiles;
  const std::int64_t segment = block % segments;
  const std::int64_t outer = block / segments;
  const std::int64_t i = tile * kColumns + column;
  const std::int64_t length = (shape.reduced + segments - 1) / segments;
  const std::int64_t begin = segment * length;
  const std::int64_t end = begin + length < shape.reduced ? begin + length : shape.reduced;
  double sum = 0;
  if (i < shape.inner) {
    const X* from = x + outer * shape.reduced * shape.inner + i;
    for (std::int64_t r = begin + lane; r < end; r += kRowLanes) sum += convert<double>(from[r * shape.inner]);
  }
  sums[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || i >= shape.inner) return;
  for (int other = 1; other < kRowLanes; ++other) sum += sums[other][column];
  y[(outer * segments + segment) * shape.inner + i] = convert<Y>(sum / divisor);
}

/// One block a row, where the reduced dimension is the innermost.
template <class X, class Y>
__global__ void __launch_bounds__(kReduceThreads) sum_rows(const X* x, std::int64_t reduced, double divisor, Y* y) {
  const X* row = x + blockIdx.x * reduced;
  const double sum = reduce_chunk(
      0, reduced, [=](std::int64_t i) { return convert<double>(row[i]); }, fusegrad::cuda::Add{});
  if (threadIdx.x == 0) y[blockIdx.x] = convert<Y>(sum / divisor);
}

template <class X, class Y>
void sum_dim_as(const Tensor& x, const ReduceShape& shape, double divisor, const Tensor& y) {
  const X* in = x.data<X>();
  Y* out = y.data<Y>();
  if (shape.inner == 1) {
    return launch(x.device(), shape.outer, kReduceThreads, sum_rows<X, Y>, in, shape.reduced, divisor, out);
  }
  const std::int64_t tiles = (shape.inner + kColumns - 1) / kColumns;
  const std::int64_t segments = shape.reduced <= kSegment ? 1 : (shape.reduced + kSegment - 1) / kSegment;
  const std::int64_t blocks = shape.outer * segments * tiles;
  constexpr int kThreads = kColumns * kRowLanes;
  if (segments == 1) {
    return launch(x.device(), blocks, kThreads, sum_columns<X, Y>, in, shape, segments, tiles, divisor, out);
  }
  const Tensor partial = Tensor::empty({shape.outer * segments, shape.inner}, DType::f64, x.device());
  double* sums = partial.data<double>();
  launch(x.device(), blocks, kThreads, sum_columns<X, double>, in, shape, segments, tiles, 1.0, sums);
  const ReduceShape rest{.outer = shape.outer, .reduced = segments, .inner = shape.inner};
  launch(x.device(), shape.outer * tiles, kThreads, sum_columns<double, Y>, static_cast<const double*>(sums), rest,
         std::int64_t{1}, tiles, divisor, out);
}

}  // namespace

void sum_all(const Tensor& x, double divisor, const Tensor& y) {
  visit_floating(x.dtype(), "sum", [&]<class X>(TypeTag<X>) {
    visit_floating(y.dtype(), "sum", [&]<class Y>(TypeTag<Y>) { sum_all_as<X, Y>(x, divisor, y); });
  });
}

void sum_dim(const Tensor& x, const ReduceShape& shape, double divisor, const Tensor& y) {
  visit_floating(x.dtype(), "sum", [&]<class X>(TypeTag<X>) {
    visit_floating(y.dtype(), "sum", [&]<class Y>(TypeTag<Y>) { sum_dim_as<X, Y>(x, shape, divisor, y); });
  });
}

}  // namespace fusegrad::kernels::cuda
