/* readme.c - makes README.md of an output: front matter that the Hub reads, a table, and the
 * command of vLLM. The licence is copied from the front matter of the source's README.md. The other
 * text of that file describes the source, so the output's README.md has a link to the source
 * instead of a copy of the text. */
#include "report/readme.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/name.h"
#include "hub/hub.h"
#include "match/loaders.h"
#include "match/padding.h"
#include "output/tuned.h"
#include "quant/source.h"
#include "report/closing.h"
#include "report/report_mix.h"
#include "text/yaml.h"

/* Largest size of front matter in bytes. Larger front matter would need memory that no plan
 * counts. */
enum { MOST_MATTER = 1 << 16 };

/* Returns the length of a line "---" at `s`, with its trailing spaces. Returns 0 if the line has
 * other text. */
static size_t matter_fence(const char *s)
{
    size_t n;
    if (strncmp(s, "---", 3)) return 0;
    n = 3 + strspn(s + 3, " \t\r");
    return s[n] == '\n' || !s[n] ? n : 0;
}

/* Finds the front matter of a text between its two lines of "---". Sets *from to the offset of the
 * first line of the front matter. Returns the number of bytes of the front matter, or 0 if there is
 * none. The text ends with a NUL. */
static size_t matter_find(size_t *from, const char *text)
{
    /* Skips a byte order mark. */
    const char *start = !strncmp(text, "\xef\xbb\xbf", 3) ? text + 3 : text;
    size_t n = matter_fence(start);
    if (!n) return 0;
    *from = (size_t)(start - text) + n;
    for (const char *s = start + n; (s = strchr(s, '\n')); s++)
        if (matter_fence(s + 1)) return (size_t)(s - text) - *from;
    return 0;
}

/* Reads the front matter of the source's README.md. *out (own) is NULL if the file is missing, has
 * no front matter, or has front matter that cannot be read. */
static osh_status source_matter(osh_ctx *cx, osh_yaml **out, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL;                                      // own
    char *path = osh_path_join(cx, ck->dir, OSH_README_NAME);  // own
    char *text = NULL;                                       // own
    *out = NULL;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(path)) goto done;
    OSH_TRY(osh_file_open(cx, &f, path));
    size_t n = (size_t)osh_file_bytes(f);
    if (n > MOST_MATTER) n = MOST_MATTER;
    OSH_NEW(cx, text, n + 1);
    OSH_TRY(osh_file_pread(cx, f, text, n, 0));
    size_t from = 0, len = matter_find(&from, text);
    if (!len) {
        if (n == MOST_MATTER && !strncmp(text, "---", 3))
            osh_log(
                cx, OSH_LOG_WARN,
                "%s: the licence is not copied, because the front matter has more than %d bytes",
                path, MOST_MATTER);
        goto done;
    }
    rc = osh_yaml_parse(cx, out, text + from, len, path);
    if (rc && rc != OSH_E_NOMEM) {
        osh_log(cx, OSH_LOG_WARN,
                "%s: the licence is not copied, because the front matter cannot be read: %s", path,
                osh_error_text(cx));
        osh_error_clear(cx);
        rc = OSH_OK, *out = NULL;
    }
done:
    osh_file_close(cx, f);
    osh_free(cx, text);
    osh_free(cx, path);
    return rc;
}

/* True if the node is a text of one line. */
static bool is_line(const osh_yaml *v)
{
    return v->kind == OSH_Y_STR && *v->text && !strchr(v->text, '\n');
}

/* Copies the member `key` of the source's front matter, if it is a text of one line or a list of
 * such texts. */
