#pragma once
// Where tensors live. The CPU is a device like any other; a CUDA device exists only where the build has CUDA, the
// machine a driver, and the driver a GPU. Asking is always safe.

#include <cstdint>
#include <string>
#include <string_view>

namespace fusegrad {

/// True if this build was compiled with the CUDA toolkit.
inline constexpr bool kCudaBuilt = FUSEGRAD_WITH_CUDA != 0;

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  [[nodiscard]] bool is_cpu() const { return type == DeviceType::cpu; }
  [[nodiscard]] bool is_cuda() const { return type == DeviceType::cuda; }
  /// "cpu", "cuda:0", ….
  [[nodiscard]] std::string str() const;

  bool operator==(const Device&) const = default;
};

inline constexpr Device kCPU{DeviceType::cpu, 0};
inline constexpr Device kCUDA{DeviceType::cuda, 0};

/// Reads "cpu", "cuda" (the first GPU) or "cuda:N". Throws `DeviceError` for any other text.
Device parse_device(std::string_view text);

/// The number of usable CUDA devices; 0 in a build without CUDA, without a driver or without a GPU. Never throws.
int cuda_device_count();

/// True if there is at least one.
bool cuda_is_available();

/// Throws `DeviceError` in the name of `op`, with the reason, unless `device` can be used here.
void require_available(Device device, std::string_view op);

}  // namespace fusegrad
