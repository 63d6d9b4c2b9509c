# Flags of our own code. Floating point is IEEE 754 to the letter: no contraction of a*b+c behind our back (every fma is
# written out) and no fast-math, so that a formula gives the same bits on the CPU and on a GPU. Not setting errno and
# not preserving floating-point traps changes no result, and lets loops with sqrt and selects vectorise.
add_library(fusegrad_flags INTERFACE)
set(fusegrad_warnings -Wall -Wextra -Wconversion -Werror)
set(cxx $<COMPILE_LANGUAGE:CXX>)
set(nvcc $<COMPILE_LANG_AND_ID:CUDA,NVIDIA>)
target_compile_options(
  fusegrad_flags
  INTERFACE "$<${cxx}:${fusegrad_warnings};-ffp-contract=off;-fno-math-errno;-fno-trapping-math>"
            "$<${nvcc}:--Werror=all-warnings;--fmad=false;--extended-lambda;--expt-relaxed-constexpr>"
            "$<${nvcc}:SHELL:-Xcompiler -Wall,-Wextra,-ffp-contract=off,-fno-math-errno>")
if(FUSEGRAD_SANITIZE)
  # GCC's analysis of uninitialised values is confused by the sanitizers' instrumentation (its manual says so).
  target_compile_options(
    fusegrad_flags INTERFACE "$<${cxx}:-fsanitize=address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer;-Wno-maybe-uninitialized>")
  target_link_options(fusegrad_flags INTERFACE -fsanitize=address,undefined)
endif()
