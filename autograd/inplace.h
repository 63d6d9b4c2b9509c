#pragma once
// Writes into an existing tensor. They are not recorded: where recording is on, writing into a tensor that requires a
// gradient throws `StateError`, and so does writing one in (its gradient would be lost). Each write bumps the version,
// so that backward notices a changed saved tensor.

#include <fusegrad/runtime/tensor.h>

namespace fusegrad {

Tensor fill_(const Tensor& x, double value);
Tensor zero_(const Tensor& x);
/// Copies elements, converting the dtype and crossing devices. Throws `ShapeError` unless the shapes are equal.
Tensor copy_(const Tensor& dst, const Tensor& src);
/// x += alpha·y. Equal shapes, dtypes and devices.
Tensor add_(const Tensor& x, const Tensor& y, double alpha = 1.0);
/// x *= factor.
Tensor mul_(const Tensor& x, double factor);
/// Uniform in [from, to), from the device's default generator. Throws `ValueError` if from > to.
Tensor uniform_(const Tensor& x, double from = 0.0, double to = 1.0);
/// Normal with this mean and standard deviation. Throws `ValueError` if std < 0.
Tensor normal_(const Tensor& x, double mean = 0.0, double std = 1.0);

/// Throws `StateError` in the name of `op` if `x` must not be written to in place here.
void require_writable(const Tensor& x, std::string_view op);

}  // namespace fusegrad
