#pragma once
// The parameters of a fused Adam, laid out for kernels: a table in device memory with one row a parameter, and lists of
// pieces that cut the parameters into equal shares of work. Built once, and again only when something has moved; so a
// launch takes any number of tensors of any sizes, and hands over nothing but this table's addresses.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <fusegrad/kernels/check_workspace.h>
#include <fusegrad/kernels/math/adam.h>
#include <fusegrad/kernels/tensor_list.h>

namespace fusegrad::kernels {

/// The low-precision copy that is written beside a parameter.
enum class CopyKind : std::uint8_t { none, f16, bf16 };

/// What decides which code updates a parameter. Parameter and gradient dtypes: equal, or an f32 parameter with a 16-bit
/// gradient, or any parameter with an f32 gradient. Copies are of f32 parameters.
struct AdamKind {
  DType param = DType::f32;
  DType grad = DType::f32;
  CopyKind copy = CopyKind::none;
  math::WeightDecay decay = math::WeightDecay::none;
  bool amsgrad = false;
  bool operator==(const AdamKind&) const = default;
};

/// True if a fused Adam takes a parameter and a gradient of these dtypes.
bool fused_adam_takes(DType param, DType grad);

/// One parameter with its state, as kernels see it. Moments are f32, or f64 for an f64 parameter.
struct AdamTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* max_exp_avg_sq = nullptr;  ///< null without AMSGrad
  void* copy = nullptr;            ///< null without a low-precision copy
  std::int64_t numel = 0;
  std::uint32_t group = 0;
  std::uint32_t clock = 0;  ///< index of its clock
  AdamKind kind;
  bool maximize = false;
  bool aligned = false;  ///< every address allows vectors of four elements; the table fills it in
  bool operator==(const AdamTensor&) const = default;
};

/// Elements that one block of a GPU updates. So few, because neighbouring blocks then work on neighbouring addresses at
/// any moment, which is what the memory likes best (docs/performance.md has the figures).
inline constexpr std::int64_t kAdamTile = 1024;

class AdamTable {
 public:
  /// Makes these the parameters and groups. Uploads only what changed.
  void assign(std::vector<AdamTensor> rows, std::span<const math::AdamGroup> groups, Device device);
  /// Replaces the groups alone, for a new learning rate.
  void assign_groups(std::span<const math::AdamGroup> groups) { groups_.assign(groups, device_); }

  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] const DeviceArray<AdamTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const DeviceArray<math::AdamGroup>& groups() const { return groups_; }
  /// Pieces of `math::kChunk` elements, for the pass that looks at the gradients. A tensor without elements has one, so
  /// that every tensor has a first piece.
  [[nodiscard]] const DeviceArray<Piece>& chunks() const { return chunks_; }
  /// Pieces of `kAdamTile` elements, for the update on a GPU.
  [[nodiscard]] const DeviceArray<Piece>& tiles() const { return tiles_; }
  /// All elements of all parameters.
  [[nodiscard]] std::int64_t numel() const { return numel_; }
  /// The kind of all parameters, if they have one and the same.
  [[nodiscard]] const std::optional<AdamKind>& uniform_kind() const { return uniform_kind_; }
  /// The dtype of all gradients, if they have one and the same and all parameters are f32.
  [[nodiscard]] const std::optional<DType>& uniform_grad() const { return uniform_grad_; }

  /// Scratch of a step: one pending step a parameter.
  [[nodiscard]] math::AdamPending* pending() const { return static_cast<math::AdamPending*>(pending_->data()); }
  [[nodiscard]] CheckWorkspace& check_workspace() { return check_workspace_; }

 private:
  Device device_ = kCPU;
  DeviceArray<AdamTensor> tensors_;
  DeviceArray<math::AdamGroup> groups_;
  DeviceArray<Piece> chunks_;
  DeviceArray<Piece> tiles_;
  std::vector<std::int64_t> sizes_;  // that the pieces were made for
  std::int64_t numel_ = 0;
  std::optional<AdamKind> uniform_kind_;
  std::optional<DType> uniform_grad_;
  std::unique_ptr<Storage> pending_;
  CheckWorkspace check_workspace_;
};

}  // namespace fusegrad::kernels
