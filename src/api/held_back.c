/* held_back.c - chooses rows of the data set for the evaluation after a run: the rows directly
 * after the calibration rows. It chooses one row for every SAMPLES_PER_ROW calibration samples, so
 * the evaluation has about 1 / SAMPLES_PER_ROW of the tokens of the calibration. */
#include "api/held_back.h"

#include <stdio.h>
#include <string.h>

#include "api/evaluate.h"
#include "base/file.h"
#include "base/name.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/shape.h"
#include "gpu/gpu.h"

enum { SAMPLES_PER_ROW = 128 };

/* Returns the reason why no rows can be chosen, or NULL if rows can be chosen. */
static const char *held_not(const osh_options *opt)
{
    if (opt->dataset.n > 1) return "calibration uses several data sets";
    if (osh_mix_item(&opt->splits, 0)) return "--splits selects the rows";
    if (opt->shuffle_calibration_samples) return "the rows are shuffled";
    if (opt->concatenate_data) return "rows are joined";
    if (opt->num_calibration_tokens) return "--num-calibration-tokens selects the rows";
    const char *path = opt->dataset.items[0], *kind = osh_data_kind(path);
    if (osh_mix_path_bytes(path) != strlen(path) || !osh_file_exists(path) || !kind ||
        !strcmp(kind, "txt"))
        return "the data set is not a file of rows";
    return NULL;
}

/* True if the run may use a GPU. Then no rows are evaluated, because a run on a GPU is short, and
 * the evaluation would read the source and the output again. */
static bool held_on_gpu(const osh_options *opt)
{
    return opt->device_model || osh_device_is_gpu(opt->device);
}

osh_status osh_held_back_find(osh_ctx *cx, osh_held_back *h, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_samples_asked(opt), count = n / SAMPLES_PER_ROW, n_rows = 0;
    *h = (osh_held_back){.host = 0};
    if (!opt->held_back || opt->eval || !opt->dataset.n || opt->only_largest_layer ||
        opt->ranks || opt->n_ranks > 1 || held_on_gpu(opt))
        goto done;
    h->not = held_not(opt);
    if (h->not || !count) goto done;
    const char *path = opt->dataset.items[0];
    const osh_dataset_options rows = {.path = path,
                                      .text_column = osh_mix_item(&opt->text_column, 0),
                                      .text_template = osh_mix_item(&opt->text_template, 0)};
    OSH_TRY(osh_dataset_count(cx, &n_rows, &rows, n + count));
    if (n_rows <= n) {
        h->not = "calibration uses every row";
        goto done;
    }
    if (n_rows > n + count) n_rows = n + count;
    snprintf(h->splits, sizeof h->splits, "rows[%lld:%lld]", (long long)n, (long long)n_rows);
    if (n_rows == n + 1) snprintf(h->name, sizeof h->name, "row %lld", (long long)n_rows);
    else
        snprintf(h->name, sizeof h->name, "rows %lld to %lld", (long long)n + 1,
                 (long long)n_rows);
    osh_options with = *opt; // views
    with.held_splits = h->splits, with.held_name = h->name;
    OSH_TRY(osh_evaluate_least(cx, &h->host, &with));
    if (opt->host_memory > 0 && h->host > opt->host_memory)
        h->not = "--host-memory is too small for it", *h->splits = 0;
done:
    /* Errors of the model or of the data are ignored here. If the run reads the model and the data,
     * it reports these errors itself. */
    if (rc && rc != OSH_E_NOMEM && rc != OSH_E_INTERRUPTED) {
        osh_error_clear(cx);
        rc = OSH_OK, *h = (osh_held_back){.host = 0};
    }
    return rc;
}
