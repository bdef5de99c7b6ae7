/* dataset_row.h - converts one line of a data file to token ids while the line is read, piece by
 * piece. */
#ifndef OSH_DATASET_ROW_H
#define OSH_DATASET_ROW_H
#include "data/dataset.h"
#include "data/lines.h"

struct osh_chat;

typedef enum {
    OSH_ROW_UNKNOWN, OSH_ROW_TEXT, OSH_ROW_IDS, OSH_ROW_CHAT, OSH_ROW_COLUMNS
} osh_row_kind;

typedef struct osh_row_reader {
    const osh_dataset_options *opt; // view
    osh_tokenizer *tok;             // view: tokenizer; NULL if the rows have input_ids
    bool json;                      // true: rows are JSON objects; false: rows are text
    bool cut_ids;                   // true: input_ids are cut to max_seq_length; text is always cut
    osh_row_kind kind;              // kind of all rows; known after the first row
    struct osh_chat *chat;          // own: template of the kinds OSH_ROW_CHAT and OSH_ROW_COLUMNS
    osh_ids special; // own: ids of the special tokens before a text, then of those after a text
    int64_t n_before;               // number of special tokens before a text
} osh_row_reader;

/* Initializes a reader. Fails if the name of the file has no known ending (shape.h). */
osh_status osh_row_reader_init(osh_ctx *cx, osh_row_reader *r, const osh_dataset_options *opt,
                               osh_tokenizer *tok);
void osh_row_reader_deinit(osh_ctx *cx, osh_row_reader *r);
/* Opens the chat template for rows with conversations. Sets r->kind to OSH_ROW_CHAT. */
osh_status osh_row_reader_chat(osh_ctx *cx, osh_row_reader *r);
/* Finds the kind of the rows from the current line. Does nothing if the kind is known. */
osh_status osh_row_look(osh_ctx *cx, osh_row_reader *r, osh_lines *lines);
/* Opens the lines of opt->path. For a .csv, the lines have only the columns that the options
 * need. */
osh_status osh_row_lines_open(osh_ctx *cx, osh_lines **out, const osh_dataset_options *opt);
/* Appends the tokens of the current line to ids. Sets *blank to true if the line is only white
 * space, which is not a row. */
osh_status osh_row_read(osh_ctx *cx, osh_row_reader *r, osh_ids *ids, osh_lines *lines,
                        bool *blank);
/* Fails if an id in ids[from], ids[from + 1], ... is not in [0, n_vocab). `where` is the name of
 * the row or file in the message. */
osh_status osh_ids_check(osh_ctx *cx, const osh_ids *ids, int64_t from, int64_t n_vocab,
                         const char *where);
#endif
