/* test_mma.cc - tests/kernels/test_mma.cu on the emulated GPU. */
#include "kernels/test_mma.cu"
