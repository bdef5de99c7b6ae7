/* test_products.cc - compiles tests/kernels/test_products.cu for the emulated GPU. */
#include "kernels/test_products.cu"
