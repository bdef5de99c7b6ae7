/* test_mma.cc - compiles tests/kernels/test_mma.cu for the emulated GPU. */
#include "kernels/test_mma.cu"
