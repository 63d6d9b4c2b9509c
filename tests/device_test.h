#pragma once
// Fixture of tests that run on every device. On a machine without a GPU the CUDA ones are skipped, by name.

#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include <fusegrad/runtime/device.h>

namespace fusegrad {

/// Lets GoogleTest name the device in its messages.
inline void PrintTo(const Device& device, std::ostream* out) { *out << device.str(); }

class DeviceTest : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !cuda_is_available()) GTEST_SKIP() << "no CUDA device";
  }
  static Device device() { return GetParam(); }
};

inline std::string device_test_name(const testing::TestParamInfo<Device>& info) {
  return info.param.is_cpu() ? "cpu" : "cuda";
}

/// Skips a test that compares devices where there is no GPU.
#define FUSEGRAD_REQUIRE_CUDA() \
  if (!fusegrad::cuda_is_available()) GTEST_SKIP() << "no CUDA device"

/// Runs the tests of `fixture` (derived from DeviceTest) on the CPU and on CUDA.
#define FUSEGRAD_ON_EVERY_DEVICE(fixture)                                                          \
  INSTANTIATE_TEST_SUITE_P(EveryDevice, fixture, testing::Values(fusegrad::kCPU, fusegrad::kCUDA), \
                           fusegrad::device_test_name)

}  // namespace fusegrad
