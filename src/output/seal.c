/* seal.c - ends a run. It reads the output again and compares it. It adds side files, config.json,
 * index, manifest and reports. Then it gives the directory its final name. Each step can be
 * repeated after an interruption. */
#include <stdio.h>
#include <string.h>

#include "base/inode.h"
#include "output/emit_impl.h"
#include "output/known.h"
#include "output/manifest_text.h"
#include "rewrite/experts.h"
#include "store/scratch.h"

static osh_status seal_check_all(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    uint64_t *sums = NULL; // own
    OSH_NEW(cx, sums, e->plan->manifest.n_out);
    for (int64_t i = 0; i < e->plan->manifest.n_out; i++)
        if (!e->written[i])
            OSH_FAIL(cx, OSH_E_INTERNAL, "%s is in the plan but was not written",
                     e->plan->manifest.out[i].name);
    for (int s = 0; s < e->plan->manifest.n_shards; s++) osh_file_forget(e->shards[s]);
    OSH_TRY(osh_emit_sums(cx, e, sums));
    for (int64_t i = 0; i < e->plan->manifest.n_out; i++) {
        if (sums[i] == e->sums[i]) continue;
        OSH_TRY(osh_emit_void(cx, e, i));
        OSH_FAIL(cx, OSH_E_IO, "%s of %s: the bytes on the disk differ from the written bytes",
                 e->plan->manifest.out[i].name,
                 osh_file_path(e->shards[e->plan->manifest.out_info[i].shard]));
    }
done:
    osh_free(cx, sums);
    return rc;
}

static osh_status seal_write_text(osh_ctx *cx, const osh_emitter *e, const char *name,
                                  const char *text, size_t n)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, e->partial, name); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_file_write_all(cx, path, text, n));
done:
    osh_free(cx, path);
    return rc;
}

static osh_status seal_write_index(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    cJSON *root = NULL;  // own
    char *text = NULL;   // own
    if (p->manifest.n_shards == 1) goto done;
    root = cJSON_CreateObject();
    cJSON *meta = cJSON_AddObjectToObject(root, "metadata");
    cJSON *map = cJSON_AddObjectToObject(root, "weight_map");
    if (!meta || !map ||
        !cJSON_AddNumberToObject(meta, "total_size", (double)p->manifest.total_bytes))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the index");
    for (int64_t i = 0; i < p->manifest.n_out; i++) {
        cJSON *file = cJSON_CreateString(p->manifest.shards[p->manifest.out_info[i].shard].name);
        if (!file || !cJSON_AddItemToObject(map, p->manifest.out[i].name, file))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the index");
    }
    OSH_TRY(osh_json_print(cx, &text, root, 0));
    OSH_TRY(seal_write_text(cx, e, osh_container_written()->index, text, strlen(text)));
done:
    cJSON_Delete(root);
    osh_free(cx, text);
    return rc;
}

static osh_status seal_copy_side_files(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *from = NULL, *to = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, e->plan->in.ck));
    for (size_t i = 0; i < n; i++) {
        from = osh_path_join(cx, e->plan->in.ck->dir, names[i]);
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

static osh_status seal_write_manifest(osh_ctx *cx, const osh_emitter *e, const osh_result *results)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, e->partial, OSH_MANIFEST_NAME); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_manifest_write(cx, path, e, results));
done:
    osh_free(cx, path);
    return rc;
}

/* Writes the list of the experts that remain, if the recipe prunes experts and asks for the
 * list. */
static osh_status seal_write_experts(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    const char *name = osh_experts_file(&e->plan->rewrites);
    char *map = NULL, *text = NULL; // own
    if (!name) goto done;
    OSH_TRY(osh_experts_print(cx, &map, e->plan->rewrites.experts));
    if (!(text = osh_sprintf(cx, "%s\n", map))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(seal_write_text(cx, e, name, text, strlen(text)));
done:
    osh_free(cx, map);
    osh_free(cx, text);
    return rc;
}

/* Removes files that killed runs left in the partial directory: temporary files and activations.
 * Fails if an unknown file remains there. */
static osh_status seal_remove_leftovers(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *scratch = NULL; // own
    osh_known k = {0};    // own
    OSH_TRY(osh_scratch_dir(cx, &scratch, e->plan->in.opt->scratch_dir, e->partial));
    if (osh_scratch_remove(cx, scratch) || osh_scratch_remove_ranks(cx, scratch)) {
        osh_log(cx, OSH_LOG_WARN, "%s stays: %s", scratch, osh_error_text(cx));
        osh_error_clear(cx);
    }
    OSH_TRY(osh_known_of_run(cx, &k, &e->plan->manifest, NULL));
    OSH_TRY(osh_known_remove_temporary(cx, &k, e->partial));
    OSH_TRY(osh_known_check(cx, &k, e->partial, OSH_E_IO));
done:
    osh_known_deinit(cx, &k);
    osh_free(cx, scratch);
    return rc;
}

osh_status osh_emit_remove_replaced(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_known k = {0}; // own
    char **names = NULL; // own
    size_t n = 0;
    bool is = false;
    OSH_TRY(osh_is_replaced(cx, &is, e));
    if (!is) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, e->replaced));
    if (n) OSH_TRY(osh_known_of_output(cx, &k, e->replaced));
    OSH_TRY(osh_known_remove(cx, &k, e->replaced, OSH_MANIFEST_NAME, false));
    OSH_TRY(
        /* The removal must be on the disk before the journal is removed, because only the journal
         * tells that this directory is an old output. */
        osh_dir_sync_above(cx, e->replaced));
    if (osh_inode_at(e->replaced).kind != OSH_INODE_NONE)
        osh_log(cx, OSH_LOG_WARN, "%s stays: it holds files that oneshot did not make",
                e->replaced);