static osh_status put_carried(osh_ctx *cx, osh_buf *b, const osh_yaml *matter, const char *key)
{
    osh_status rc = OSH_OK;
    const osh_yaml *v =
        matter && matter->kind == OSH_Y_MAP ? osh_yaml_get(matter, key) : NULL;
    if (!v || v->kind == OSH_Y_NULL) goto done;
    bool list = v->kind == OSH_Y_SEQ && v->n, lines = list || is_line(v);
    for (size_t i = 0; list && i < v->n; i++) lines = lines && is_line(v->items[i]);
    if (!lines) {
        osh_log(cx, OSH_LOG_WARN, "README.md of the source: %s is not copied: it is not a text",
                key);
        goto done;
    }
    OSH_TRY(osh_buf_printf(cx, b, "%s:", key));
    for (size_t i = 0; i < (list ? v->n : 1); i++) {
        OSH_TRY(osh_buf_printf(cx, b, list ? "\n- " : " "));
        OSH_TRY(osh_yaml_name(cx, b, list ? v->items[i]->text : v->text));
    }
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

static osh_status put_matter(osh_ctx *cx, osh_buf *b, const osh_plan *p, const char *base)
{
    static const char *const carried[] = {"license", "license_name", "license_link"};
    osh_status rc = OSH_OK;
    osh_yaml *matter = NULL; // own
    OSH_TRY(source_matter(cx, &matter, p->in.ck));
    OSH_TRY(osh_buf_printf(cx, b, "---\n"));
    if (base) /* a name of the Hub needs no quotes in YAML */
        OSH_TRY(osh_buf_printf(cx, b, "base_model: %s\nbase_model_relation: quantized\n", base));
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
        OSH_TRY(put_carried(cx, b, matter, carried[i]));
    OSH_TRY(osh_buf_printf(cx, b, "tags:\n- compressed-tensors\n---\n\n"));
done:
    osh_yaml_free(cx, matter);
    return rc;
}

/* Appends a row for each scheme. */
static osh_status put_schemes(osh_ctx *cx, osh_buf *b, const osh_matching *m)
{
    osh_status rc = OSH_OK;
    char name[OSH_Q_NAME];
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_scheme *s = &m->schemes[i];
        int n = 0;
        for (int l = 0; l < m->n_linears; l++) n += m->linears[l].scheme_index == (int)i;
        osh_q_name(name, s, NULL);
        OSH_TRY(osh_buf_printf(cx, b, "| Scheme | %s%s", s->weights.present ? name : "attention",
                               s->weights.present ? ": " : ""));
        OSH_TRY(osh_q_args_tell(cx, b, "weights", &s->weights));
        OSH_TRY(osh_q_args_tell(cx, b, s->weights.present ? "; inputs" : " inputs", &s->inputs));
        if (n) OSH_TRY(osh_buf_printf(cx, b, "; %d modules", n));
        OSH_TRY(osh_buf_printf(cx, b, " |\n"));
    }
    if (!m->cache.present) goto done;
    OSH_TRY(osh_buf_printf(cx, b, "| Key-value cache |"));
    OSH_TRY(osh_q_args_tell(cx, b, " keys and values", &m->cache));
    OSH_TRY(osh_buf_printf(cx, b, " |\n"));
done:
    return rc;
}

/* Appends the names of the modifiers, such as "SmoothQuantModifier, GPTQModifier". */
static osh_status put_method(osh_ctx *cx, osh_buf *b, const osh_recipe *r)
{
    osh_status rc = OSH_OK;
    bool first = true;
    OSH_TRY(osh_buf_printf(cx, b, "| Method | "));
    for (size_t i = 0; i < r->n; i++) {
        if (r->modifiers[i].replaced) continue;
        OSH_TRY(osh_buf_printf(cx, b, "%s%s%s", first ? "" : ", ", r->modifiers[i].type->name,
                               r->modifiers[i].best ? " (quality best)" : ""));
        first = false;
    }
    OSH_TRY(osh_buf_printf(cx, b, "; `recipe.yaml` has its settings |\n"));
done:
    return rc;
}

