/* check_logits.h - compares the logits of a model with those of a file, for check-model. */
#ifndef OSH_CHECK_LOGITS_H
#define OSH_CHECK_LOGITS_H
#include "base/buf.h"
#include "base/base.h"

/* Appends a line to the buffer: the largest difference of the logits. Fails with OSH_E_NUMERIC if
 * the model has F32 weights and the difference exceeds 5e-6 of the largest |logit|. The caller has
 * called osh_isa_load. */
osh_status osh_check_logits(osh_ctx *cx, osh_buf *b, const char *dir, const char *file,
                            const char *models_dir);
#endif
