/* card_ops.cc - tests/tools/card_ops.cu on the emulated GPU. */
#include "tools/card_ops.cu"
