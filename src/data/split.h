/* split.h - which rows "train[:512]", "train[10%:20%]" or "train[:50]+test[:50]" are. */
#ifndef OSH_SPLIT_H
#define OSH_SPLIT_H
#include "base/base.h"

/* text NULL: all rows. *wants_count: which rows is known when they are counted. Names are not looked at. */
osh_status osh_split_check(osh_ctx *cx, bool *wants_count, const char *text);
const char *osh_split_part(const char *text, int i, size_t *n); // of a sum, *n bytes; view of text; NULL: has no more
bool osh_split_is_sliced(const char *text);                     // every part of it says which rows
/* Rows [*first, *end) of the part, of n_rows; of a text that was checked; false: it has no such part. Without
 * wants_count n_rows may be INT64_MAX. */
bool osh_split_rows(int64_t *first, int64_t *end, const char *text, int i, int64_t n_rows);
#endif
