#pragma once
// Typed errors. Every misuse throws one of these and says four things: which operation, what it got, what it wants and,
// where there is one, the way out. The parts are separate fields so that no message can forget one.

#include <sstream>
#include <stdexcept>
#include <string>

namespace fusegrad {

/// Joins its arguments into one string, as `operator<<` prints them.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// What an error message is made of. `way_out` may stay empty.
struct Fault {
  std::string op;       ///< the operation that refused, as the user called it
  std::string got;      ///< what it was given
  std::string want;     ///< what it accepts
  std::string way_out;  ///< how to get on from here
};

/// Base of all errors thrown by fusegrad. `what()` reads "op: got …; want …. way out".
class Error : public std::runtime_error {
 public:
  explicit Error(const Fault& fault);
  [[nodiscard]] const Fault& fault() const { return fault_; }

 private:
  Fault fault_;
};

/// Sizes that do not fit together.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// An element type that the operation does not take.
class DTypeError : public Error {
 public:
  using Error::Error;
};
/// Tensors on different devices, a device that is not there, or a failed call of its driver.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// A call at the wrong time: a second backward, a second `unscale_`, a changed saved tensor.
class StateError : public Error {
 public:
  using Error::Error;
};
/// A number out of its range: a negative learning rate, a growth factor of 1.
class ValueError : public Error {
 public:
  using Error::Error;
};
/// A file that is missing, truncated or says what is not so.
class IOError : public Error {
 public:
  using Error::Error;
};

}  // namespace fusegrad
