/* card_ops.cc - the tool on the played card. */
#include "tools/card_ops.cu"
