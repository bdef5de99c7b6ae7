/* identity.c - lists and compares the fields that decide the bytes of an output. A shard of the
 * source has a field with its size and its header. The elements of its tensors are checked when
 * they are read (output/origin.c). */
#include "plan/identity.h"

#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/xxh3.h"
#include "budget/cost.h"
#include "io/hf_quant.h"
#include "modifiers/survey.h"
#include "math/isa.h"

typedef unsigned long long ull;

void osh_identity_free(osh_ctx *cx, osh_identity *id)
{
    if (!id) return;
    for (size_t i = 0; i < id->n; i++) osh_free(cx, id->names[i]), osh_free(cx, id->values[i]);
    osh_free(cx, id->names);
    osh_free(cx, id->values);
    osh_free(cx, id->here);
    osh_free(cx, id);
}

/* Adds a field. Takes ownership of `name` and `value`, even if it fails. */
static osh_status identity_add(osh_ctx *cx, osh_identity *id, char *name, char *value, bool here)
{
    osh_status rc = OSH_OK;
    if (!name || !value) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for what decides the bytes");
    if (id->n == id->cap) {
        size_t cap = id->cap ? 2 * id->cap : 32;
        char **n = osh_realloc(cx, id->names, cap * sizeof *n);
        if (n) id->names = n;
        char **v = osh_realloc(cx, id->values, cap * sizeof *v);
        if (v) id->values = v;
        bool *h = osh_realloc(cx, id->here, cap * sizeof *h);
        if (h) id->here = h;
        if (!n || !v || !h) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for what decides the bytes");
        id->cap = cap;
    }
    id->names[id->n] = name, id->values[id->n] = value, id->here[id->n++] = here;
    return OSH_OK;
done:
    osh_free(cx, name);
    osh_free(cx, value);
    return rc;
}

#define FIELD(name, ...)                                                                           \
    OSH_TRY(identity_add(cx, id, osh_strdup(cx, name), osh_sprintf(cx, __VA_ARGS__), false))

osh_status osh_identity_stamp(osh_ctx *cx, osh_identity *id, const char *file, const osh_stamp *s)
{
    osh_status rc = OSH_OK;
    char *name = osh_sprintf(cx, "stamp of %s", file); // own
    char *value = osh_sprintf(cx, "%lld bytes, inode %llu, changed at %lld ns, %lld ns%s",
                              (long long)s->n_bytes, (ull)s->inode, (long long)s->mtime_ns,
                              (long long)s->ctime_ns,
                              s->fresh ? ", just now" : ""); // own
    for (size_t i = 0; name && value && i < id->n; i++) {
        if (strcmp(id->names[i], name)) continue;
        osh_free(cx, id->values[i]);
        id->values[i] = value, value = NULL; // passes ownership
        goto done;
    }
    rc = identity_add(cx, id, name, value, true);
    name = value = NULL; // identity_add owns the name and the value now, even if it has failed
done:
    osh_free(cx, name);
    osh_free(cx, value);
    return rc;
}

static osh_status identity_add_shard(osh_ctx *cx, osh_identity *id, const osh_checkpoint *ck, int s)
{
    osh_status rc = OSH_OK;
    const osh_stamp *stamp = osh_container_stamp(ck->shards[s]);
    uint64_t sum = 0;
    osh_container_header(ck->shards[s], &sum);
    OSH_TRY(identity_add(
        cx, id, osh_sprintf(cx, "source %s", ck->shard_names[s]),
        osh_sprintf(cx, "%lld bytes, header %016llx", (long long)stamp->n_bytes, (ull)sum), false));
    OSH_TRY(osh_identity_stamp(cx, id, ck->shard_names[s], stamp));
done:
    return rc;
}

static osh_status identity_add_file(osh_ctx *cx, osh_identity *id, const char *kind,
                                    const char *dir, const char *name)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name); // own
    uint64_t sum = 0;
    int64_t n = 0;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_sum_of_file(cx, &sum, &n, path));
    OSH_TRY(identity_add(cx, id, osh_sprintf(cx, "%s %s", kind, name),
                osh_sprintf(cx, "%lld bytes, %016llx", (long long)n, (ull)sum), false));
done:
    osh_free(cx, path);
    return rc;
}

/* Returns the index of the field `name`, or the number of fields if there is no such field. */
static size_t identity_find(const osh_identity *id, const char *name)
{
    size_t i = 0;
    while (i < id->n && strcmp(id->names[i], name)) i++;
    return i;
}

