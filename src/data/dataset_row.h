/* dataset_row.h - one line of a data file to token ids, for dataset.c: as it is read, a piece at a time. */
#ifndef OSH_DATASET_ROW_H
#define OSH_DATASET_ROW_H
#include "data/dataset.h"
#include "data/lines.h"

struct osh_chat;

typedef enum { OSH_ROW_UNKNOWN, OSH_ROW_TEXT, OSH_ROW_IDS, OSH_ROW_CHAT, OSH_ROW_COLUMNS } osh_row_kind;

typedef struct osh_row_reader {
    const osh_dataset_options *opt; // view
    osh_tokenizer *tok;             // view; may be NULL
    bool json;                      // rows are JSON objects; otherwise text as it stands
    bool cut_ids;                   // input_ids are cut to max_seq_length, as text always is
    osh_row_kind kind;              // of all rows, once the first one was looked at
    struct osh_chat *chat;          // own: of OSH_ROW_CHAT and OSH_ROW_COLUMNS
    osh_ids special;                // own: ids before and behind a text
    int64_t n_before;               // of these, before it
} osh_row_reader;

/* Any name but those of shape.h's kinds is an error. */
osh_status osh_row_reader_init(osh_ctx *cx, osh_row_reader *r, const osh_dataset_options *opt, osh_tokenizer *tok);
void osh_row_reader_deinit(osh_ctx *cx, osh_row_reader *r);
/* What the rows hold, by this line. Nothing where that is known. */
osh_status osh_row_look(osh_ctx *cx, osh_row_reader *r, osh_lines *lines);
osh_status osh_row_lines_open(osh_ctx *cx, osh_lines **out, const osh_dataset_options *opt);
/* Appends the tokens of this line to ids. *blank: it is white space and no row. */
osh_status osh_row_read(osh_ctx *cx, osh_row_reader *r, osh_ids *ids, osh_lines *lines, bool *blank);
/* Every id from ids[from] on must be in [0, n_vocab). where names the place. */
osh_status osh_ids_check(osh_ctx *cx, const osh_ids *ids, int64_t from, int64_t n_vocab, const char *where);
#endif
