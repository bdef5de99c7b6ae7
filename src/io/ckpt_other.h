/* ckpt_other.h - explains why a path is not a transformers checkpoint in safetensors. */
#ifndef OSH_CKPT_OTHER_H
#define OSH_CKPT_OTHER_H
#include "base/base.h"

/* Fails with a message that says what the path is: a file, an adapter, weights in another format,
 * or a directory of the Hub's cache. The message contains the text `lacks`, which says what the
 * path lacks, such as "no config.json". */
osh_status osh_ckpt_refuse_other(osh_ctx *cx, const char *path, const char *lacks);
#endif
