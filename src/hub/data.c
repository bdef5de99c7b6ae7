/* data.c - finds data sets by name. A name can be a name of LLM Compressor or org/name on the Hub.
 * For a name of LLM Compressor, the text of a row is made as LLM Compressor makes it.
 *
 *   HF_HOME/oneshot/rows/openai--gsm8k/main/train%5B%3A512%5D.512.jsonl   rows of one request */
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "hub/rows.h"
#include "data/shape.h"
#include "data/split.h"

typedef struct registered {
    const char *name, *id;
    const char *config;  // default configuration
    const char *text;    // template for the text of a row (rows.h)
    const char *chat;    // name of the column that contains conversations
    const char *suffix;  // end of the split names, such as "_sft" in train_sft and test_sft
    bool system_first;
    /* Reason why the rows cannot be read as LLM Compressor reads them; NULL: none. */
    const char *refused;
    bool never; // true: `refused` applies even if the caller gives a column or a template
} registered;
static const char fixed_prompts[] =
    "LLM Compressor puts fixed prompts around its rows, but this version does not: want "
    "--text-template, such as '{{ instruction }}\n{{ output }}'";
static const char no_text[] = "it has images or sound, and only text is read";
#define CNN "Article:\n{article}\n\n### Summarization:\n{highlights}\n"
#define ULTRACHAT                                                                                  \
    "HuggingFaceH4/ultrachat_200k", .chat = "messages", .suffix = "_sft", .system_first = true
/* Names as LLM Compressor spells them, but with - instead of _. */
static const registered known[] = {
    {.name = "c4", .id = "allenai/c4"},
    {.name = "wikitext", .id = "Salesforce/wikitext"},
    {.name = "cnn-dailymail", .id = "abisee/cnn_dailymail", .config = "3.0.0", .text = CNN},
    {.name = "gsm8k", .id = "openai/gsm8k", .text = "Question: {question}\nAnswer: {answer}"},
    {.name = "ultrachat-200k", .id = ULTRACHAT},
    {.name = "ultrachat", .id = ULTRACHAT},
    {.name = "perfectblend", .id = "mlabonne/open-perfectblend", .chat = "conversations"},
    {.name = "open-platypus", .id = "garage-bAInd/Open-Platypus", .refused = fixed_prompts},
    {.name = "evolcodealpaca", .id = "theblackcat102/evol-codealpaca-v1", .refused = fixed_prompts},
    {.name = "flickr", .id = "lmms-lab/flickr30k", .refused = no_text, .never = true},
    {.name = "flickr30k", .id = "lmms-lab/flickr30k", .refused = no_text, .never = true},
    {.name = "peoples-speech", .id = "MLCommons/peoples_speech", .refused = no_text, .never = true},
};

static const registered *registered_find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *a = known[i].name, *b = name;
        for (; *a && *b; a++, b++)
            if (*a != (*b == '_' || *b == ' ' ? '-' : tolower((unsigned char)*b))) break;
        if (!*a && !*b) return &known[i];
    }
    return NULL;
}

static void registered_take(osh_hub_rows *rows, const registered *r)
{
    rows->text = r->text, rows->chat = r->chat, rows->system_first = r->system_first;
}

bool osh_hub_rows_registered(osh_hub_rows *rows, const char *name)
{
    const registered *r = registered_find(name);
    if (!r || r->refused) return false;
    *rows = (osh_hub_rows){.id = r->id, .config = r->config};
    registered_take(rows, r);
    return true;
}

/* Appends "/" and the text, encoded so that it is the name of one file or directory. */
static osh_status path_add_part(osh_ctx *cx, osh_buf *b, const char *text)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "/%s", text[0] == '.' ? "%2E" : ""));
    OSH_TRY(osh_http_encode(cx, b, text + (text[0] == '.'), ""));
done:
    return rc;
}

/* Sets *out (own) to the path of the file for the requested rows. The path depends only on the
 * request, so a later run finds the rows without a network. */
static osh_status rows_path(osh_ctx *cx, char **out, const osh_hub *hub, const osh_hub_rows *rows)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    int n = (int)strcspn(rows->id, "/");
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "%s/oneshot/rows/%.*s--%s%s", hub->home, n, rows->id,
                           rows->id + n + 1,
                           rows->text ? "--text" : rows->chat ? "--chat" : ""));
    OSH_TRY(path_add_part(cx, &b, rows->config ? rows->config : "-"));
    OSH_TRY(path_add_part(cx, &b, rows->splits));
    if (rows->most) OSH_TRY(osh_buf_printf(cx, &b, ".%lld", (long long)rows->most));
    OSH_TRY(osh_buf_printf(cx, &b, ".jsonl"));
    if (!(*out = osh_strdup(cx, b.data))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status rows_check_request(osh_ctx *cx, const osh_hub_data *d, const osh_hub_rows *rows,
                                     const char *revision)
{
    osh_status rc = OSH_OK;
    bool unused;
    if (strcmp(revision, "main"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: the server of rows has only the revision main",
                 d->dataset);
    OSH_TRY(osh_split_check(cx, &unused, rows->splits));
    if (d->any_number && !osh_split_is_sliced(rows->splits))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: a data set by name needs a number of rows: want --splits '%s[:N]', or "
                 "--num-calibration-samples",
                 d->dataset, rows->splits);
    if (d->shuffle && !osh_split_is_sliced(rows->splits))
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s: a shuffle of a data set by name needs a number of rows: want --splits '%s[:N]'",
            d->dataset, rows->splits);
done:
    return rc;
}

