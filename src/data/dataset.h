/* dataset.h - converts calibration and evaluation text to token sequences.
 *
 * A row of a .jsonl, .json or .parquet has text (in text_column, or "text") or input_ids. If a row
 * has an attention_mask, the mask selects the input_ids that are used. All rows must be of the kind
 * of the first row. If a row has input_ids and text, and no text_column is given, the input_ids are
 * used. Lines of white space are not rows. A record of a .csv has text in text_column, or "text".
 * If a row has a conversation (chat.h), but neither text nor input_ids, it is rendered with the
 * model's chat template. No special token is added to the result. If text_template is given, rows
 * are rendered from their columns.
 *
 * With the option `answers`, only some tokens are counted. In conversations these are the tokens of
 * the assistant's answers (chat/answers.c); in rows with input_ids they are the tokens with a 1 in
 * the column loss_mask. */
#ifndef OSH_DATASET_H
#define OSH_DATASET_H
#include "tokenizer/tokenizer.h"

typedef struct osh_dataset {
    int32_t *ids;     // own; tokens of all samples, in order
    int64_t *offsets; // own; [n + 1] offsets of the samples in `ids`
    int64_t n;        // number of samples
    /* 1 for tokens that statistics and losses count, else 0; NULL: all tokens count. */
    uint8_t *counted; // own [tokens]
} osh_dataset;

typedef struct osh_dataset_options { // LLM Compressor's arguments
    /* Path of a data file, or of a directory of data files. Kinds: .parquet, .jsonl, .json, .csv
     * and .txt. All except .parquet may have .zst or .gz after the ending. */
    const char *path;
    /* Name of the column with the text. NULL: the input_ids are used, or the column "text" if the
     * rows have no input_ids. */
    const char *text_column;
    const char *text_template; // template over the columns of a row; NULL: no template
    /* Directory of the model whose chat template renders conversations; NULL: none. */
    const char *model_dir;
    const char *chat_date;   // date that chat templates print (jinja.h)
    const char *split;       // rows to use, such as "train[:512]" (split.h); NULL: all
    int64_t num_samples;     // number of rows, or of blocks if rows are concatenated; 0: all
    /* Number of tokens after which no more samples are taken; 0: all samples are taken. */
    int64_t num_tokens;
    int64_t max_seq_length;  // largest size of a sample in tokens, > 0
    int64_t batch_size;      // number of samples that the truncation collator cuts to one length
    bool shuffle;
    uint64_t seed;
    /* pad_to_max_length changes only how samples are cut; no padding is stored or counted. */
    bool concatenate, pad_to_max_length;
    bool answers;            // true: finds the tokens to count (osh_dataset.counted)
    const char *collator;    // name of the collator: "none", "truncation" or "padding"; NULL: none
    /* Size of the vocabulary. An id outside of [0, n_vocab) is an error that names the line. 0: ids
     * are not checked. */
    int64_t n_vocab;
} osh_dataset_options;

/* Loads calibration samples. Each non-empty line of a .txt is a sample. tok may be NULL if the rows
 * have input_ids. */
osh_status osh_dataset_load(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                            const osh_dataset_options *opt);
/* Loads calibration samples like osh_dataset_load, without a collator. Sets *texts to true if the
 * rows are texts. With `answers`, the id of a token that does not count is marked: it is stored as
 * ~id, which is negative. So functions that move ids move the marks, too. osh_dataset_unmark
 * converts the marks to d->counted. */
osh_status osh_dataset_read(osh_ctx *cx, osh_dataset *out, bool *texts, osh_tokenizer *tok,
                            const osh_dataset_options *opt);
osh_status osh_dataset_unmark(osh_ctx *cx, osh_dataset *d);
/* Returns the number of counted tokens in samples [first, end). */
int64_t osh_dataset_n_counted(const osh_dataset *d, int64_t first, int64_t end);
/* Cuts the samples as the collator of `opt` does. `texts`: true if the rows are texts. */
void osh_dataset_collate(osh_dataset *d, const osh_dataset_options *opt, bool texts);
/* Loads evaluation samples. A .txt is tokenized as a whole, without special tokens. Its tokens are
 * cut into windows of max_seq_length tokens that begin `stride` tokens apart (0: max_seq_length). A
 * partial window at the end is dropped, and windows [first, first + count) are kept (count 0: all).
 * In a file of another kind, each row is a sample, cut to max_seq_length. `first` and `count` then
 * choose rows, and a `stride` other than max_seq_length is an error. The options num_samples,
 * shuffle, concatenate, pad_to_max_length and collator are ignored. */
typedef struct osh_dataset_windows { int64_t first, count, stride; } osh_dataset_windows;
osh_status osh_dataset_load_eval(osh_ctx *cx, osh_dataset *out, osh_tokenizer *tok,
                                 const osh_dataset_options *opt, const osh_dataset_windows *which);
/* Sets *n_rows to the number of rows of the data set, without reading their contents. Stops
 * counting at `most` rows; if `most` is 0, counts all rows. */
osh_status osh_dataset_count(osh_ctx *cx, int64_t *n_rows, const osh_dataset_options *opt,
                             int64_t most);
/* Copies the first n samples of d to *out (own), each cut to at most `length` tokens. All tokens of
 * the copy are counted. */
osh_status osh_dataset_head(osh_ctx *cx, osh_dataset *out, const osh_dataset *d, int64_t n,
                            int64_t length);
void osh_dataset_deinit(osh_ctx *cx, osh_dataset *d);
#endif
