/* emit.c - output files. A tensor is written with pwrite at the offset that the plan gave it; its
 * XXH3 checksum is kept and compared with what the disk holds before the directory gets its name.
 */
#include "pipeline/emit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/file.h"

enum { CHUNK_BYTES = 4 << 20 };
#define MARK_NAME "oneshot-report.json" // a directory that holds it was made here

struct osh_emitter {
    const osh_plan *plan; // view
    char *final, *partial; // own: directories
    osh_file **shards;    // own
    uint64_t *sums;       // own: by output tensor
    bool *written;        // own
    bool sealed, replaces;
};

static osh_status check_target(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *mark = NULL; // own
    size_t n = 0;
    if (osh_file_exists(e->final) && !osh_dir_exists(e->final))
        OSH_FAIL(cx, OSH_E_USAGE, "%s is a file: want a directory for --output", e->final);
    if (!osh_dir_exists(e->final)) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, e->final));
    if (!n) {
        e->replaces = true;
        goto done;
    }
    if (!(mark = osh_path_join(cx, e->final, MARK_NAME))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(mark))
        OSH_FAIL(cx, OSH_E_USAGE, "%s is neither empty nor made by oneshot: want another --output",
                 e->final);
    if (!e->plan->opt->overwrite)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s holds a finished checkpoint: want --overwrite or another --output", e->final);
    e->replaces = true;
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, mark);
    return rc;
}

static osh_status check_room(osh_ctx *cx, const osh_emitter *e)
{
    int64_t need = 0, room = osh_disk_free(e->partial);
    for (int s = 0; s < e->plan->n_shards; s++) need += e->plan->shards[s].n_bytes;
    if (room >= 0 && room < need + (16 << 20))
        return osh_fail(cx, OSH_E_IO, "the disk of %s has %ld bytes free, the output takes %ld",
                        e->final, (long)room, (long)need);
    return OSH_OK;
}

