/* dataset.h - calibration and evaluation text to token sequences.
 *
 * A row of a .jsonl or .json holds text (the column text_column, or "text") or input_ids, then its attention_mask, if
 * any, says which of them count; the first row decides for all. Without text_column input_ids win over text. Lines of
 * white space are no rows. A record of a .csv holds text, in the column text_column, or "text". Rows with neither, but
 * with a conversation (chat.h), become what the model's chat template makes of it, with no special token added; with
 * text_template rows become what that makes of their columns. */
#ifndef OSH_DATASET_H
#define OSH_DATASET_H
#include "tokenizer/tokenizer.h"

typedef struct osh_dataset {
    int32_t *ids;     // all tokens, sample after sample; own
    int64_t *offsets; // [n + 1]; own
    int64_t n;        // samples
} osh_dataset;

typedef struct osh_dataset_options { // LLM Compressor's arguments
    const char *path;        // .jsonl .json .csv .txt, each also .zst or .gz
    const char *text_column; // NULL: input_ids, else "text"
    const char *text_template; // over the columns of a row; NULL: none
    const char *model_dir;   // whose chat template renders conversations; NULL: they are not read
    const char *chat_date;   // that templates see (jinja.h)
    const char *split;       // rows, such as "train[:512]" (split.h); NULL: all
    int64_t num_samples;     // 0: all; rows, or blocks when concatenating
    int64_t max_seq_length;  // tokens, > 0
    int64_t batch_size;      // of the collators that look at a batch
    bool shuffle;
    uint64_t seed;
    bool concatenate, pad_to_max_length; // padding is never stored: it is never counted
    const char *collator;    // NULL or "none", "truncation", "padding"
    int64_t n_vocab;         // ids outside are an error naming the line; 0: not known
} osh_dataset_options;

/* Calibration samples. A .txt gives one sample per non-empty line. tok may be NULL when the rows hold input_ids. */
osh_status osh_dataset_load(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok, const osh_dataset_options *opt);
/* Evaluation: .txt is tokenized whole without special tokens and cut into windows of max_seq_length every stride tokens
 * (0: max_seq_length), the last partial one dropped, windows [first, first + count) kept (count 0: all). A row of a
 * .jsonl is a sample, cut to max_seq_length; first and count then choose rows, and a stride is an error. num_samples,
 * shuffle, concatenate, pad_to_max_length and collator are not looked at. */
typedef struct osh_dataset_windows { int64_t first, count, stride; } osh_dataset_windows;
osh_status osh_dataset_load_eval(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok, const osh_dataset_options *opt,
                                 const osh_dataset_windows *which);
/* At most the first `length` tokens of the first n samples of d. */
osh_status osh_dataset_head(osh_ctx *cx, osh_dataset *out, const osh_dataset *d, int64_t n, int64_t length);
void osh_dataset_deinit(osh_ctx *cx, osh_dataset *d);
#endif
