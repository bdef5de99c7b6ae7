/* ckpt_replace.h - replaces a stored tensor of a checkpoint by a virtual tensor with the same
 * index. */
#ifndef OSH_CKPT_REPLACE_H
#define OSH_CKPT_REPLACE_H
#include "io/checkpoint.h"

/* Replaces a stored tensor by a virtual tensor of the same name, with the dtype and shape of
 * `like`. The indices of tensors do not change. Sets *made to the virtual tensor. *made is a view
 * that is valid until the next virtual tensor is added. */
osh_status osh_checkpoint_replace(osh_ctx *cx, osh_ckpt_virtual **made, osh_checkpoint *ck,
                                  int64_t tensor, const osh_entry *like);
#endif
