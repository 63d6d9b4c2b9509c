// Sums on a GPU.
//
// A sum over one dimension works on [outer, reduced, inner]. The reduced dimension is cut into segments of fixed
// length, so that few columns over many rows (a bias gradient) still fill the GPU; a second launch adds the segments in
// order. Within a segment a block of 32 columns × 8 lanes adds its rows, lane by lane and then the lanes, in double.

#include <algorithm>

#include <fusegrad/kernels/cuda/launch.cuh>
#include <fusegrad/kernels/cuda/reduction.cuh>
#include <fusegrad/kernels/reduce.h>

namespace fusegrad::kernels::cuda {

using fusegrad::cuda::kMostBlocks;
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

/// Where the tiles of a sum over columns lie: 32 columns of one segment of one outer index each.
struct Tiles {
  ReduceShape shape;
  std::int64_t segments = 1;
  std::int64_t across = 1;  ///< tiles that the inner dimension takes

  [[nodiscard]] __host__ __device__ std::int64_t count() const { return shape.outer * segments * across; }
};

/// One block a tile; blocks take further tiles where there are more than one launch can have.
template <class X, class Y>
__global__ void __launch_bounds__(kColumns* kRowLanes) sum_columns(const X* x, Tiles tiles, double divisor, Y* y) {
  __shared__ double sums[kRowLanes][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kColumns;
  const std::int64_t reduced = tiles.shape.reduced;
  const std::int64_t inner = tiles.shape.inner;
  const std::int64_t length = (reduced + tiles.segments - 1) / tiles.segments;
  for (std::int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const std::int64_t i = tile % tiles.across * kColumns + column;
    const std::int64_t segment = tile / tiles.across % tiles.segments;
    const std::int64_t outer = tile / tiles.across / tiles.segments;
    const std::int64_t begin = segment * length;
    const std::int64_t end = begin + length < reduced ? begin + length : reduced;
    double sum = 0;
    if (i < inner) {
      const X* from = x + outer * reduced * inner + i;
      for (std::int64_t r = begin + lane; r < end; r += kRowLanes) sum += convert<double>(from[r * inner]);
    }
    sums[lane][column] = sum;
    __syncthreads();
    if (lane == 0 && i < inner) {
      for (int other = 1; other < kRowLanes; ++other) sum += sums[other][column];
      y[(outer * tiles.segments + segment) * inner + i] = convert<Y>(sum / divisor);
    }
    __syncthreads();  // the next tile writes the same shared memory
  }
}

/// One block a row, where the reduced dimension is the innermost; blocks take further rows where there are more than
/// one launch can have.
template <class X, class Y>
__global__ void __launch_bounds__(kReduceThreads)
    sum_rows(const X* x, std::int64_t rows, std::int64_t reduced, double divisor, Y* y) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const X* from = x + row * reduced;
    const double sum = reduce_chunk(
        0, reduced, [=](std::int64_t i) { return convert<double>(from[i]); }, fusegrad::cuda::Add{});
    if (threadIdx.x == 0) y[row] = convert<Y>(sum / divisor);
  }
}

template <class X, class Y>
void sum_dim_as(const Tensor& x, const ReduceShape& shape, double divisor, const Tensor& y) {
  const X* in = x.data<X>();
  Y* out = y.data<Y>();
  if (shape.inner == 1) {
    const std::int64_t blocks = std::min(shape.outer, kMostBlocks);
    return launch(x.device(), blocks, kReduceThreads, sum_rows<X, Y>, in, shape.outer, shape.reduced, divisor, out);
  }
  constexpr int kThreads = kColumns * kRowLanes;
  const Tiles tiles{.shape = shape,
                    .segments = std::max<std::int64_t>(1, (shape.reduced + kSegment - 1) / kSegment),
                    .across = (shape.inner + kColumns - 1) / kColumns};
  const std::int64_t blocks = std::min(tiles.count(), kMostBlocks);
  if (tiles.segments == 1) {
    return launch(x.device(), blocks, kThreads, sum_columns<X, Y>, in, tiles, divisor, out);
  }
  const Tensor partial = Tensor::empty({shape.outer * tiles.segments, shape.inner}, DType::f64, x.device());
  double* sums = partial.data<double>();
  launch(x.device(), blocks, kThreads, sum_columns<X, double>, in, tiles, 1.0, sums);
  const Tiles rest{.shape = {.outer = shape.outer, .reduced = tiles.segments, .inner = shape.inner},
                   .segments = 1,
                   .across = tiles.across};
  launch(x.device(), std::min(rest.count(), kMostBlocks), kThreads, sum_columns<double, Y>,
         static_cast<const double*>(sums), rest, divisor, out);
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
