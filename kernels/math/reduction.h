#pragma once
// The one order in which everything is summed, so that a sum has the same bits on every device and for any number of
// threads. Elements are cut into chunks of `kChunk`. In a chunk, element i goes to lane i mod `kLanes`; a lane adds its
// elements in order, in double; then neighbouring lanes are added in pairs until one value is left. The chunks' values
// are summed the same way as if they were one long chunk.
//
// 1024 lanes are 256 GPU threads with a vector of four each; pairs of neighbours are first inside a thread, then inside
// a warp, then between warps.

#include <cstdint>

namespace fusegrad::math {

inline constexpr int kLanes = 1024;
inline constexpr std::int64_t kChunk = 16384;

}  // namespace fusegrad::math
