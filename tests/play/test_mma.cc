/* test_mma.cc - tests/kernels/test_mma.cu on the played card. */
#include "kernels/test_mma.cu"