/* Sets *out (own) to a copy of `splits`. The suffix of the data set is added to each split name
 * "train" or "test": "train[:8]+test" becomes "train_sft[:8]+test_sft". */
static osh_status registered_splits(osh_ctx *cx, char **out, const registered *r,
                                    const char *splits)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    size_t n;
    const char *part, *given = splits ? splits : "train";
    osh_buf_init(&b, 0);
    for (int i = 0; (part = osh_split_part(given, i, &n)); i++) {
        size_t name = strcspn(part, "[+ ");
        if (name > n) name = n;
        bool bare =
            (name == 5 && !memcmp(part, "train", 5)) || (name == 4 && !memcmp(part, "test", 4));
        const char *suffix = r && r->suffix && bare ? r->suffix : "";
        OSH_TRY(osh_buf_printf(cx, &b, "%s%.*s%s%.*s", i ? "+" : "", (int)name, part, suffix,
                               (int)(n - name), part + name));
        if (*suffix)
            osh_log(cx, OSH_LOG_INFO, "%s: the split %.*s is %.*s%s", r->id, (int)name, part,
                    (int)name, part, suffix);
    }
    if (!(*out = osh_strdup(cx, b.data ? b.data : ""))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Sets *path (own) to the file with the requested rows. Downloads the rows if the file does not
 * exist. */
static osh_status rows_find(osh_ctx *cx, char **path, const osh_hub_rows *rows, const char *dataset,
                            osh_env_fn env)
{
    osh_status rc = OSH_OK;
    osh_hub *hub = NULL; // own
    char *to = NULL;     // own
    OSH_TRY(osh_hub_open(cx, &hub, env));
    OSH_TRY(rows_path(cx, &to, hub, rows));
    if (!osh_file_exists(to)) {
        if (hub->offline)
            OSH_FAIL(
                cx, OSH_E_IO,
                "%s: is not a file, its rows are not in %s/oneshot/rows, and HF_HUB_OFFLINE is set",
                dataset, hub->home);
        OSH_TRY(osh_hub_rows_get(cx, to, hub, rows));
    }
    osh_log(cx, OSH_LOG_INFO, "%s is %s", dataset, to);
    *path = to, to = NULL; // give
done:
    osh_free(cx, to);
    osh_hub_close(cx, hub);
    return rc;
}

osh_status osh_hub_dataset(osh_ctx *cx, char **path, const osh_hub_data *d, osh_env_fn env)
{
    osh_status rc = OSH_OK;
    osh_hub_name name = {0}; // own
    char *splits = NULL;     // own
    bool is_name = false;
    const registered *r = NULL;
    *path = NULL;
    if (osh_file_exists(d->dataset) || osh_dir_exists(d->dataset)) goto done;
    if (!(r = registered_find(d->dataset)) && !osh_data_kind(d->dataset) &&
        !osh_data_is_columns(d->dataset))
        OSH_TRY(osh_hub_name_read(cx, &name, &is_name, d->dataset));
    if (!r && !is_name) goto done; // the text is a path, and the file does not exist
    if (r && r->refused && (r->never || !d->own_text))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s is %s: %s", d->dataset, r->id, r->refused);
    if (d->wants_split && !d->splits)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s is a data set of the Hub: want --splits, such as 'test[:100]'", d->dataset);
    OSH_TRY(registered_splits(cx, &splits, r, d->splits));
    osh_hub_rows rows = {
        .id = r ? r->id : name.id, .config = d->config, .splits = splits, .most = d->n_samples};
    if (r && !rows.config) rows.config = r->config;
    if (r && !d->own_text) registered_take(&rows, r);
    bool needs_all = osh_split_is_sliced(splits) && (d->shuffle || d->concatenate);
    // a shuffle or a concatenation uses all rows of the slices; other jobs need only n_samples rows
    if (needs_all) rows.most = 0;
    OSH_TRY(rows_check_request(cx, d, &rows, r ? "main" : name.revision));
    OSH_TRY(rows_find(cx, path, &rows, d->dataset, env));
done:
    osh_free(cx, splits);
    osh_hub_name_deinit(cx, &name);
    return rc;
}
