/* split.h - which rows "train[:512]" or "train[10%:20%]" are. */
#ifndef OSH_SPLIT_H
#define OSH_SPLIT_H
#include "base/base.h"

/* text NULL: all rows. *wants_count: which rows is known when they are counted. The name is not looked at. */
osh_status osh_split_check(osh_ctx *cx, bool *wants_count, const char *text);
/* Rows [*first, *end) of n_rows; of a text that was checked. Without wants_count n_rows may be INT64_MAX. */
void osh_split_rows(int64_t *first, int64_t *end, const char *text, int64_t n_rows);
#endif
