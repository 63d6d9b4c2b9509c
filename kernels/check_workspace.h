#pragma once
// Scratch memory of a pass that looks at gradients: what each chunk found, until one block adds it up.

#include <cstdint>
#include <memory>

#include <fusegrad/runtime/memory.h>

namespace fusegrad::kernels {

/// What a pass found in one chunk. One load brings both.
struct ChunkFindings {
  double norm = 0;             ///< the chunk's share of the norm
  std::int64_t nonfinite = 0;  ///< 1 if the chunk holds an inf or NaN
};

/// The workspace as kernels see it.
struct CheckScratch {
  ChunkFindings* findings = nullptr;
  std::uint32_t* finished = nullptr;  ///< blocks that are done; back at 0 after every launch
  float* applied_inverse = nullptr;   ///< the inverse scale of this step, kept when the scale moves before the update
};

class CheckWorkspace {
 public:
  /// Room for this many chunks on `device`, kept for the next call.
  CheckScratch reserve(std::int64_t chunks, Device device) {
    const std::size_t wanted = kHeader + static_cast<std::size_t>(chunks) * sizeof(ChunkFindings);
    if (storage_ == nullptr || storage_->device() != device || storage_->bytes() < wanted) {
      storage_ = std::make_unique<Storage>(wanted, device);
      zero_bytes(storage_->data(), device, kHeader);
    }
    auto* base = static_cast<std::byte*>(storage_->data());
    return {.findings = reinterpret_cast<ChunkFindings*>(base + kHeader),
            .finished = reinterpret_cast<std::uint32_t*>(base),
            .applied_inverse = reinterpret_cast<float*>(base + sizeof(std::uint32_t))};
  }

 private:
  static constexpr std::size_t kHeader = 64;
  std::unique_ptr<Storage> storage_;
};

}  // namespace fusegrad::kernels
