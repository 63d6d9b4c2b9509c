#include <fusegrad/amp/autocast.h>

namespace fusegrad::amp {

Autocast::Autocast(const AutocastOptions& options) : device_(options.device), previous_(cast_policy(options.device)) {
  if (!is_half(options.dtype)) {
    throw DTypeError({.op = "Autocast",
                      .got = std::string(name(options.dtype)),
                      .want = "f16 or bf16",
                      .way_out = "For full precision leave autocast out, or pass {.enabled = false}"});
  }
  set_cast_policy(device_, {.active = options.enabled, .dtype = options.dtype});
}

Autocast::~Autocast() { set_cast_policy(device_, previous_); }

}  // namespace fusegrad::amp