static osh_status put_table(osh_ctx *cx, osh_buf *b, const osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = r->plan;
    const osh_tuned *t = osh_emit_tuned(r->emitter);
    double share = 0;
    int n = osh_closing_share(&share, r);
    bool fp6 = false;
    for (size_t i = 0; i < p->match.n_schemes; i++)
        fp6 |= osh_q_is_fp6(&p->match.schemes[i].weights);
    OSH_TRY(osh_buf_printf(cx, b, "| | |\n|---|---|\n"));
    if (p->in.ck->adapter)
        OSH_TRY(osh_buf_printf(cx, b, "| Adapter | LoRA %s, merged into %d tensors |\n",
                               osh_path_last(p->in.ck->adapter),
                               osh_source_n_merged(p->in.source)));
    if (p->in.ck->config->n_sizes) {
        OSH_TRY(osh_buf_printf(cx, b, "| Padding | "));
        OSH_TRY(osh_padding_print(cx, b, &p->in));
        OSH_TRY(osh_buf_printf(
            cx, b, " of MLPs; the padding does not change the outputs of the MLPs |\n"));
    }
    OSH_TRY(put_schemes(cx, b, &p->match));
    OSH_TRY(put_method(cx, b, p->in.recipe));
    if (p->in.pipeline == OSH_PIPELINE_DATAFREE)
        OSH_TRY(osh_buf_printf(cx, b, "| Calibration data | none |\n"));
    else
        OSH_TRY(osh_buf_printf(
            cx, b,
            "| Calibration data | %lld samples, %lld tokens, at most %lld tokens a sample |\n",
            (long long)p->in.data.n, (long long)p->in.data.offsets[p->in.data.n],
            (long long)p->in.max_seq_length));
    OSH_TRY(osh_mix_markdown(cx, b, &p->in.mix));
    if (n)
        OSH_TRY(osh_buf_printf(cx, b,
                               "| Loss | at the outputs of %d modules, %.1f %% of the loss with "
                               "rounding to nearest |\n",
                               n, 100 * share));
    if (t->known && t->kept)
        OSH_TRY(osh_buf_printf(
            cx, b,
            "| Tuning | the KL divergence of held-back samples was %.5f, and is now %.5f |\n",
            t->before, t->after));
    OSH_TRY(osh_buf_printf(cx, b, "| Size | %.1f MB, the source has %.1f MB |\n",
                           (double)p->manifest.total_bytes / 1e6,
                           (double)osh_checkpoint_stored_bytes(p->in.ck) / 1e6));
    OSH_TRY(osh_buf_printf(cx, b, "| Made by | oneshot %s, for compressed-tensors %s |\n",
                           osh_version(), fp6 ? OSH_Q_VERSION_FP6 : OSH_Q_VERSION));
done:
    return rc;
}

/* Appends a text that says whether vLLM and transformers load the output. */
static osh_status put_loaders(osh_ctx *cx, osh_buf *b, const osh_matching *m)
{
    osh_status rc = OSH_OK;
    int at = -1;
    const char *fault = osh_experts_fault(&at, m, 0), *name = fault ? m->linears[at].name : NULL;
    const char *the = fault ? "the " : "";
    osh_embedding table = osh_match_embedding(m, -1);
    const char *advice = table.vllm ? ", so use vLLM" : "";
    if (table.vllm)
        OSH_TRY(osh_buf_printf(cx, b,
                               "\nServe this directory, or its name on the Hub, with vLLM:\n\n"
                               "    vllm serve .\n\n"));
    else
        OSH_TRY(osh_buf_printf(cx, b, "\nvLLM 0.32 does not load the embedding `%s`. ",
                               table.l->name));
    if (!fault) OSH_TRY(osh_match_kept_experts(cx, &fault, &name, m));
    if (fault)
        OSH_TRY(osh_buf_printf(cx, b, "Transformers 5.17 %s %sexperts (such as `%s`)%s. ", fault,
                               the, name, advice));
    else if (!table.transformers)
        OSH_TRY(osh_buf_printf(cx, b, "Transformers 5.17 does not load the embedding `%s`%s. ",
                               table.l->name, advice));
    else
        OSH_TRY(osh_buf_printf(cx, b,
                               "Transformers loads it with the package compressed-tensors. "));
done:
    return rc;
}

osh_status osh_readme_make(osh_ctx *cx, char **out, const osh_run *r)
{
    osh_status rc = OSH_OK;
    char *base = NULL; // own
    osh_buf b; // own
    osh_buf_init(&b, 0);
    const osh_checkpoint *ck = r->plan->in.ck;
    const char *class = ck->config->architecture;
    OSH_TRY(osh_hub_id_of_dir(cx, &base, ck->dir));
    OSH_TRY(put_matter(cx, &b, r->plan, base));
    OSH_TRY(osh_buf_printf(cx, &b, "# %s, %s\n\n", base ? base : class ? class : "Model",
                           r->plan->match.n_schemes ? "quantized" : "changed"));
    if (base)
        OSH_TRY(osh_buf_printf(cx, &b,
                               "The source is [%s](https://huggingface.co/%s). Its README.md "
                               "describes the model.\n\n",
                               base, base));
    OSH_TRY(put_table(cx, &b, r));
    OSH_TRY(put_loaders(cx, &b, &r->plan->match));
    OSH_TRY(osh_buf_printf(cx, &b, "`oneshot verify .` checks the files of this directory.\n"));
    *out = b.data, b.data = NULL; // give
done:
    osh_buf_deinit(cx, &b);
    osh_free(cx, base);
    return rc;
}
