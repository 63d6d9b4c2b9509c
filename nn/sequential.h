#pragma once
// Modules in a row.

#include <fusegrad/nn/module.h>

namespace fusegrad::nn {

/// Feeds each module's result to the next; its parts are named "0", "1", ….
///
///     nn::Sequential model(std::make_shared<nn::Linear>(32, 64), std::make_shared<nn::ReLU>(),
///                          std::make_shared<nn::Linear>(64, 3));
class Sequential : public Module {
 public:
  template <class... Modules>
  explicit Sequential(std::shared_ptr<Modules>... modules) {
    (append(std::move(modules)), ...);
  }
  void append(std::shared_ptr<Module> module) {
    register_module(cat(parts_.size()), module);
    parts_.push_back(std::move(module));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const std::shared_ptr<Module>& part : parts_) y = part->forward(y);
    return y;
  }

 private:
  std::vector<std::shared_ptr<Module>> parts_;
};

}  // namespace fusegrad::nn
