#include <charconv>

#include <fusegrad/runtime/cuda/driver.h>
#include <fusegrad/runtime/device.h>
#include <fusegrad/runtime/error.h>

namespace fusegrad {

std::string Device::str() const { return is_cpu() ? "cpu" : cat("cuda:", index); }

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCPU;
  if (text == "cuda") return kCUDA;
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    const std::string_view number = text.substr(kPrefix.size());
    int index = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc() && end == number.data() + number.size() && index >= 0) {
      return {DeviceType::cuda, index};
    }
  }
  throw DeviceError({.op = "parse_device", .got = cat('"', text, '"'), .want = "cpu, cuda or cuda:N", .way_out = ""});
}

int cuda_device_count() {
  if constexpr (kCudaBuilt) {
    static const int count = cuda::device_count();
    return count;
  }
  return 0;
}

bool cuda_is_available() { return cuda_device_count() > 0; }

void require_available(Device device, std::string_view op) {
  if (device.is_cpu()) return;
  const int count = cuda_device_count();
  if (device.index >= 0 && device.index < count) return;
  std::string reason = cat("this machine has ", count, " usable CUDA devices");
  if (!kCudaBuilt) reason = "this build has no CUDA (FUSEGRAD_CUDA=OFF, or no toolkit was found)";
  throw DeviceError({.op = std::string(op),
                     .got = cat(device.str(), ", but ", reason),
                     .want = "a device that is there",
                     .way_out = "Use Device cpu, or ask cuda_is_available() first"});
}

}  // namespace fusegrad
