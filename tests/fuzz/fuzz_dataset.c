/* fuzz_dataset.c - reads a file of samples. The first byte of the input chooses the kind of the
 * file and the options; the other bytes are the file.
 *
 * The samples must be valid, a second load must give equal samples, and all memory must be freed.
 * The test has no tokenizer, so texts are not tokenized. */
#include "base/file.h"
#include "fuzz/fuzz.h"
#include "data/dataset.h"

#include <unistd.h>

static void dataset_check(const osh_dataset *d, const osh_dataset_options *opt)
{
    CHECK(d->n > 0 && d->offsets[0] == 0);
    for (int64_t i = 0; i < d->n; i++) {
        int64_t len = d->offsets[i + 1] - d->offsets[i];
        CHECK(len > 0);
        if (!opt->collator || strcmp(opt->collator, "padding")) CHECK(len <= opt->max_seq_length);
    }
    for (int64_t i = 0; i < d->offsets[d->n]; i++)
        CHECK(d->ids[i] >= 0 && d->ids[i] < opt->n_vocab);
    if (opt->num_samples) CHECK(d->n <= opt->num_samples);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const ends[] = {"jsonl", "jsonl.zst", "txt",      "txt.zst",
                                       "json",  "csv",       "jsonl.gz", "json.gz"};
    static const char *const collators[] = {NULL, "truncation", "padding", "none"};
    osh_ctx *cx = NULL;
    osh_dataset one = {0}, two = {0};
    char path[64];

    if (!n) return 0;
    cx = fuzz_ctx();
    snprintf(path, sizeof path, "fuzz_dataset_%ld.%s", (long)getpid(),
             ends[(data[0] & 3) + (data[0] >> 7) * 4]);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data + 1, 1, n - 1, f) == n - 1 && !fclose(f));
    osh_dataset_options opt = {.path = path, .max_seq_length = 3, .batch_size = 2, .n_vocab = 100,
                               .seed = 1, .collator = collators[data[0] >> 2 & 3],
                               .shuffle = data[0] >> 4 & 1, .concatenate = data[0] >> 5 & 1,
                               .num_samples = data[0] >> 6 & 1 ? 2 : 0};
    osh_status rc = osh_dataset_load(cx, &one, NULL, &opt);
    CHECK(osh_dataset_load(cx, &two, NULL, &opt) == rc);
    if (!rc) {
        dataset_check(&one, &opt);
        CHECK(one.n == two.n &&
              !memcmp(one.offsets, two.offsets, (size_t)(one.n + 1) * sizeof *one.offsets));
        CHECK(!memcmp(one.ids, two.ids, (size_t)one.offsets[one.n] * sizeof *one.ids));
    }
    osh_dataset_deinit(cx, &one);
    osh_dataset_deinit(cx, &two);
    if (!osh_dataset_load_eval(cx, &one, NULL, &opt, &(osh_dataset_windows){1, 0, 0}))
        CHECK(one.n > 0);
    osh_dataset_deinit(cx, &one);
    fuzz_ctx_free(cx);
    unlink(path);
    return 0;
}
