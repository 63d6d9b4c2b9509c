#include <fusegrad/runtime/error.h>

namespace fusegrad {
namespace {

std::string message(const Fault& fault) {
  std::string text = fault.op + ": got " + fault.got;
  if (!fault.want.empty()) text += "; want " + fault.want;
  if (!fault.way_out.empty()) text += ". " + fault.way_out;
  return text;
}

}  // namespace

Error::Error(const Fault& fault) : std::runtime_error(message(fault)), fault_(fault) {}

}  // namespace fusegrad
