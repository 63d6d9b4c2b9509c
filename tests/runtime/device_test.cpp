// Asking for a device is always safe; using one that is not there says why it is not.

#include <gtest/gtest.h>

#include <fusegrad/runtime/device.h>
#include <fusegrad/runtime/error.h>
#include <fusegrad/tests/device_test.h>

namespace fusegrad {
namespace {

TEST(ParseDevice, ReadsWhatDevicesPrint) {
  EXPECT_EQ(parse_device("cpu"), kCPU);
  EXPECT_EQ(parse_device("cuda"), kCUDA);
  EXPECT_EQ(parse_device("cuda:0"), kCUDA);
  EXPECT_EQ(parse_device("cuda:7"), (Device{DeviceType::cuda, 7}));
  for (const Device device : {kCPU, kCUDA, Device{DeviceType::cuda, 12}}) EXPECT_EQ(parse_device(device.str()), device);
}

TEST(ParseDevice, RefusesEveryOtherText) {
  for (const char* text : {"", "CPU", "cpu:0", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:+1", "cuda:1.0",
                           "cuda:99999999999", "cuda0", " cpu"}) {
    EXPECT_THROW(parse_device(text), DeviceError) << text;
  }
}

TEST(DeviceCount, IsZeroWithoutCudaAndNeverThrows) {
  const int count = cuda_device_count();
  EXPECT_GE(count, 0);
  EXPECT_EQ(cuda_is_available(), count > 0);
  if (!kCudaBuilt) {
    EXPECT_EQ(count, 0);
  }
}

TEST(RequireAvailable, TakesTheCpuAndRefusesAGpuThatIsNotThereWithTheReason) {
  EXPECT_NO_THROW(require_available(kCPU, "test"));
  try {
    require_available({DeviceType::cuda, cuda_device_count()}, "test");
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.fault().op, "test");
    EXPECT_NE(error.fault().got.find(kCudaBuilt ? "usable CUDA devices" : "no CUDA"), std::string::npos);
    EXPECT_NE(error.fault().way_out, "");
  }
}

TEST(RequireAvailable, RefusesNegativeIndices) {
  EXPECT_THROW(require_available({DeviceType::cuda, -1}, "test"), DeviceError);
}

}  // namespace
}  // namespace fusegrad
