#pragma once
// The speed of a copy inside a device's memory, measured: the ceiling that the benchmarks compare with.

#include <algorithm>
#include <vector>

#include <fusegrad/autograd/creation.h>
#include <fusegrad/runtime/memory.h>
#include <fusegrad/runtime/stream.h>

namespace fusegrad::bench {

/// GB/s of a device-to-device copy of 4 GiB, counting what is read and what is written; a median.
inline double copy_ceiling(Device device) {
  double result = 0;
  {
    const Tensor from = zeros({1 << 30}, {.device = device});
    const Tensor to = empty_like(from);
    std::vector<double> times;
    for (int i = 0; i < 11; ++i) {
      Event begin(device);
      Event end(device);
      begin.record();
      copy_bytes(to.raw(), device, from.raw(), device, from.bytes());
      end.record();
      end.synchronize();
      times.push_back(begin.elapsed_ms(end));
    }
    std::sort(times.begin(), times.end());
    result = 2.0 * static_cast<double>(from.bytes()) / times[times.size() / 2] / 1e6;
  }
  empty_cache(device);
  return result;
}

}  // namespace fusegrad::bench
