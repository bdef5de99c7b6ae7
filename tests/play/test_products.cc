/* test_products.cc - tests/kernels/test_products.cu on the played card. */
#include "kernels/test_products.cu"
