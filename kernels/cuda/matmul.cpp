// Matrix products on a GPU, by cuBLASLt.
//
// The library thinks in columns. A row-major matrix is the transposed one in columns, so the product is asked for as
// outᵀ = op(b)ᵀ·op(a)ᵀ: operands in the other order, leading dimensions as they lie in memory, nothing moved. The bias,
// one value a column of `out`, then lies along the rows that cuBLASLt's epilogue adds it to.

#include <map>
#include <memory>
#include <tuple>

#include <cublasLt.h>

#include <fusegrad/kernels/binary.h>
#include <fusegrad/kernels/fill.h>
#include <fusegrad/kernels/matmul.h>
#include <fusegrad/runtime/cuda/check.h>
#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad::kernels::cuda {
namespace {

using fusegrad::cuda::DeviceGuard;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError({.op = call, .got = cublasLtGetStatusString(status), .want = "success", .way_out = ""});
}

#define FUSEGRAD_CUBLAS_CHECK(call) check((call), #call)

// Owns one cuBLASLt object.
template <class T, cublasStatus_t (*kDestroy)(T)>
class Handle {
 public:
  Handle() = default;
  ~Handle() {
    if (value_ != nullptr) (void)kDestroy(value_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] T get() const { return value_; }
  [[nodiscard]] T* receive() { return &value_; }

 private:
  T value_ = nullptr;
};

using Library = Handle<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
    case DType::i64:
      break;
  }
  return CUDA_R_32F;
}

// The largest power of two up to 256 that divides the address.
std::uint32_t alignment(const void* memory) {
  std::uint32_t bytes = 256;
  while (reinterpret_cast<std::uintptr_t>(memory) % bytes != 0) bytes /= 2;
  return bytes;
}

// Everything the choice of an algorithm depends on.
struct Problem {
  MatmulSize size;
  DType in;
  DType out;
  Op op_a;
  Op op_b;
  bool bias;
  std::uint32_t align_a;
  std::uint32_t align_b;
  std::uint32_t align_out;
  [[nodiscard]] auto key() const {
    return std::tuple(size.m, size.n, size.k, in, out, op_a, op_b, bias, align_a, align_b, align_out);
  }
  bool operator<(const Problem& other) const { return key() < other.key(); }
};

// A problem made ready for the library, with the algorithm it chose.
struct Plan {
  Operation operation;
  Layout first;   // the library's A: our b
  Layout second;  // the library's B: our a
  Layout result;
  cublasLtMatmulAlgo_t algorithm{};
};

template <class Value>
void set(Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  FUSEGRAD_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value));
}

template <class Value>
void set(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  FUSEGRAD_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
}

// A row-major rows × columns matrix, as the library sees it.
void make_layout(Layout& layout, DType dtype, std::int64_t rows, std::int64_t columns) {
  FUSEGRAD_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(layout.receive(), data_type(dtype),
                                                   static_cast<std::uint64_t>(columns),
                                                   static_cast<std::uint64_t>(rows), columns));
}

std::unique_ptr<Plan> make_plan(const Library& library, const Problem& p) {
  auto plan = std::make_unique<Plan>();
  const bool is_double = p.in == DType::f64;
  FUSEGRAD_CUBLAS_CHECK(cublasLtMatmulDescCreate(plan->operation.receive(),
                                                 is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                                 is_double ? CUDA_R_64F : CUDA_R_32F));
  set(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, p.op_b == Op::none ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, p.op_a == Op::none ? CUBLAS_OP_N : CUBLAS_OP_T);
  if (p.bias) {
    set(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.out));
  }
  const auto [m, n, k] = p.size;
  make_layout(plan->first, p.in, p.op_b == Op::none ? k : n, p.op_b == Op::none ? n : k);
  make_layout(plan->second, p.in, p.op_a == Op::none ? m : k, p.op_a == Op::none ? k : m);
  make_layout(plan->result, p.out, m, n);

  Preference preference;
  FUSEGRAD_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(preference.receive()));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_out);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_out);
  // A product split along k may add its parts in f32 only: adding them in a 16-bit result would round each part.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library.get(), plan->operation.get(), plan->first.get(), plan->second.get(),
                                     plan->result.get(), plan->result.get(), preference.get(), 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    throw DeviceError({.op = "matmul",
                       .got = cat("no cuBLASLt algorithm for ", m, "x", k, " times ", k, "x", n, " of ", name(p.in),
                                  " into ", name(p.out), " (", cublasLtGetStatusString(status), ")"),
                       .want = "a product that the library supports on this GPU",
                       .way_out = ""});
  }
  plan->algorithm = found.algo;
  return plan;
}

