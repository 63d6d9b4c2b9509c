// Uses the installed library as a user does: makes a tensor, writes it to a file, reads it back.

#include <filesystem>
#include <iostream>

#include <fusegrad/runtime/safetensors.h>
#include <fusegrad/runtime/tensor.h>

int main() {
  const fusegrad::Tensor tensor = fusegrad::Tensor::empty({2, 2});
  float next = 1;
  for (float& element : tensor.span<float>()) element = next++;
  const std::filesystem::path path = "consumer.safetensors";
  fusegrad::save_safetensors(path, {.tensors = {{"x", tensor}}, .metadata = {}});
  const fusegrad::Tensor back = fusegrad::load_safetensors(path).tensors.at("x");
  std::filesystem::remove(path);
  std::cout << back.str() << '\n';
  return back.to_vector<float>() == tensor.to_vector<float>() ? 0 : 1;
}