static osh_status open_shards(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    const osh_plan *p = e->plan;
    OSH_NEW(cx, e->shards, p->n_shards);
    for (int s = 0; s < p->n_shards; s++) {
        if (!(path = osh_path_join(cx, e->partial, p->shards[s].name)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        OSH_TRY(osh_file_create(cx, &e->shards[s], path));
        OSH_TRY(osh_file_reserve(cx, e->shards[s], p->shards[s].n_bytes));
        OSH_TRY(osh_file_pwrite(cx, e->shards[s], p->shards[s].header, p->shards[s].header_bytes, 0));
        osh_free(cx, path), path = NULL;
    }
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_emitter_new(osh_ctx *cx, osh_emitter **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_emitter *e = NULL; // own
    OSH_NEW(cx, e, 1);
    e->plan = p;
    size_t n = strlen(p->opt->output);
    while (n > 1 && p->opt->output[n - 1] == '/') n--;
    e->final = osh_sprintf(cx, "%.*s", (int)n, p->opt->output);
    if (!e->final) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(check_target(cx, e));
    if (!(e->partial = osh_sprintf(cx, "%s.oneshot-partial", e->final)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_dir_exists(e->partial)) OSH_TRY(osh_dir_remove(cx, e->partial)); // of a run that was killed
    OSH_TRY(osh_dir_make(cx, e->partial));
    OSH_TRY(check_room(cx, e));
    OSH_NEW(cx, e->sums, p->n_out);
    OSH_NEW(cx, e->written, p->n_out);
    OSH_TRY(open_shards(cx, e));
    *out = e, e = NULL;
done:
    osh_emitter_free(cx, e);
    return rc;
}

void osh_emitter_free(osh_ctx *cx, osh_emitter *e)
{
    if (!e) return;
    for (int s = 0; e->shards && s < e->plan->n_shards; s++) osh_file_close(cx, e->shards[s]);
    if (!e->sealed && e->partial && osh_dir_exists(e->partial)) osh_dir_remove(cx, e->partial);
    osh_free(cx, e->shards);
    osh_free(cx, e->sums);
    osh_free(cx, e->written);
    osh_free(cx, e->final);
    osh_free(cx, e->partial);
    osh_free(cx, e);
}

static osh_status write_tensor(osh_ctx *cx, osh_emitter *e, int64_t i, const void *data)
{
    osh_status rc = OSH_OK;
    const osh_st_entry *t = &e->plan->out[i];
    size_t n = (size_t)(t->end - t->begin);
    OSH_TRY(osh_file_pwrite(cx, e->shards[e->plan->out_info[i].shard], data, n, t->begin));
    e->sums[i] = XXH3_64bits(data, n);
    e->written[i] = true;
done:
    if (rc) osh_note(cx, "writing %s", t->name);
    return rc;
}

osh_status osh_emit_linear(osh_ctx *cx, osh_emitter *e, int linear, const osh_linear_job *job,
                           const osh_tensor *in_scale, const osh_tensor *in_zero)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    const osh_linear *l = &p->linears[linear];
    void *data[OSH_FORMAT_MAX_TENSORS] = {0}; // own
    for (int k = 0; k < l->n_out; k++) {
        const osh_st_entry *t = &p->out[l->first_out + k];
        data[k] = osh_alloc(cx, (size_t)(t->end - t->begin));
        if (!data[k]) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to pack %s", l->name);
    }
    OSH_TRY(l->format->pack(cx, data, l->scheme, l->O, l->I, l->dtype, job->codes, &job->params, in_scale, in_zero));
    for (int k = 0; k < l->n_out; k++) OSH_TRY(write_tensor(cx, e, l->first_out + k, data[k]));
done:
    for (int k = 0; k < OSH_FORMAT_MAX_TENSORS; k++) osh_free(cx, data[k]);
    return rc;
}

static osh_status copy_tensor(osh_ctx *cx, osh_emitter *e, int64_t i, void *chunk)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    const osh_st_entry *t = &p->out[i];
    const osh_ckpt_tensor *src = &p->ck->tensors[p->out_info[i].source];
    XXH3_state_t *state = XXH3_createState();
    if (!state) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(state);
    for (int64_t at = 0; at < t->end - t->begin; at += CHUNK_BYTES) {
        size_t n = (size_t)(t->end - t->begin - at);
        if (n > CHUNK_BYTES) n = CHUNK_BYTES;
        OSH_TRY(osh_st_read_part(cx, chunk, p->ck->shards[src->shard], src->e, at, n));
        OSH_TRY(osh_file_pwrite(cx, e->shards[p->out_info[i].shard], chunk, n, t->begin + at));
        XXH3_64bits_update(state, chunk, n);
    }
    e->sums[i] = XXH3_64bits_digest(state);
    e->written[i] = true;
done:
    XXH3_freeState(state);
    if (rc) osh_note(cx, "copying %s", t->name);
    return rc;
}

osh_status osh_emit_copies(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    void *chunk = osh_alloc(cx, CHUNK_BYTES); // own
    if (!chunk) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to copy tensors");
    for (int64_t i = 0; i < e->plan->n_out; i++) {
        if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted");
        if (e->plan->out_info[i].source >= 0) OSH_TRY(copy_tensor(cx, e, i, chunk));
    }
done:
    osh_free(cx, chunk);
    return rc;
}

static osh_status reread(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *chunk = osh_alloc(cx, CHUNK_BYTES); // own
    XXH3_state_t *state = XXH3_createState(); // own
    if (!chunk || !state) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to check the output");
    for (int64_t i = 0; i < e->plan->n_out; i++) {
        const osh_st_entry *t = &e->plan->out[i];
        if (!e->written[i]) OSH_FAIL(cx, OSH_E_INTERNAL, "%s was planned and never written", t->name);
        XXH3_64bits_reset(state);
        for (int64_t at = t->begin; at < t->end; at += CHUNK_BYTES) {
            size_t n = t->end - at > CHUNK_BYTES ? CHUNK_BYTES : (size_t)(t->end - at);
            OSH_TRY(osh_file_pread(cx, e->shards[e->plan->out_info[i].shard], chunk, n, at));
            XXH3_64bits_update(state, chunk, n);
        }
        if (XXH3_64bits_digest(state) != e->sums[i])
            OSH_FAIL(cx, OSH_E_IO, "%s of %s: what the disk holds is not what was written", t->name,
                     osh_file_path(e->shards[e->plan->out_info[i].shard]));
    }
done:
    osh_free(cx, chunk);
    XXH3_freeState(state);
    return rc;
}

static osh_status write_text(osh_ctx *cx, const osh_emitter *e, const char *name, const char *text, size_t n)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, e->partial, name); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_file_write_all(cx, path, text, n));
done:
    osh_free(cx, path);
    return rc;
}