/* Returns the value of the field `name`, or NULL if there is no such field. */
static const char *identity_value(const osh_identity *id, const char *name)
{
    size_t i = identity_find(id, name);
    return i < id->n ? id->values[i] : NULL;
}

/* Adds a field for the file `name` of the source. Adds nothing if the file does not exist, or if it
 * already has a field because it is a shard. */
static osh_status identity_add_if_there(osh_ctx *cx, osh_identity *id, const char *dir,
                                        const char *name)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name);       // own
    char *field = osh_sprintf(cx, "source %s", name); // own
    if (!path || !field) OSH_TRY(OSH_E_NOMEM);
    if (osh_file_exists(path) && !identity_value(id, field))
        OSH_TRY(identity_add_file(cx, id, "source", dir, name));
done:
    osh_free(cx, field);
    osh_free(cx, path);
    return rc;
}

/* Adds fields for all files of the source except config.json. README.md has a field, too, because
 * the README.md of the output repeats the licence from it. */
static osh_status identity_add_source(osh_ctx *cx, osh_identity *id, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    const char *quant;
    size_t n = 0;
    for (int s = 0; s < ck->n_shards; s++) OSH_TRY(identity_add_shard(cx, id, ck, s));
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, ck));
    for (size_t i = 0; i < n; i++) OSH_TRY(identity_add_file(cx, id, "source", ck->dir, names[i]));
    OSH_TRY(identity_add_if_there(cx, id, ck->dir, OSH_README_NAME));
    for (size_t i = 0; (quant = osh_hf_quant_file(i)); i++)
        OSH_TRY(identity_add_if_there(cx, id, ck->dir, quant));
    for (int i = 0; ck->adapter && i < 2; i++)
        OSH_TRY(identity_add_file(cx, id, "adapter", ck->adapter,
                                  i ? "adapter_model.safetensors" : "adapter_config.json"));
done:
    osh_strings_free(cx, names, n);
    return rc;
}

static osh_status identity_add_templates(osh_ctx *cx, osh_identity *id, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    if (!p->in.opt->models_dir) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, p->in.opt->models_dir));
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        if (len > 5 && !strcmp(names[i] + len - 5, ".json"))
            OSH_TRY(identity_add_file(cx, id, "template", p->in.opt->models_dir, names[i]));
    }
done:
    osh_strings_free(cx, names, n);
    return rc;
}

/* Returns a hash of the subgraphs. It covers the first node, the number of nodes and the name of
 * each subgraph. */
static uint64_t partition_sum(const osh_plan *p)
{
    uint64_t h = 0;
    for (int i = 0; i < p->schedule.parts->n; i++) {
        const osh_subgraph *s = &p->schedule.parts->parts[i];
        int cut[2] = {s->first, s->n_nodes};
        h = XXH3_64bits_withSeed(cut, sizeof cut, h);
        h = XXH3_64bits_withSeed(s->name, strlen(s->name), h);
    }
    return h;
}

static osh_status identity_add_calibration(osh_ctx *cx, osh_identity *id, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_dataset *d = &p->in.data;
    int64_t n_tokens = d->offsets[d->n];
    uint64_t h = XXH3_64bits(d->ids, (size_t)n_tokens * sizeof *d->ids);
    h = XXH3_64bits_withSeed(d->offsets, (size_t)(d->n + 1) * sizeof *d->offsets, h);
    const osh_mix *m = &p->in.mix;
    for (size_t i = 0; m->n > 1 && i < m->n; i++)
        OSH_TRY(identity_add(cx, id, osh_sprintf(cx, "data set %zu", i + 1),
                             osh_sprintf(cx, "%s, a share of %.9g, %lld samples, %lld tokens",
                                         m->sets[i].name, osh_mix_share(m, &m->sets[i]),
                                         (long long)m->sets[i].n_samples,
                                         (long long)m->sets[i].n_tokens),
                             false));
    FIELD("data", "%lld samples, %lld tokens, %016llx", (long long)d->n, (long long)n_tokens,
          (ull)h);
    if (d->counted)
        FIELD("loss_mask", "answers, %lld tokens, %016llx",
              (long long)osh_dataset_n_counted(d, 0, d->n),
              (ull)XXH3_64bits(d->counted, (size_t)n_tokens));
    FIELD("sum_groups", "%lld", (long long)p->in.groups.n);
    if (p->in.by_route) FIELD("moe_calibrate_all_experts", "false");
    if (p->budget.memory.looks_f16) FIELD("calib_cache", "second looks at F16");
    FIELD("sequential_targets", "%d subgraphs, %016llx", p->schedule.parts->n,
          (ull)partition_sum(p));
    FIELD("propagate_error", "%s", p->in.propagate_error ? "true" : "false");
done:
    return rc;
}

