/* loader.h - declares the loader, which makes samples of the rows of a data set. dataset.c and
 * dataset_windows.c use it. */
#ifndef OSH_LOADER_H
#define OSH_LOADER_H
#include "data/dataset_row.h"

typedef struct osh_loader {
    const osh_dataset_options *opt; // view
    osh_row_reader rows;
    osh_ids ids;      // own; tokens of all samples, in order
    int64_t *offsets; // own; [n + 1] offsets of the samples in `ids`
    int64_t n, cap;   // n: number of samples; cap: number of samples for which `offsets` has room
    int64_t n_seen;   // number of rows read so far
    int64_t from, to; // Range of rows to read. `from`: first row; `to`: the row after the last row.
    int64_t n_skip;   // number of samples to drop at the beginning
    int64_t n_skipped;
} osh_loader;

osh_status osh_dataset_check_options(osh_ctx *cx, const osh_dataset_options *opt);
osh_status osh_loader_init(osh_ctx *cx, osh_loader *l, osh_tokenizer *tok,
                           const osh_dataset_options *opt);
void osh_loader_deinit(osh_ctx *cx, osh_loader *l);
/* Reads rows in the order of the file until there are `limit` samples. If limit is 0, reads all
 * rows. */
osh_status osh_loader_read_in_order(osh_ctx *cx, osh_loader *l, int64_t limit);
osh_status osh_loader_check_any(osh_ctx *cx, const osh_loader *l); // fails if there is no sample
void osh_loader_give_samples(osh_loader *l, osh_dataset *out); // moves the samples to *out
#endif
