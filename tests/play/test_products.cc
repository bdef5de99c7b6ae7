/* test_products.cc - tests/kernels/test_products.cu on the emulated GPU. */
#include "kernels/test_products.cu"
