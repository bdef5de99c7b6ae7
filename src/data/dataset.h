/* dataset.h - converts calibration and evaluation text to token sequences.
 *
 * A row of a .jsonl or .json holds text (in text_column, or "text") or input_ids; an
 * attention_mask, if any, says which of the input_ids count. The first row decides for all rows.
 * Without text_column, input_ids are preferred to text. Lines of white space are not rows. A record
 * of a .csv holds text, in text_column, or "text". Rows with a conversation (chat.h) and neither of
 * these are rendered with the model's chat template, and no special token is added. With
 * text_template, rows are rendered from their columns. */
#ifndef OSH_DATASET_H
#define OSH_DATASET_H
#include "tokenizer/tokenizer.h"

typedef struct osh_dataset {
    int32_t *ids;     // own; tokens of all samples, in order
    int64_t *offsets; // own; [n + 1]
    int64_t n;        // samples
} osh_dataset;

typedef struct osh_dataset_options { // LLM Compressor's arguments
    const char *path;        // .jsonl .json .csv .txt, each also .zst or .gz
    const char *text_column; // NULL: input_ids, or "text" if there are none
    const char *text_template; // template over the columns of a row; NULL: none
    const char *model_dir;   // has the chat template for conversations; NULL: none
    const char *chat_date;   // date for templates (jinja.h)
    const char *split;       // rows, e.g. "train[:512]" (split.h); NULL: all
    int64_t num_samples;     // 0: all; rows, or blocks if they are concatenated
    int64_t max_seq_length;  // tokens, > 0
    int64_t batch_size;      // for the truncation collator
    bool shuffle;
    uint64_t seed;
    bool concatenate, pad_to_max_length; // padding is never stored or counted
    const char *collator;    // NULL or "none", "truncation", "padding"
    int64_t n_vocab;         // an id outside is an error with its line; 0: unknown
} osh_dataset_options;

/* Loads calibration samples. Each non-empty line of a .txt is a sample. tok may be NULL if the rows
 * hold input_ids. */
osh_status osh_dataset_load(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                            const osh_dataset_options *opt);
/* Loads evaluation samples. A .txt is tokenized as a whole, without special tokens, and cut into
 * windows of max_seq_length that begin every stride tokens (0: max_seq_length). The last partial
 * window is dropped, and windows [first, first + count) are kept (count 0: all). A row of a .jsonl
 * is a sample, cut to max_seq_length; first and count then choose rows, and a stride is an error.
 * num_samples, shuffle, concatenate, pad_to_max_length and collator are ignored. */
typedef struct osh_dataset_windows { int64_t first, count, stride; } osh_dataset_windows;
osh_status osh_dataset_load_eval(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                                 const osh_dataset_options *opt, const osh_dataset_windows *which);
/* Copies at most the first `length` tokens of the first n samples of d. */
osh_status osh_dataset_head(osh_ctx *cx, osh_dataset *out, const osh_dataset *d, int64_t n,
                            int64_t length);
void osh_dataset_deinit(osh_ctx *cx, osh_dataset *d);
#endif
