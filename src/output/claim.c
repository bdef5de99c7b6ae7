/* claim.c - checks that the directories of the output belong to the run, before the first write and
 * during the run.
 *
 * If a directory has a file that this program did not make, the run does not touch the file. It
 * fails with a message that has the path of the file and the reason. During the run, another
 * process or a person may move, remove or replace the open files of the output. So the checks are
 * repeated before the final rename: only files of the run may get the name of the output. */
#include <string.h>

#include "base/inode.h"
#include "output/emit_impl.h"
#include "output/known.h"
#include "output/manifest_text.h"

/* ---- checks before the first write ---- */

osh_status osh_output_dirs(osh_ctx *cx, char **final, char **partial, const char *output)
{
    osh_status rc = OSH_OK;
    *final = *partial = NULL;
    OSH_TRY(osh_path_resolve(cx, final, output));
    if (!(*partial = osh_sprintf(cx, "%s.oneshot-partial", *final)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
done:
    return rc;
}

/* The directories of an output. A run creates, replaces and deletes files only in them. */
typedef struct places {
    char *final, *partial, *replaced; // own
} places;

static void places_deinit(osh_ctx *cx, places *p)
{
    osh_free(cx, p->final);
    osh_free(cx, p->partial);
    osh_free(cx, p->replaced);
}

static osh_status places_init(osh_ctx *cx, places *p, const char *output)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_output_dirs(cx, &p->final, &p->partial, output));
    if (!(p->replaced = osh_sprintf(cx, "%s.oneshot-replaced", p->final))) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

/* Fails if `path` is inside a directory of the output. what: the option whose value is `path`. */
static osh_status claim_input(osh_ctx *cx, const places *p, const char *what, const char *path)
{
    const char *const dirs[] = {p->final, p->partial, p->replaced};
    for (size_t i = 0; path && i < sizeof dirs / sizeof *dirs; i++) {
        bool inside = false;
        osh_status rc = osh_path_inside(cx, &inside, path, dirs[i]);
        if (rc == OSH_E_NOMEM) return rc;
        // a failure is ignored here, because opening the file later reports the same error
        if (rc) osh_error_clear(cx);
        if (inside)
            return osh_fail(
                cx, OSH_E_USAGE,
                "%s %s lies in %s, and this run would %s that directory: want another --output",
                what, path, dirs[i], i ? "delete" : "replace");
    }
    return OSH_OK;
}

/* Fails if a file of the model is a link into a directory of the output. The files of a model can
 * be links, as in the cache of the Hub. */
static osh_status claim_model_links(osh_ctx *cx, const places *p, const char *model)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    size_t n = 0;
    if (!model || !osh_dir_exists(model)) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, model));
    for (size_t i = 0; i < n; i++) {
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, model, names[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        if (osh_inode_at(path).kind == OSH_INODE_LINK)
            OSH_TRY(claim_input(cx, p, "the model's file", path));
    }
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, path);
    return rc;
}

osh_status osh_output_claim(osh_ctx *cx, const osh_options *o)
{
    osh_status rc = OSH_OK;
    places p = {0};    // own
    char *data = NULL; // own
    const char *log = o->log_file && strcmp(o->log_file, "none") ? o->log_file : NULL;
    const struct { const char *what, *path; } inputs[] = {
        {"--model", o->model},           {"--recipe", o->recipe}, {"--profile", o->profile},
        {"--adapter", o->adapter},
        {"--models-dir", o->models_dir}, {"--log-file", log},     {"--scratch-dir", o->scratch_dir},
    };
    OSH_TRY(places_init(cx, &p, o->output));
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        OSH_TRY(claim_input(cx, &p, inputs[i].what, inputs[i].path));
    for (size_t i = 0; i < o->dataset.n; i++) {
        const char *text = o->dataset.items[i];
        osh_free(cx, data);
        if (!(data = osh_sprintf(cx, "%.*s", (int)osh_mix_path_bytes(text), text)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        OSH_TRY(claim_input(cx, &p, "--dataset", data));
    }
    OSH_TRY(claim_model_links(cx, &p, o->model));
done:
    osh_free(cx, data);
    places_deinit(cx, &p);
    return rc;
}

osh_status osh_claim_journal(osh_ctx *cx, const char *path)
{
    osh_status rc = OSH_OK;
    bool ours = false;
    osh_inode at = osh_inode_at(path);
    if (at.kind == OSH_INODE_FILE && at.n_names == 1) OSH_TRY(osh_journal_is_one(cx, path, &ours));
    if (!ours)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s is %s that oneshot did not make: want it moved away, or another --output",
                 path, osh_inode_text(&at));
done:
    return rc;
}

osh_status osh_claim_partial(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    size_t n = 0;
    bool begun = false;
    osh_inode at = osh_inode_at(e->partial);
    if (at.kind == OSH_INODE_NONE) goto done;
    if (at.kind != OSH_INODE_DIR)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s is %s, but the unfinished output needs this name: want it moved away, or "
                 "another --output",
                 e->partial, osh_inode_text(&at));
    OSH_TRY(osh_dir_list(cx, &names, &n, e->partial));
    if (!n) goto done;
    if (!(path = osh_path_join(cx, e->partial, OSH_JOURNAL_NAME)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_inode_at(path).kind == OSH_INODE_NONE)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s was not made by oneshot, but has the name of the unfinished output: it holds "
                 "%s and no %s; want it moved away, or another --output",
                 e->partial, names[0], OSH_JOURNAL_NAME);
    OSH_TRY(osh_journal_is_begun(cx, path, &begun));
    // the earlier run wrote nothing but its journal, so there is no other file to check
    if (n == 1 && begun) goto done;
    OSH_TRY(osh_claim_journal(cx, path));
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, path);
    return rc;
}

