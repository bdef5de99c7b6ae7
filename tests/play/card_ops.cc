/* card_ops.cc - compiles tests/tools/card_ops.cu for the emulated GPU. */
#include "tools/card_ops.cu"
