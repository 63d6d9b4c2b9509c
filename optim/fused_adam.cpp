// Adam and AdamW over all parameters in one pass.

#include <algorithm>

#include <fusegrad/kernels/fused_adam.h>
#include <fusegrad/optim/adam.h>

namespace fusegrad::optim {
namespace {

using kernels::AdamTensor;
using kernels::CopyKind;
using kernels::GradCheck;
using math::AdamClock;
using math::WeightDecay;

// A scalar of the transform, where it is used at all.
template <class T>
T* scalar(const Tensor& x, Device device, std::string_view name) {
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
  // A parameter of the table whose version moves with every step.
  struct Written {
    Storage* parameter = nullptr;
    Storage* copy = nullptr;  // null without one
    AutogradRecord* record = nullptr;
    std::uint64_t version = 0;  // of the parameter, after the last step
  };

  kernels::AdamTable table;
  std::vector<Written> written;
  std::uint64_t generation = 0;     // of the layout that `table` shows; 0: of none
  std::unique_ptr<Storage> clocks;  // one AdamClock a parameter
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

std::vector<math::AdamGroup> FusedAdam::kernel_groups() const {
  std::vector<math::AdamGroup> groups;
  for (std::size_t g = 0; g < group_count(); ++g) groups.push_back(kernel_group(g));
  return groups;
}

AdamTensor FusedAdam::row(std::size_t index) {
  const Tensor& parameter = parameters()[index];
  const Tensor grad = parameter.grad();
  require_gradient_dtype(parameter, grad);
  const math::AdamGroup group = kernel_group(group_of(index));
  const Moments& state = moments(index);
  AdamTensor row;
  row.param = parameter.raw();
  row.grad = grad.raw();
  row.exp_avg = state.exp_avg.raw();
  row.exp_avg_sq = state.exp_avg_sq.raw();
  row.max_exp_avg_sq = group.amsgrad ? state.max_exp_avg_sq.raw() : nullptr;
  row.numel = parameter.numel();
  row.group = static_cast<std::uint32_t>(group_of(index));
  row.clock = static_cast<std::uint32_t>(index);
  row.kind = {.param = parameter.dtype(), .grad = grad.dtype(), .decay = group.decay, .amsgrad = group.amsgrad};
  row.maximize = group.maximize;
  // A copy is kept up to date only if it is so now: after a skipped step it then still is.
  const WeightCopy& copy = parameter.record().copy;
  if (parameter.dtype() == DType::f32 && copy.value().defined() && copy.version == parameter.version()) {
    row.copy = copy.value().raw();
    row.kind.copy = copy.value().dtype() == DType::f16 ? CopyKind::f16 : CopyKind::bf16;
  }
  return row;
}

// True if nothing has moved since the table was built. Costs no look at most parameters' tensors: whatever replaces a
// gradient, a weight or a copy counts up the layout's generation. Only a weight that was written to in place, and so
// has outlived its copy, has to be looked for.
bool FusedAdam::table_is_current() const {
  const Tables& t = *tables_;
  if (t.generation == 0 || t.generation != layout_generation()) return false;
  return std::all_of(t.written.begin(), t.written.end(),
                     [](const Tables::Written& w) { return w.copy == nullptr || w.version == w.parameter->version(); });
}

void FusedAdam::build_table() {
  Tables& t = *tables_;
  std::vector<AdamTensor> rows;
  std::vector<Tables::Written> written;
  const Tensor* first = nullptr;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Tensor& parameter = parameters()[i];
    if (!parameter.grad().defined()) continue;
    if (first == nullptr) first = &parameter;
    require_same_device({*first, parameter}, "FusedAdam::step");
    rows.push_back(row(i));
    AutogradRecord& record = parameter.record();
    written.push_back({.parameter = parameter.id()->storage.get(),
                       .copy = rows.back().copy == nullptr ? nullptr : record.copy.value().id()->storage.get(),
                       .record = &record,
                       .version = parameter.version()});
  }
  const Device device = first == nullptr ? kCPU : first->device();
  t.generation = 0;
  if (first != nullptr) place_clocks(device);
  t.table.assign(std::move(rows), kernel_groups(), device);
  t.written = std::move(written);
  t.generation = layout_generation();
}

void FusedAdam::step(const GradTransform& transform) {
  if (!table_is_current()) build_table();
  if (tables_->written.empty()) return;
  const Device device = tables_->table.device();
  run({.inverse_scale = scalar<float>(transform.inverse_scale, device, "inverse_scale"),
       .found_inf = scalar<float>(transform.found_inf, device, "found_inf"),
       .clip_coefficient = scalar<double>(transform.clip_coefficient, device, "clip_coefficient"),
       .clip_value = transform.clip_value},
      {}, {});
}

void FusedAdam::amp_step(const AmpStep& what) {
  if (!table_is_current()) build_table();
  if (tables_->written.empty()) return;
  const Device device = tables_->table.device();
  float* const found_inf = scalar<float>(what.found_inf, device, "found_inf");
  math::GradScalars grad{.inverse_scale = scalar<float>(what.inverse_scale, device, "inverse_scale"),
                         .found_inf = found_inf,
                         .clip_value = what.clip.max_value};
  GradCheck check{.inverse_scale = grad.inverse_scale, .found_inf = what.checked ? nullptr : found_inf};
  if (what.clip.max_norm > 0) {
    check.norm = kernels::norm_kind(what.clip.norm_type);
    check.p = what.clip.norm_type;
    check.norm_out = scalar<double>(what.norm, device, "norm");
    check.max_norm = what.clip.max_norm;
    check.clip_coefficient = scalar<double>(what.clip_coefficient, device, "clip_coefficient");
    grad.clip_coefficient = check.clip_coefficient;
  }
  run(grad, check, what.scale_update);
}

void FusedAdam::run(const math::GradScalars& grad, const GradCheck& check,
                    const std::optional<kernels::ScaleUpdate>& scale_update) {
  kernels::fused_adam({.table = tables_->table,
                       .clocks = static_cast<AdamClock*>(tables_->clocks->data()),
                       .grad = grad,
                       .check = check,
                       .scale_update = scale_update,
                       .launch = launch_});
  mark_written();
}

// Parameters may share a storage, so all versions move before one is taken down.
void FusedAdam::mark_written() {
  for (const Tables::Written& w : tables_->written) {
    w.parameter->bump_version();
    if (w.copy != nullptr) w.copy->bump_version();
  }
  for (Tables::Written& w : tables_->written) {
    w.version = w.parameter->version();
    if (w.copy != nullptr) w.record->copy.version = w.version;
  }
}

// At once, so that a captured step sees the new rate when it is replayed.
void FusedAdam::on_learning_rate_change() {
  if (tables_->generation != 0) tables_->table.assign_groups(kernel_groups());
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
  tables_->generation = 0;  // moments and options are new as well
  const Device device = parameters().front().device();
  const std::size_t bytes = clocks.size() * sizeof(AdamClock);
  tables_->clocks = std::make_unique<Storage>(bytes, device);
  copy_bytes(tables_->clocks->data(), device, clocks.data(), kCPU, bytes);
}

}  // namespace fusegrad::optim
