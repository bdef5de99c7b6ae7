/* process.c - sets the environment variables that a job needs. In the options of the job, replaces
 * names of models by directories and names of data sets by files. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "data/mix.h"

static osh_status find_models(osh_ctx *cx, osh_ctx *work, const osh_named *n, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    static const char *const names[] = {"model", "reference"};
    char *dir = NULL; // own
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const osh_field *f = osh_field_find(n->fields, names[i]);
        char **at = f ? (char **)(void *)((char *)n->options + f->offset) : NULL;
        if (!at || !*at) continue;
        OSH_TRY(osh_hub_model(work, &dir, *at, n->headers, env));
        osh_free(cx, *at);
        if (!(*at = osh_strdup(cx, dir))) OSH_TRY(OSH_E_NOMEM);
        osh_free(work, dir), dir = NULL;
    }
done:
    osh_free(work, dir);
    return rc;
}

/* Replaces the name of a data set by the path of a file that has only the requested rows. */
static osh_status find_data(osh_ctx *cx, osh_ctx *work, char **dataset, char **splits,
                            const osh_hub_data *d, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    OSH_TRY(osh_hub_dataset(work, &path, d, env));
    if (!path && d->config)
        OSH_FAIL(work, OSH_E_USAGE,
                 "--dataset-config-name %s: --dataset %s is a file, which has no configurations",
                 d->config, d->dataset);
    if (!path) goto done;
    osh_free(cx, *dataset), *dataset = NULL;
    osh_free(cx, *splits), *splits = NULL;
    if (!(*dataset = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(work, path);
    return rc;
}

/* Extends the list to n items: repeats its only item, or appends empty texts. */
static osh_status strs_spread(osh_ctx *cx, osh_strs *list, size_t n)
{
    osh_status rc = OSH_OK;
    if (list->n >= n) goto done;
    char **items = osh_realloc(cx, list->items, n * sizeof *items);
    if (!items) OSH_TRY(OSH_E_NOMEM);
    list->items = items;
    for (; list->n < n; list->n++)
        if (!(items[list->n] = osh_strdup(cx, list->n ? items[0] : ""))) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

/* State while the data sets of a run are found. */
typedef struct finding {
    osh_ctx *work;
    osh_options *o;
    osh_mix mix;  // own
    size_t n_hub; // number of data sets that have a name of the Hub
    osh_env_fn env;
} finding;

/* Replaces the name of data set i by the path of a file that has only the requested rows. Sets the
 * splits of the data set to an empty text. */
static osh_status find_set(osh_ctx *cx, finding *f, size_t i)
{
    osh_status rc = OSH_OK;
    osh_ctx *work = f->work;
    osh_options *o = f->o;
    const osh_mix *m = &f->mix;
    char **text = &o->dataset.items[i], *path = NULL, *splits = NULL, *share = NULL; // own
    const char *given = osh_mix_item(&o->splits, i);
    const char *config = osh_mix_item(&o->dataset_config_name, i);
    int64_t asked = osh_samples_asked(o);
    const osh_hub_data d = {.dataset = m->sets[i].path,
                            .config = config,
                            .splits = given,
                            .n_samples = osh_mix_quota(m, i, asked),
                            .shuffle = o->shuffle_calibration_samples,
                            .concatenate = o->concatenate_data,
                            .any_number = !asked,
                            .own_text = m->sets[i].text_column || m->sets[i].text_template};
    OSH_TRY(osh_hub_dataset(work, &path, &d, f->env));
    if (!path && config && o->dataset_config_name.n == m->n)
        OSH_FAIL(work, OSH_E_USAGE,
                 "--dataset-config-name %s: --dataset %s is a file, which has no configurations",
                 config, d.dataset);
    if (!path) goto done;
    f->n_hub++;
    if (!(share = osh_sprintf(cx, "%s%s", path, *text + strlen(m->sets[i].path))) ||
        !(splits = osh_strdup(cx, "")))
        OSH_TRY(OSH_E_NOMEM);
    osh_free(cx, *text), *text = share, share = NULL;
    if (o->splits.n) OSH_TRY(strs_spread(cx, &o->splits, m->n));
    if (o->splits.n) osh_free(cx, o->splits.items[i]), o->splits.items[i] = splits, splits = NULL;
done:
    osh_free(work, path);
    osh_free(cx, splits);
    osh_free(cx, share);
    return rc;
}

/* Replaces the names of calibration data sets by files. */
static osh_status find_calibration(osh_ctx *cx, osh_ctx *work, osh_options *o, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    finding f = {.work = work, .o = o, .env = env}; // own
    const osh_strs *configs = &o->dataset_config_name;
    const osh_mix_texts texts = {&o->dataset, &o->splits, &o->text_column, &o->text_template};
    if (!o->dataset.n) goto done;
    OSH_TRY(osh_mix_check_list(work, configs, o->dataset.n, "--dataset-config-name"));
    OSH_TRY(osh_mix_read(work, &f.mix, &texts));
    for (size_t i = 0; i < f.mix.n; i++) OSH_TRY(find_set(cx, &f, i));
    if (!f.n_hub && configs->n)
        OSH_FAIL(work, OSH_E_USAGE,
                 "--dataset-config-name %s: all data sets are files, which have no configurations",
                 configs->items[0]);
done:
    osh_mix_deinit(work, &f.mix);
    return rc;
}

static osh_status find_evaluation(osh_ctx *cx, osh_ctx *work, osh_eval_options *o, osh_env_fn env)
{
    /* `most`: number of windows that the data must have, including the windows that are skipped */
    int64_t most = o->max_windows;
    if (most && __builtin_add_overflow(most, o->first_window, &most)) most = 0;
    const osh_hub_data d = {.dataset = o->dataset,
                            .config = o->dataset_config_name,
                            .splits = o->splits,
                            .n_samples = most,
                            .wants_split = true,
                            .own_text = o->text_column || o->text_template};
    return o->dataset ? find_data(cx, work, &o->dataset, &o->splits, &d, env) : OSH_OK;
}

/* Finds models and data sets by name (api.h). The limit of --host-memory applies to this work,
 * too. */
osh_status osh_names_find(osh_ctx *cx, osh_ctx *work, const osh_named *n, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    const osh_field *f = osh_field_find(n->fields, "host_memory");
    int64_t budget = f ? *(const int64_t *)(const void *)((const char *)n->options + f->offset) : 0;
    osh_mem_hold(work, budget, OSH_MEM_LEAST);
    if (osh_ranks_me(n->ranks)) OSH_TRY(osh_ranks_barrier(work, n->ranks));
    OSH_TRY(find_models(cx, work, n, env));
    if (n->fields == osh_option_fields) OSH_TRY(find_calibration(cx, work, n->options, env));
    if (n->fields == osh_eval_fields) OSH_TRY(find_evaluation(cx, work, n->options, env));
    if (!osh_ranks_me(n->ranks)) OSH_TRY(osh_ranks_barrier(work, n->ranks));
done:
    // removes the memory limit, which the job sets again
    if (budget > 0) osh_mem_limit(work, OSH_MEM_HOST, 0);
    return osh_mem_refused(work, rc, budget);
}

/* Sets the variables of OpenBLAS (api.h). OpenBLAS is opened later, by dlopen, and then reads the
 * variables. */
osh_status osh_isa_of_process(osh_ctx *cx, const char *isa)
{
    osh_status rc = OSH_OK;
    const char *core = NULL;
    OSH_TRY(osh_isa_select(cx, &core, isa));
    /* OpenBLAS gets one thread, because the program runs several matrix multiplications in
     * parallel. */
    if (setenv("OPENBLAS_CORETYPE", core, 1) || setenv("OPENBLAS_NUM_THREADS", "1", 1))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a variable of the environment");
done:
    return rc;
}
