/* gpu_ops.cc - compiles tests/tools/gpu_ops.cu for the emulated GPU. */
#include "tools/gpu_ops.cu"
