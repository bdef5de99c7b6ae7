/* ckpt_other.h - says what a path holds that is no checkpoint of transformers in safetensors. */
#ifndef OSH_CKPT_OTHER_H
#define OSH_CKPT_OTHER_H
#include "base/base.h"

/* Fails with what the path is: a file, an adapter, weights in another format, a directory of the
 * Hub's cache. `lacks`: what was looked for in it, such as "no config.json". */
osh_status osh_ckpt_refuse_other(osh_ctx *cx, const char *path, const char *lacks);
#endif