static osh_status identity_add_output(osh_ctx *cx, osh_identity *id, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    uint64_t h = 0;
    for (int s = 0; s < p->manifest.n_shards; s++)
        h = XXH3_64bits_withSeed(p->manifest.shards[s].header, p->manifest.shards[s].header_bytes,
                                 h);
    FIELD("max_shard_size", "%lld bytes", (long long)p->in.opt->max_shard_size);
    FIELD("schemes", "%016llx",
          (ull)XXH3_64bits(p->match.quantization_json, strlen(p->match.quantization_json)));
    FIELD("layout", "%d files, %lld bytes, %016llx", p->manifest.n_shards,
          (long long)p->manifest.total_bytes, (ull)h);
done:
    return rc;
}

/* Adds fields for the schemes and candidates of a survey. (A survey measures losses and writes no
 * output.) */
static osh_status identity_add_survey(osh_ctx *cx, osh_identity *id, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    FIELD("schemes", "%016llx",
          (ull)XXH3_64bits(p->match.quantization_json, strlen(p->match.quantization_json)));
    for (size_t i = 0; i < p->in.recipe->n; i++) {
        char bits[64];
        osh_survey_name(bits, sizeof bits, &p->in.recipe->modifiers[i]);
        OSH_TRY(identity_add(cx, id, osh_sprintf(cx, "survey of modifier %zu", i),
                             osh_strdup(cx, bits), false));
    }
done:
    return rc;
}

osh_status osh_identity_of_source(osh_ctx *cx, osh_identity **out, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    OSH_NEW(cx, id, 1);
    OSH_TRY(identity_add_file(cx, id, "source", ck->dir, "config.json"));
    OSH_TRY(identity_add_source(cx, id, ck));
    *out = id, id = NULL; // passes ownership
done:
    osh_identity_free(cx, id);
    return rc;
}

/* Adds a field whose value is the list, with one line for each item. */
static osh_status identity_add_list(osh_ctx *cx, osh_identity *id, const char *name,
                                    const osh_strs *list)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (size_t i = 0; i < list->n; i++)
        OSH_TRY(osh_buf_printf(cx, &b, "%s%s", i ? "\n" : "", list->items[i]));
    FIELD(name, "%s", b.data);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_identity_new(osh_ctx *cx, osh_identity **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    char *isa = NULL;        // own
    OSH_NEW(cx, id, 1);
    FIELD("program", "oneshot %s, journal %d", osh_version(), OSH_IDENTITY_JOURNAL);
    FIELD("source config.json", "%zu bytes, %016llx", p->in.ck->config->n_text,
          (ull)XXH3_64bits(p->in.ck->config->text, p->in.ck->config->n_text));
    OSH_TRY(identity_add_source(cx, id, p->in.ck));
    FIELD("recipe", "%zu bytes, %016llx%s%s", p->in.recipe->n_text,
          (ull)XXH3_64bits(p->in.recipe->text, p->in.recipe->n_text),
          p->in.recipe->quality ? ", quality " : "",
          p->in.recipe->quality ? p->in.recipe->quality : "");
    FIELD("pipeline", "%s", osh_plan_pipeline(p));
    if (p->in.opt->only.n) OSH_TRY(identity_add_list(cx, id, "only", &p->in.opt->only));
    const osh_options *o = p->in.opt;
    if (osh_target_is(o, "vllm")) FIELD("target", "vllm");
    if (o->indivisible && strcmp(o->indivisible, "refuse")) {
        FIELD("indivisible", "%s", o->indivisible);
        if (o->tensor_parallel > 1) FIELD("tensor_parallel", "%lld", (long long)o->tensor_parallel);
    }
    if (p->rewrites.n_inherits)
        OSH_TRY(identity_add_list(cx, id, "calib_passthrough", &p->in.opt->calib_passthrough));
    bool draws = false;
    for (int i = 0; i < p->match.n_linears; i++)
        draws |= (p->match.linears[i].wants & OSH_STAT_BLOCK) != 0;
    if (draws) FIELD("seed", "%lld", (long long)p->in.opt->seed);
    FIELD("arithmetic", "%s", p->in.arithmetic == OSH_ARITH_F32 ? "f32" : "reference");
    // with --indivisible pad, the output depends on the templates: they decide the added zeros
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE || p->in.ck->config->n_sizes)
        OSH_TRY(identity_add_templates(cx, id, p));
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE) {
        OSH_TRY(identity_add_calibration(cx, id, p));
        // on the host, the instruction set changes the bits of products, and so the output
        if (!p->in.device || p->in.opt->survey || osh_cost_uses_host(&p->budget)) {
            OSH_TRY(osh_isa_describe(cx, &isa));
            FIELD("isa", "%s", isa);
        }
    }
    OSH_TRY(p->in.opt->survey ? identity_add_survey(cx, id, p) : identity_add_output(cx, id, p));
    FIELD("back_end", "%s", osh_device_type_of(p->in.device)->name);
    if (p->in.device) {
        FIELD("device", "%s", p->in.device->text);
        FIELD("batches", "of %d tokens and more", OSH_DEVICE_BATCH_TOKENS);
    }
    *out = id, id = NULL; // passes ownership
