/* known.c - lists the names of the files that this program makes, and checks and removes files by
 * this list. */
#include "output/known.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/inode.h"
#include "output/emit_impl.h"
#include "output/manifest_text.h"
#include "rewrite/experts.h"
#include "store/scratch.h"

void osh_known_deinit(osh_ctx *cx, osh_known *k)
{
    osh_map_free(cx, k->names);
    *k = (osh_known){0};
}

enum {
    LASTING,
    TEMPORARY
}; // Files of a finished output, and files that only a running process needs.

static osh_status known_put(osh_ctx *cx, osh_known *k, const char *name, int kind)
{
    return osh_map_put(cx, k->names, name, strlen(name), kind);
}

/* Adds the files that this program always makes. If `temporary` is true, also adds the temporary
 * files that a killed run may leave. */
static osh_status known_add_written(osh_ctx *cx, osh_known *k, bool temporary)
{
    const char *const names[] = {
        "config.json",     "recipe.yaml", osh_container_written()->index, OSH_README_NAME,
        OSH_MANIFEST_NAME, OSH_MARK_NAME, "oneshot-report.html"};
    static const char *const passing[] = {OSH_TUNED_NAME, OSH_TUNED_NAME ".tmp"};
    osh_status rc = OSH_OK;
    char *temp = NULL; // own
    OSH_TRY(known_put(cx, k, OSH_LOG_NAME, LASTING));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        OSH_TRY(known_put(cx, k, names[i], LASTING));
        if (!temporary) continue;
        osh_free(cx, temp);
        if (!(temp = osh_sprintf(cx, "%s.tmp", names[i]))) OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(known_put(cx, k, temp, TEMPORARY));
    }
    for (size_t i = 0; temporary && i < sizeof passing / sizeof *passing; i++)
        OSH_TRY(known_put(cx, k, passing[i], TEMPORARY));
done:
    osh_free(cx, temp);
    return rc;
}

/* Adds the side files of the source of an earlier run. `was`: journal of that run. The identity in
 * the journal names the files. Duplicate keys in the identity are no error, because earlier
 * versions wrote such keys. */
static osh_status known_add_identity(osh_ctx *cx, osh_known *k, const osh_journal *was)
{
    osh_status rc = OSH_OK;
    cJSON *id = NULL; // own
    const osh_journal_record *r = osh_journal_count(was) ? osh_journal_at(was, 0) : NULL;
    if (!r || r->type != OSH_REC_IDENTITY) goto done;
    id = cJSON_ParseWithLength((const char *)r->data, r->n);
    for (const cJSON *f = id ? id->child : NULL; f; f = f->next)
        if (f->string && !strncmp(f->string, "source ", 7))
            OSH_TRY(known_put(cx, k, f->string + 7, LASTING));
done:
    cJSON_Delete(id);
    return rc;
}

osh_status osh_known_of_survey(osh_ctx *cx, osh_known *k)
{
    osh_status rc = OSH_OK;
    *k = (osh_known){.in_place = true};
    OSH_TRY(osh_map_new(cx, &k->names, 64));
    OSH_TRY(known_add_written(cx, k, true));
    OSH_TRY(known_put(cx, k, OSH_JOURNAL_NAME, LASTING));
    OSH_TRY(known_put(cx, k, OSH_SCRATCH_NAME, LASTING));
done:
    return rc;
}

osh_status osh_known_of_run(osh_ctx *cx, osh_known *k, const osh_manifest *p,
                            const osh_journal *was)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *temp = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_known_of_survey(cx, k));
    k->any_shard = was != NULL;
    for (int s = 0; s < p->n_shards; s++)
        OSH_TRY(known_put(cx, k, p->shards[s].name, LASTING));
    OSH_TRY(osh_checkpoint_side_files(cx, &names, &n, p->in->ck));
    for (size_t i = 0; i < n; i++) OSH_TRY(known_put(cx, k, names[i], LASTING));
    if (was) OSH_TRY(known_add_identity(cx, k, was));
    if (!osh_experts_file(p->rewrites)) goto done;
    if (!(temp = osh_sprintf(cx, "%s.tmp", osh_experts_file(p->rewrites)))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(known_put(cx, k, osh_experts_file(p->rewrites), LASTING));
    OSH_TRY(known_put(cx, k, temp, TEMPORARY));
done:
    osh_free(cx, temp);
    osh_strings_free(cx, names, n);
    return rc;
}

