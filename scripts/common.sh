# shellcheck shell=bash
# What the other scripts share. Sourced, never run: the sourcing script has moved to the root of the tree.

jobs=$(nproc 2>/dev/null || echo 2)

# The major version of a clang-format decides how it breaks lines; the tree is formatted with this one.
readonly clang_format_major=14

# Prints the clang-format to use; fails if there is none of the right version.
find_clang_format() {
  local candidate
  for candidate in "clang-format-$clang_format_major" clang-format; do
    if "$candidate" --version 2>/dev/null | grep -q "version $clang_format_major\."; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# True if there is a CUDA compiler and FUSEGRAD_CUDA=OFF in the environment does not say to leave it.
want_cuda() {
  [ "${FUSEGRAD_CUDA:-AUTO}" != OFF ] && { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }
}

# build PRESET [TARGET...]: configures and builds. CMake reads the launchers from the environment.
build() {
  local preset=$1
  shift
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER-ccache}"
    export CMAKE_CUDA_COMPILER_LAUNCHER="${CMAKE_CUDA_COMPILER_LAUNCHER-ccache}"
  fi
  cmake --preset "$preset" &&
    cmake --build --preset "$preset" --parallel "$jobs" ${1+--target "$@"}
}