done:
    osh_free(cx, isa);
    osh_identity_free(cx, id);
    return rc;
}

osh_status osh_identity_json(osh_ctx *cx, char **out, const osh_identity *id,
                             osh_identity_part part)
{
    osh_status rc = OSH_OK;
    cJSON *root = cJSON_CreateObject(); // own
    bool ok = root != NULL;
    for (size_t i = 0; ok && i < id->n; i++)
        if (part == OSH_IDENTITY_ALL || id->here[i] == (part == OSH_IDENTITY_STAMPS))
            ok = cJSON_AddStringToObject(root, id->names[i], id->values[i]) != NULL;
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for what decides the bytes");
    OSH_TRY(osh_json_print(cx, out, root, 0));
done:
    cJSON_Delete(root);
    return rc;
}

bool osh_identity_has_stamp(const osh_identity *id, const char *file, const cJSON *was)
{
    static const char kind[] = "stamp of ";
    size_t n = sizeof kind - 1;
    for (size_t i = 0; i < id->n; i++) {
        if (!id->here[i] || strncmp(id->names[i], kind, n) || strcmp(id->names[i] + n, file))
            continue;
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(was, id->names[i]);
        return cJSON_IsString(v) && !strcmp(v->valuestring, id->values[i]);
    }
    return false;
}

osh_status osh_identity_source_differs(osh_ctx *cx, char **out, const osh_identity *a,
                                       const osh_identity *b)
{
    osh_status rc = OSH_OK;
    *out = NULL;
    for (int side = 0; side < 2; side++) {
        const osh_identity *x = side ? b : a, *y = side ? a : b;
        for (size_t i = 0; i < x->n; i++) {
            if (x->here[i] || strncmp(x->names[i], "source ", 7)) continue;
            const char *other = identity_value(y, x->names[i]), *none = "not there";
            if (other && !strcmp(other, x->values[i])) continue;
            *out = osh_sprintf(cx, "%s is %s, was %s", x->names[i], side ? none : x->values[i],
                               side ? x->values[i] : other ? other : none);
            if (!*out) rc = OSH_E_NOMEM;
            goto done;
        }
    }
done:
    return rc;
}

/* Sets *out as osh_identity_differs does, but compares only field i. */
static osh_status identity_field_differs(osh_ctx *cx, char **out, const osh_identity *id, size_t i,
                                         const cJSON *was)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(was, id->names[i]);
    const char *old = cJSON_GetStringValue(v), *mark = v ? "'" : "";
    if (id->here[i] || (old && !strcmp(old, id->values[i]))) return OSH_OK;
    bool device = old && !strcmp(id->names[i], "back_end") &&
                  (!strcmp(old, "cpu") || !strcmp(old, "cuda"));
    *out = osh_sprintf(cx, "%s is '%s', was %s%.200s%s%s%s%s", id->names[i], id->values[i], mark,
                       old ? old : "not there", mark, device ? " (--device " : "",
                       device ? old : "", device ? ")" : "");
    return *out ? OSH_OK : OSH_E_NOMEM;
}

osh_status osh_identity_differs(osh_ctx *cx, char **out, const osh_identity *id, const cJSON *was)
{
    osh_status rc = OSH_OK;
    *out = NULL;
    // back_end is compared first, because several other fields depend on it
    size_t first = identity_find(id, "back_end");
    for (size_t k = 0; !*out && k <= id->n; k++)
        if (k || first < id->n)
            OSH_TRY(identity_field_differs(cx, out, id, k ? k - 1 : first, was));
    if (*out) goto done;
    for (const cJSON *v = was ? was->child : NULL; v; v = v->next) {
        if (identity_value(id, v->string)) continue;
        *out = osh_sprintf(cx, "%s is not there, was '%.200s'", v->string,
                           cJSON_IsString(v) ? v->valuestring : "?");
        if (!*out) rc = OSH_E_NOMEM;
        goto done;
    }
done:
    return rc;
}
