/* dataset_row.h - one line of a data file to token ids, for dataset.c. */
#ifndef OSH_DATASET_ROW_H
#define OSH_DATASET_ROW_H
#include "text/dataset.h"

typedef enum { OSH_ROW_UNKNOWN, OSH_ROW_TEXT, OSH_ROW_IDS } osh_row_kind;

typedef struct osh_row_reader {
    const osh_dataset_options *opt; // view
    osh_tokenizer *tok;             // view; may be NULL
    bool json;                      // rows are JSON objects; otherwise text as it stands
    bool cut_ids;                   // input_ids are cut to max_seq_length, as text always is
    osh_row_kind kind;              // of all rows, once the first one was read
    int64_t n_suffix;               // special tokens behind a text; < 0: not known yet
} osh_row_reader;

/* .jsonl or .txt, each also .zst; any other name is an error. */
osh_status osh_row_reader_init(osh_ctx *cx, osh_row_reader *r, const osh_dataset_options *opt, osh_tokenizer *tok);
/* Appends the row's tokens to ids. */
osh_status osh_row_encode(osh_ctx *cx, osh_row_reader *r, osh_ids *ids, const char *text, size_t n, int64_t line);
/* Every id from ids[from] on must be in [0, n_vocab). where names the place. */
osh_status osh_ids_check(osh_ctx *cx, const osh_ids *ids, int64_t from, int64_t n_vocab, const char *where);
#endif