// One thread's library handle, plans and workspaces on one device. The library may use a workspace for one product at a
// time, so each stream has its own.
struct Context {
  Library library;
  std::map<Problem, std::unique_ptr<Plan>> plans;
  std::map<void*, Tensor> workspaces;
};

Context& context(Device device) {
  // Kept until the process ends: at a thread's exit the driver may be gone already.
  static thread_local auto& contexts = *new std::map<int, std::unique_ptr<Context>>();
  std::unique_ptr<Context>& found = contexts[device.index];
  if (found == nullptr) {
    found = std::make_unique<Context>();
    FUSEGRAD_CUBLAS_CHECK(cublasLtCreate(found->library.receive()));
  }
  return *found;
}

void multiply(const MatmulArgs& args, const Tensor& out, const Tensor& bias) {
  const Device device = out.device();
  const DeviceGuard guard(device.index);
  Context& c = context(device);
  const Problem problem{.size = matmul_size(args),
                        .in = args.a.dtype(),
                        .out = out.dtype(),
                        .op_a = args.op_a,
                        .op_b = args.op_b,
                        .bias = bias.defined(),
                        .align_a = alignment(args.a.raw()),
                        .align_b = alignment(args.b.raw()),
                        .align_out = alignment(out.raw())};
  std::unique_ptr<Plan>& plan = c.plans[problem];
  if (plan == nullptr) plan = make_plan(c.library, problem);
  if (bias.defined()) set(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.raw()));

  void* stream = current_stream(device).handle();
  Tensor& workspace = c.workspaces[stream];
  if (!workspace.defined()) {
    workspace = Tensor::empty({static_cast<std::int64_t>(kWorkspaceBytes / sizeof(float))}, DType::f32, device);
  }
  const float one_f32 = 1;
  const float zero_f32 = 0;
  const double one_f64 = 1;
  const double zero_f64 = 0;
  const bool is_double = problem.in == DType::f64;
  const void* alpha = is_double ? static_cast<const void*>(&one_f64) : &one_f32;
  const void* beta = is_double ? static_cast<const void*>(&zero_f64) : &zero_f32;
  FUSEGRAD_CUBLAS_CHECK(cublasLtMatmul(c.library.get(), plan->operation.get(), alpha, args.b.raw(), plan->first.get(),
                                       args.a.raw(), plan->second.get(), beta, out.raw(), plan->result.get(), out.raw(),
                                       plan->result.get(), &plan->algorithm, workspace.raw(), kWorkspaceBytes,
                                       static_cast<cudaStream_t>(stream)));
}

void add_bias(const Tensor& out, const Tensor& bias) {
  Tensor row = bias;
  if (bias.dtype() != out.dtype()) {
    row = Tensor::empty(bias.shape(), out.dtype(), out.device());
    kernels::copy(bias, row);
  }
  kernels::binary(Binary::add, out, row, out);
}

}  // namespace

void matmul(const MatmulArgs& args, const Tensor& out) {
  const bool nothing_to_add = matmul_size(args).k == 0;
  const bool in_epilogue = args.bias.defined() && !nothing_to_add && out.dtype() != DType::f64 &&
                           args.bias.dtype() == out.dtype() && alignment(args.bias.raw()) >= 16;
  if (nothing_to_add) {
    kernels::fill(out, 0);
  } else {
    multiply(args, out, in_epilogue ? args.bias : Tensor());
  }
  if (args.bias.defined() && !in_epilogue) add_bias(out, args.bias);
}

}  // namespace fusegrad::kernels::cuda