static osh_status known_add_text(osh_ctx *cx, osh_known *k, const cJSON *name)
{
    return cJSON_IsString(name) ? known_put(cx, k, name->valuestring, LASTING) : OSH_OK;
}

/* Adds the file that contains a tensor of the manifest. Has the type of osh_json_taken.item. */
static osh_status known_add_shard(osh_ctx *cx, void *known, const cJSON *tensor)
{
    return known_add_text(cx, known, cJSON_GetObjectItemCaseSensitive(tensor, "file"));
}

osh_status osh_known_of_output(osh_ctx *cx, osh_known *k, const char *dir)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL; // own
    *k = (osh_known){0};
    OSH_TRY(osh_map_new(cx, &k->names, 64));
    OSH_TRY(known_add_written(cx, k, false));
    OSH_TRY(osh_manifest_read(cx, &root, dir, &(osh_json_taken){"tensors", known_add_shard}, k));
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(root, "files");
    for (const cJSON *f = cJSON_IsArray(files) ? files->child : NULL; f; f = f->next)
        OSH_TRY(known_add_text(cx, k, cJSON_GetObjectItemCaseSensitive(f, "name")));
done:
    cJSON_Delete(root);
    return rc;
}

static bool known_has(const osh_known *k, const char *name)
{
    return (k->names && osh_map_get(k->names, name, strlen(name), &(int64_t){0})) ||
           (k->any_shard && osh_container_is_file_name(osh_container_written(), name)) ||
           (k->in_place && osh_scratch_is_name(name));
}

static osh_status known_check_file(osh_ctx *cx, const osh_known *k, const char *path,
                                   const char *name, osh_status code)
{
    osh_inode at = osh_inode_at(path);
    /* Another process has removed the file since the directory was listed. */
    if (at.kind == OSH_INODE_NONE) return OSH_OK;
    if (known_has(k, name)) {
        if (k->in_place && osh_scratch_is_name(name)) return osh_scratch_check(cx, path);
        if (at.kind == OSH_INODE_FILE && (at.n_names == 1 || !k->in_place)) return OSH_OK;
    }
    return osh_fail(cx, code,
                    "%s is %s that oneshot did not make, but the output that %s needs this name: "
                    "want it moved away",
                    path, osh_inode_text(&at),
                    k->in_place ? "is being written" : "will be replaced");
}

osh_status osh_known_check(osh_ctx *cx, const osh_known *k, const char *dir, osh_status code)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++) {
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, dir, names[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        OSH_TRY(known_check_file(cx, k, path, names[i], code));
    }
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, path);
    return rc;
}

static osh_status known_remove_file(osh_ctx *cx, const osh_known *k, const char *dir,
                                    const char *name)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, name); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (k->in_place && osh_scratch_is_name(name)) OSH_TRY(osh_scratch_remove(cx, path));
    else OSH_TRY(osh_file_remove(cx, path));
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_known_remove(osh_ctx *cx, const osh_known *k, const char *dir, const char *last,
                            bool keep_last)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++)
        if (known_has(k, names[i]) && strcmp(names[i], last))
            OSH_TRY(known_remove_file(cx, k, dir, names[i]));
    if (keep_last) goto done;
    // the file `last` shows that the others belong to this program, so it is removed after them
    OSH_TRY(osh_dir_sync(cx, dir));
    OSH_TRY(known_remove_file(cx, k, dir, last));
    rmdir(dir); // it is no error if rmdir fails because the directory still has a file
done:
    osh_strings_free(cx, names, n);
    return rc;
}

osh_status osh_known_remove_temporary(osh_ctx *cx, const osh_known *k, const char *dir)
{
    osh_status rc = OSH_OK;
    char **names = NULL; // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++) {
        int64_t kind = LASTING;
        if (osh_map_get(k->names, names[i], strlen(names[i]), &kind) && kind == TEMPORARY)
            OSH_TRY(known_remove_file(cx, k, dir, names[i]));
    }
done:
    osh_strings_free(cx, names, n);
    return rc;
}
