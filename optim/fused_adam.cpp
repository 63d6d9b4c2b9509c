// Adam and AdamW over all parameters in one pass.

#include <fusegrad/kernels/adam.h>
#include <fusegrad/optim/adam.h>

namespace fusegrad::optim {
namespace {

using kernels::AdamTensor;
using kernels::Chunk;
using math::AdamClock;
using math::WeightDecay;

// A scalar of the transform, where it is used at all.
template <class T>
const T* scalar(const Tensor& x, Device device, std::string_view name) {
  if (!x.defined()) return nullptr;
  if (x.device() != device || x.numel() != 1) {
    throw DeviceError({.op = "FusedAdam::step",
                       .got = cat(name, " of shape ", x.shape().str(), " on ", x.device().str()),
                       .want = cat("one element on ", device.str(), ", where the parameters are"),
                       .way_out = ""});
  }
  return x.data<T>();
}

}  // namespace

struct FusedAdam::Tables {
  DeviceArray<AdamTensor> tensors;
  DeviceArray<Chunk> chunks;
  DeviceArray<math::AdamGroup> groups;
  std::vector<std::int64_t> sizes;  // that `chunks` was made for
  std::unique_ptr<Storage> clocks;  // one AdamClock a parameter
  std::unique_ptr<Storage> coefficients;
};

FusedAdam::FusedAdam() : tables_(std::make_unique<Tables>()) {}
FusedAdam::~FusedAdam() = default;

FusedAdam::FusedAdam(const std::vector<Tensor>& params, const AdamOptions& options)
    : FusedAdam(std::vector<AdamParamGroup>{{.params = params}}, options) {}

FusedAdam::FusedAdam(const std::vector<AdamParamGroup>& groups, const AdamOptions& options) : FusedAdam() {
  add_groups(groups, options, WeightDecay::l2);
}

FusedAdamW::FusedAdamW(const std::vector<Tensor>& params, const AdamWOptions& options)
    : FusedAdamW(std::vector<AdamParamGroup>{{.params = params}}, options) {}

FusedAdamW::FusedAdamW(const std::vector<AdamParamGroup>& groups, const AdamWOptions& options) {
  add_groups(groups, options.as_adam(), WeightDecay::decoupled);
}

AdamTensor FusedAdam::row(std::size_t index) {
  const Tensor& parameter = parameters()[index];
  const Tensor grad = parameter.grad();
  require_gradient_dtype(parameter, grad);
  const Moments& state = moments(index);
  AdamTensor row;
  row.param = parameter.raw();
  row.grad = grad.raw();
  row.exp_avg = state.exp_avg.raw();
  row.exp_avg_sq = state.exp_avg_sq.raw();
  row.max_exp_avg_sq = kernel_group(group_of(index)).amsgrad != 0 ? state.max_exp_avg_sq.raw() : nullptr;
  row.numel = parameter.numel();
  row.group = static_cast<std::int32_t>(group_of(index));
  row.clock = static_cast<std::int32_t>(index);
  row.param_dtype = parameter.dtype();
  row.grad_dtype = grad.dtype();
  // A copy is kept up to date only if it is so now: after a skipped step it then still is.
  const WeightCopy& copy = parameter.record().copy;
  if (parameter.dtype() == DType::f32 && copy.value().defined() && copy.version == parameter.version()) {
    row.copy = copy.value().raw();
    row.copy_dtype = copy.value().dtype();
  }
  return row;
}

void FusedAdam::step(const GradTransform& transform) {
  std::vector<std::size_t> active;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    if (!parameters()[i].grad().defined()) continue;
    require_same_device({parameters()[active.empty() ? i : active.front()], parameters()[i]}, "FusedAdam::step");
    active.push_back(i);
  }
  if (active.empty()) return;
  const Device device = parameters()[active.front()].device();

  std::vector<AdamTensor> rows;
  std::vector<std::int64_t> sizes;
  for (std::size_t i : active) {
    rows.push_back(row(i));
    sizes.push_back(rows.back().numel);
  }
  std::vector<math::AdamGroup> groups;
  for (std::size_t g = 0; g < group_count(); ++g) groups.push_back(kernel_group(g));

  Tables& t = *tables_;
  t.tensors.assign(rows, device);
  t.groups.assign(groups, device);
  if (sizes != t.sizes || !t.chunks.is_on(device)) {
    t.chunks.assign(kernels::make_chunks(sizes), device);
    t.sizes = sizes;
  }
  place_clocks(device);
  const std::size_t scratch = rows.size() * sizeof(math::AdamCoefficients<double>);
  if (t.coefficients == nullptr || t.coefficients->device() != device || t.coefficients->bytes() < scratch) {
    t.coefficients = std::make_unique<Storage>(scratch, device);
  }

  kernels::fused_adam(
      {.device = device,
       .tensors = t.tensors,
       .chunks = t.chunks,
       .groups = t.groups,
       .clocks = static_cast<AdamClock*>(t.clocks->data()),
       .coefficients = static_cast<math::AdamCoefficients<double>*>(t.coefficients->data()),
       .grad = {.inverse_scale = scalar<float>(transform.inverse_scale, device, "inverse_scale"),
                .found_inf = scalar<float>(transform.found_inf, device, "found_inf"),
                .clip_coefficient = scalar<double>(transform.clip_coefficient, device, "clip_coefficient"),
                .clip_value = transform.clip_value}});

  for (std::size_t i = 0; i < active.size(); ++i) {
    const Tensor& parameter = parameters()[active[i]];
    parameter.bump_version();
    if (rows[i].copy == nullptr) continue;
    WeightCopy& copy = parameter.record().copy;
    copy.value().bump_version();
    copy.version = parameter.version();
  }
}

void FusedAdam::place_clocks(Device device) {
  if (tables_->clocks != nullptr && tables_->clocks->device() == device) return;
  const std::vector<AdamClock> now = read_clocks();
  const std::size_t bytes = now.size() * sizeof(AdamClock);
  tables_->clocks = std::make_unique<Storage>(bytes, device);
  copy_bytes(tables_->clocks->data(), device, now.data(), kCPU, bytes);
}

std::vector<AdamClock> FusedAdam::read_clocks() const {
  std::vector<AdamClock> clocks(parameters().size());
  const Storage* stored = tables_->clocks.get();
  if (stored != nullptr) copy_bytes(clocks.data(), kCPU, stored->data(), stored->device(), stored->bytes());
  return clocks;
}

void FusedAdam::write_clocks(const std::vector<AdamClock>& clocks) {
  const Device device = parameters().front().device();
  const std::size_t bytes = clocks.size() * sizeof(AdamClock);
  tables_->clocks = std::make_unique<Storage>(bytes, device);
  copy_bytes(tables_->clocks->data(), device, clocks.data(), kCPU, bytes);
}

}  // namespace fusegrad::optim
