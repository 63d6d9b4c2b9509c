#pragma once
// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011): 128 random bits
// from a key and a 128-bit counter, without state. Hence any element of a tensor can be drawn alone, by any thread, on
// the host as on the device.

#include <cstdint>

#include <fusegrad/runtime/host_device.h>

namespace fusegrad::math {

struct PhiloxWords {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t z = 0;
  std::uint32_t w = 0;
};

/// The four words at position `counter` of subsequence `subsequence`. They are the low and the high half of the 128-bit
/// counter, as in cuRAND.
FUSEGRAD_HD PhiloxWords philox(std::uint64_t key, std::uint64_t counter, std::uint64_t subsequence) {
  PhiloxWords c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                static_cast<std::uint32_t>(subsequence), static_cast<std::uint32_t>(subsequence >> 32)};
  std::uint32_t key_x = static_cast<std::uint32_t>(key);
  std::uint32_t key_y = static_cast<std::uint32_t>(key >> 32);
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53u} * c.x;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57u} * c.z;
    c = {static_cast<std::uint32_t>(second >> 32) ^ c.y ^ key_x, static_cast<std::uint32_t>(second),
         static_cast<std::uint32_t>(first >> 32) ^ c.w ^ key_y, static_cast<std::uint32_t>(first)};
    key_x += 0x9E3779B9u;
    key_y += 0xBB67AE85u;
  }
  return c;
}

}  // namespace fusegrad::math