static osh_status write_index(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    cJSON *root = NULL;  // own
    char *text = NULL;   // own
    if (p->n_shards == 1) goto done;
    root = cJSON_CreateObject();
    cJSON *meta = cJSON_AddObjectToObject(root, "metadata");
    cJSON *map = cJSON_AddObjectToObject(root, "weight_map");
    if (!meta || !map || !cJSON_AddNumberToObject(meta, "total_size", (double)p->total_bytes))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the index");
    for (int64_t i = 0; i < p->n_out; i++) {
        cJSON *file = cJSON_CreateString(p->shards[p->out_info[i].shard].name);
        if (!file || !cJSON_AddItemToObject(map, p->out[i].name, file))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the index");
    }
    OSH_TRY(osh_json_print(cx, &text, root, 0));
    OSH_TRY(write_text(cx, e, "model.safetensors.index.json", text, strlen(text)));
done:
    cJSON_Delete(root);
    osh_free(cx, text);
    return rc;
}

static osh_status copy_side_files(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *from = NULL, *to = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, e->plan->ck));
    for (size_t i = 0; i < n; i++) {
        from = osh_path_join(cx, e->plan->ck->dir, names[i]);
        to = osh_path_join(cx, e->partial, names[i]);
        if (!from || !to) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        OSH_TRY(osh_file_copy(cx, to, from));
        osh_free(cx, from), from = NULL;
        osh_free(cx, to), to = NULL;
    }
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, from);
    osh_free(cx, to);
    return rc;
}

static osh_status take_name(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *old = NULL; // own
    if (e->replaces) {
        if (!(old = osh_sprintf(cx, "%s.oneshot-replaced", e->final)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        if (osh_dir_exists(old)) OSH_TRY(osh_dir_remove(cx, old));
        OSH_TRY(osh_rename(cx, e->final, old));
    }
    OSH_TRY(osh_rename(cx, e->partial, e->final));
    e->sealed = true;
    if (old) OSH_TRY(osh_dir_remove(cx, old));
done:
    osh_free(cx, old);
    return rc;
}

const char *osh_emit_dir(const osh_emitter *e) { return e->partial; }

osh_status osh_emit_check(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    for (int s = 0; s < e->plan->n_shards; s++) OSH_TRY(osh_file_sync(cx, e->shards[s]));
    OSH_TRY(reread(cx, e));
done:
    return rc;
}

osh_status osh_emit_seal(osh_ctx *cx, osh_emitter *e, const char *report_json, const char *report_html)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    OSH_TRY(copy_side_files(cx, e));
    OSH_TRY(write_index(cx, e));
    OSH_TRY(write_text(cx, e, "config.json", p->config_text, strlen(p->config_text)));
    OSH_TRY(write_text(cx, e, "recipe.yaml", p->recipe->text, p->recipe->n_text));
    OSH_TRY(write_text(cx, e, "oneshot-report.html", report_html, strlen(report_html)));
    OSH_TRY(write_text(cx, e, MARK_NAME, report_json, strlen(report_json)));
    OSH_TRY(take_name(cx, e));
done:
    return rc;
}
