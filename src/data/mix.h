/* mix.h - loads calibration samples from several data sets, each with a share of the samples.
 *
 *   a.jsonl, b.jsonl:0.3, c.jsonl:0.1      a.jsonl has no number, so its share is the rest, 0.6
 *
 * Data sets without a number divide the rest into equal shares. The samples are taken one after the
 * other. Each data set has a credit. Before each sample, each credit grows by the share of its data
 * set. The next sample comes from the data set with the largest credit. If several data sets have
 * the largest credit, it comes from the first of them. The credit of the chosen data set then falls
 * by 1. If the chosen data set has no more samples, its turn is skipped. */
#ifndef OSH_MIX_H
#define OSH_MIX_H
#include "base/field.h"
#include "data/dataset.h"

typedef struct osh_data_set {
    char *path; // own
    char *name; // own: last part of the path, or the name of a data set of the Hub
    const char *split, *text_column, *text_template; // views; NULL: none
    int64_t weight; // the data set's share is weight / osh_mix.total
    int64_t n_samples, n_tokens; // samples that the data set gave; 0 before osh_mix_load
    int64_t n_skipped;           // turns in which the data set had no more samples
} osh_data_set;

typedef struct osh_mix {
    osh_data_set *sets; // own
    size_t n;
    int64_t total; // sum of the weights
    /* Set by the caller: number of tokens that count (osh_dataset.counted); 0: all tokens count. */
    int64_t n_counted;
} osh_mix;

typedef struct osh_mix_texts {                            // texts of the user; all are views
    const osh_strs *sets;                                 // data sets, such as "b.jsonl:0.3"
    /* views; each list has one item for all data sets, or one item for each data set */
    const osh_strs *splits, *text_column, *text_template;
} osh_mix_texts;

/* Reads the texts of data sets and computes the shares. osh_mix_deinit frees *out. */
osh_status osh_mix_read(osh_ctx *cx, osh_mix *out, const osh_mix_texts *texts);
void osh_mix_deinit(osh_ctx *cx, osh_mix *m);
/* Returns the length of the path in a text such as "b.jsonl:0.3". Returns the length of the whole
 * text if the whole text is the path of a file or directory, or if no number comes after the last
 * colon. */
size_t osh_mix_path_bytes(const char *text);
/* Returns the value of an option for data set i: item i of the list, or its only item. Returns NULL
 * if the list or the item is empty. */
const char *osh_mix_item(const osh_strs *list, size_t i);
/* Fails unless the list has 0, 1 or n items. `flag` is the name of the list's option. */
osh_status osh_mix_check_list(osh_ctx *cx, const osh_strs *list, size_t n, const char *flag);
/* Returns the largest number of samples that data set i can give if all data sets together give
 * n_samples samples. If n_samples is 0, the data sets give all their samples, and the function
 * returns 0. */
int64_t osh_mix_quota(const osh_mix *m, size_t i, int64_t n_samples);
/* Returns the share of the data set, from 0 to 1. */
double osh_mix_share(const osh_mix *m, const osh_data_set *s);
/* Loads the samples. Fails if two data sets have the same rows, which is a mistake. The members
 * path, split, text_column and text_template of `opt` are ignored; the other members are for all
 * data sets. */
osh_status osh_mix_load(osh_ctx *cx, osh_dataset *out, osh_mix *m, osh_tokenizer *tok,
                        const osh_dataset_options *opt);
#endif