osh_status osh_claim_files(osh_ctx *cx, const osh_emitter *e, osh_status code)
{
    osh_status rc = OSH_OK;
    osh_known k = {0}; // own
    OSH_TRY(
        osh_known_of_run(cx, &k, &e->plan->manifest, e->resumed ? NULL : e->journal));
    OSH_TRY(osh_known_check(cx, &k, e->partial, code));
done:
    osh_known_deinit(cx, &k);
    return rc;
}

osh_status osh_claim_output(osh_ctx *cx, const osh_emitter *e, osh_status code)
{
    osh_status rc = OSH_OK;
    osh_known k = {0}; // own
    OSH_TRY(osh_known_of_output(cx, &k, e->final));
    OSH_TRY(osh_known_check(cx, &k, e->final, code));
done:
    osh_known_deinit(cx, &k);
    return rc;
}

osh_status osh_sum_of_manifest(osh_ctx *cx, uint64_t *sum, const char *dir)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, OSH_MANIFEST_NAME); // own
    int64_t n;
    *sum = 0;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_inode_at(path).kind == OSH_INODE_FILE) OSH_TRY(osh_sum_of_file(cx, sum, &n, path));
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_is_replaced(osh_ctx *cx, bool *is, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    uint64_t sum = 0;
    *is = e->replaced_sum && osh_inode_at(e->replaced).kind == OSH_INODE_DIR;
    if (!*is) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, e->replaced));
    OSH_TRY(osh_sum_of_manifest(cx, &sum, e->replaced));
    // a directory without files is accepted: its deletion was interrupted
    *is = !n || sum == e->replaced_sum;
done:
    osh_strings_free(cx, names, n);
    return rc;
}

osh_status osh_claim_replaced(osh_ctx *cx, const osh_emitter *e, osh_status code)
{
    osh_status rc = OSH_OK;
    bool is = false;
    osh_inode at = osh_inode_at(e->replaced);
    if (at.kind == OSH_INODE_NONE) goto done;
    OSH_TRY(osh_is_replaced(cx, &is, e));
    if (!is)
        OSH_FAIL(cx, code,
                 "%s is %s, but a replaced output needs this name until it is deleted: want it "
                 "moved away, or another --output",
                 e->replaced, osh_inode_text(&at));
done:
    return rc;
}

/* ---- checks during the run ---- */

static osh_status claim_fail_gone(osh_ctx *cx, const osh_emitter *e, const char *path)
{
    osh_inode now = osh_inode_at(path);
    bool gone = now.kind == OSH_INODE_NONE;
    return osh_fail(cx, OSH_E_IO,
                    "%s was %s while this run wrote it%s%s: the written output does not get the "
                    "name %s, and no file of that name was changed",
                    path, gone ? "removed or moved" : "replaced", gone ? "" : ", by ",
                    gone ? "" : osh_inode_text(&now), e->final);
}

osh_status osh_emit_still_held(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    if (!osh_file_is_at(e->dir, e->partial)) OSH_TRY(claim_fail_gone(cx, e, e->partial));
    if (!(path = osh_path_join(cx, e->partial, OSH_JOURNAL_NAME)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_journal_is_at(e->journal, path)) OSH_TRY(claim_fail_gone(cx, e, path));
    for (int s = 0; s < e->plan->manifest.n_shards; s++)
        if (!osh_file_is_at(e->shards[s], osh_file_path(e->shards[s])))
            OSH_TRY(claim_fail_gone(cx, e, osh_file_path(e->shards[s])));
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_emit_old_still_held(osh_ctx *cx, const osh_emitter *e)
{
    if (!e->old || osh_file_is_at(e->old, e->final)) return OSH_OK;
    return claim_fail_gone(cx, e, e->final);
}

/* Must be called after the rename to the final name. If another process put its own directory at
 * e->partial just before the rename, that directory now has the final name. In this case the
 * function renames the directory back and fails. */
osh_status osh_emit_got_name(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    if (osh_file_is_at(e->dir, e->final)) goto done;
    if (osh_inode_at(e->partial).kind == OSH_INODE_NONE)
        OSH_TRY(osh_rename(cx, e->final, e->partial));
    OSH_TRY(claim_fail_gone(cx, e, e->partial));
done:
    return rc;
}