done:
    osh_known_deinit(cx, &k);
    osh_strings_free(cx, names, n);
    return rc;
}

/* Renames the old output to e->replaced. Before that, records the checksum of its manifest, so that
 * a process which continues the run recognizes the renamed directory. */
static osh_status seal_put_aside(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_claim_output(cx, e, OSH_E_IO));
    OSH_TRY(osh_sum_of_manifest(cx, &e->replaced_sum, e->final));
    OSH_TRY(osh_put_u64(cx, &b, e->replaced_sum));
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_REPLACED, b.data, b.len));
    OSH_TRY(osh_journal_sync(cx, e->journal));
    OSH_TRY(osh_rename(cx, e->final, e->replaced));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Gives the partial directory the final name, and removes the old output. Removes the journal last,
 * because a final directory with a journal shows that an earlier step may be missing. */
static osh_status seal_take_name(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *journal = osh_path_join(cx, e->final, OSH_JOURNAL_NAME); // own
    if (!journal) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_emit_still_held(cx, e));
    OSH_TRY(osh_emit_old_still_held(cx, e));
    OSH_TRY(osh_claim_replaced(cx, e, OSH_E_IO));
    if (e->replaces) OSH_TRY(seal_put_aside(cx, e));
    OSH_TRY(osh_rename(cx, e->partial, e->final));
    OSH_TRY(osh_emit_got_name(cx, e));
    e->sealed = true;
    OSH_TRY(osh_emit_remove_replaced(cx, e));
    OSH_TRY(osh_file_remove(cx, journal));
    OSH_TRY(osh_dir_sync(cx, e->final));
done:
    osh_free(cx, journal);
    return rc;
}

osh_status osh_emit_check(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    if (e->complete) goto done; // an earlier process has already checked the output
    OSH_TRY(osh_emit_wait(cx, e));
    OSH_TRY(osh_emit_still_held(cx, e));
    OSH_TRY(osh_emit_barrier(cx, e));
    OSH_TRY(osh_emit_check_source(cx, e, true));
    osh_early_stop(e->early);
    OSH_TRY(seal_check_all(cx, e));
done:
    return rc;
}

static osh_status seal_write_report(osh_ctx *cx, const osh_emitter *e, const osh_seal_report *r)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, e->partial, OSH_MARK_NAME); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(seal_write_text(cx, e, "oneshot-report.html", r->html, strlen(r->html)));
    OSH_TRY(osh_file_write_by(cx, path, r->json, r->user));
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_emit_seal(osh_ctx *cx, osh_emitter *e, const osh_result *results,
                         const osh_seal_report *report)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    if (!e->complete) {
        OSH_TRY(osh_emit_still_held(cx, e));
        OSH_TRY(seal_copy_side_files(cx, e));
        OSH_TRY(osh_origin_check_files(cx, e));
        OSH_TRY(seal_write_index(cx, e));
        OSH_TRY(seal_write_text(cx, e, "config.json", p->manifest.config_text,
                                strlen(p->manifest.config_text)));
        OSH_TRY(seal_write_text(cx, e, "recipe.yaml", p->in.recipe->text, p->in.recipe->n_text));
        OSH_TRY(seal_write_text(cx, e, OSH_README_NAME, report->readme, strlen(report->readme)));
        OSH_TRY(seal_write_experts(cx, e));
        OSH_TRY(seal_write_manifest(cx, e, results));
        OSH_TRY(seal_write_report(cx, e, report));
        OSH_TRY(seal_remove_leftovers(cx, e));
        OSH_TRY(osh_dir_sync(cx, e->partial));
        // output and source are checked again, because they may have changed during the seal
        OSH_TRY(osh_emit_still_held(cx, e));
        OSH_TRY(osh_emit_check_source(cx, e, false));
        OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_SEALED, NULL, 0));
        OSH_TRY(osh_journal_sync(cx, e->journal));
        e->complete = true;
    }
    OSH_TRY(seal_take_name(cx, e));
done:
    return rc;
}
