/* resume.c - continues the partial directory of an earlier run from the end of its journal, or
 * begins a new directory.
 *
 * A record of the journal describes bytes of the output. If the record is before the last barrier,
 * its bytes are on the disk. The bytes of later records are read again: after a loss of power, a
 * record may be on the disk while its bytes are lost. */
#include <string.h>
#include <sys/random.h>

#include "base/inode.h"
#include "output/emit_impl.h"
#include "output/known.h"
#include "output/manifest_text.h"
#include "store/scratch.h"

/* Shards are opened for direct I/O only if an output has at most this number of shards. Direct I/O
 * needs a second descriptor for each shard, and a process may have only 1024 descriptors. */
enum { DIRECT_SHARDS = 256 };

/* Removes all files that this program made in the partial directory, except the journal. Empties
 * the journal. Also removes the scratch directory. */
static osh_status resume_wipe(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *scratch = NULL; // own
    osh_known k = {0};    // own
    OSH_TRY(osh_scratch_dir(cx, &scratch, e->plan->in.opt->scratch_dir, e->partial));
    OSH_TRY(osh_scratch_remove(cx, scratch));
    OSH_TRY(osh_scratch_remove_ranks(cx, scratch));
    OSH_TRY(osh_known_of_run(cx, &k, &e->plan->manifest, e->journal));
    /* The records are marked invalid before their files are removed. */
    if (osh_journal_count(e->journal)) {
        OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_DISCARDED, NULL, 0));
        OSH_TRY(osh_journal_sync(cx, e->journal));
    }
    OSH_TRY(
        /* The journal stays, because this process has locked it. */
        osh_known_remove(cx, &k, e->partial, OSH_JOURNAL_NAME, true));
    OSH_TRY(osh_dir_sync(cx, e->partial));
    // the journal is cleared last, because its identity names the other files
    OSH_TRY(osh_journal_clear(cx, e->journal));
done:
    osh_known_deinit(cx, &k);
    osh_free(cx, scratch);
    return rc;
}

static osh_status resume_check_room(osh_ctx *cx, const osh_emitter *e)
{
    int64_t need = 0, room = osh_disk_free(e->partial);
    for (int s = 0; s < e->plan->manifest.n_shards; s++)
        need += e->plan->manifest.shards[s].n_bytes;
    if (room >= 0 && room < need + (16 << 20))
        return osh_fail(cx, OSH_E_IO,
                        "the disk of %s has %ld bytes free, the output needs %ld, and 16 MiB for "
                        "the journal and other files",
                        e->final, (long)room, (long)need);
    return OSH_OK;
}

static osh_status resume_make_shard(osh_ctx *cx, osh_emitter *e, int s, const char *path)
{
    osh_status rc = OSH_OK;
    const osh_shard *sh = &e->plan->manifest.shards[s];
    OSH_TRY(osh_file_create_exclusive(cx, &e->shards[s], path));
    OSH_TRY(osh_file_reserve(cx, e->shards[s], sh->n_bytes));
    OSH_TRY(osh_file_pwrite(cx, e->shards[s], sh->header, sh->header_bytes, 0));
    OSH_TRY(osh_file_sync(cx, e->shards[s]));
done:
    return rc;
}

static osh_status resume_open_shard(osh_ctx *cx, osh_emitter *e, int s, const char *path)
{
    osh_status rc = OSH_OK;
    const osh_shard *sh = &e->plan->manifest.shards[s];
    char *header = NULL; // own
    if (osh_inode_at(path).kind == OSH_INODE_NONE)
        OSH_FAIL(cx, OSH_E_IO,
                 "%s does not exist, but the first run of this output wrote it: want --restart",
                 path);
    OSH_TRY(osh_file_open_rw(cx, &e->shards[s], path));
    if (osh_file_bytes(e->shards[s]) != sh->n_bytes)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s has %lld bytes, but the first run of this output wrote %lld: want --restart",
                 path, (long long)osh_file_bytes(e->shards[s]), (long long)sh->n_bytes);
    if (!(header = osh_alloc(cx, sh->header_bytes)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the header of %s", path);
    OSH_TRY(osh_file_pread(cx, e->shards[s], header, sh->header_bytes, 0));
    if (memcmp(header, sh->header, sh->header_bytes))
        OSH_FAIL(
            cx, OSH_E_FORMAT,
            "the header of %s differs from the header that the first run wrote: want --restart",
            path);
done:
    osh_free(cx, header);
    return rc;
}

osh_status osh_emit_open_shard(osh_ctx *cx, osh_emitter *e, int s)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, e->partial, e->plan->manifest.shards[s].name); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    bool made = e->resumed || e->remote;
    OSH_TRY(made ? resume_open_shard(cx, e, s, path) : resume_make_shard(cx, e, s, path));
    if (e->plan->budget.memory.direct && e->plan->manifest.n_shards <= DIRECT_SHARDS)
        osh_file_use_direct(e->shards[s]);
done:
    osh_free(cx, path);
    return rc;
}

static osh_status resume_open_shards(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    for (int s = 0; s < e->plan->manifest.n_shards; s++) OSH_TRY(osh_emit_open_shard(cx, e, s));
done:
    return rc;
}

/* Returns the last record of a type in the journal, or NULL if there is none. */
static const osh_journal_record *journal_find_record(const osh_journal *j, uint32_t type)
{
    for (int64_t i = osh_journal_count(j) - 1; i >= 0; i--)
        if (osh_journal_at(j, i)->type == type) return osh_journal_at(j, i);
    return NULL;
}

/* Returns the value of the last record OSH_REC_REPLACED in the journal, or 0 if there is none. */
static uint64_t journal_find_replaced(const osh_journal *j)
{
    const osh_journal_record *rec = journal_find_record(j, OSH_REC_REPLACED);
    osh_reader in = {rec ? rec->data : NULL, rec ? rec->n : 0, false};
    return rec ? osh_read_u64(&in) : 0;
}

/* Fails if the journal has the identity of another run. Sets *found to true if the journal has the
 * identity of this run, and to false if it has no identity. */
static osh_status resume_check_identity(osh_ctx *cx, osh_emitter *e, bool *found)
{
    osh_status rc = OSH_OK;
    cJSON *was = NULL; // own
    char *diff = NULL; // own
    *found = false;
    if (!osh_journal_count(e->journal) || journal_find_record(e->journal, OSH_REC_DISCARDED))
        goto done;
    const osh_journal_record *rec = osh_journal_at(e->journal, 0);
    if (rec->type != OSH_REC_IDENTITY) goto done;
    rc = osh_json_parse(cx, &was, (const char *)rec->data, rec->n, OSH_JOURNAL_NAME, 0);
    if (rc == OSH_E_FORMAT)
        osh_note(cx, "reading the journal of %s; --restart discards the directory", e->partial);
    OSH_TRY(rc);
    OSH_TRY(osh_identity_differs(cx, &diff, e->id, was));
    if (diff)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s was begun by another run: %s; want the same, another --output, or --restart, "
                 "which discards it",
                 e->partial, diff);
    *found = true;
done:
    cJSON_Delete(was);
    osh_free(cx, diff);
    return rc;
}

/* Chooses a random number for the run and records it (OSH_REC_RUN). */
static osh_status resume_draw_run(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    while (!e->run)
        if (getrandom(&e->run, sizeof e->run, 0) != sizeof e->run)
            OSH_FAIL(cx, OSH_E_IO, "cannot draw a random number");
    OSH_TRY(osh_put_u64(cx, &b, e->run));
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_RUN, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Begins a new partial directory. Syncs the directory before it writes the first record: the
 * names of the files must be on the disk before a record depends on them. */
static osh_status resume_begin_new(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *id = NULL; // own
    OSH_TRY(resume_wipe(cx, e));
    OSH_TRY(resume_check_room(cx, e));
    OSH_TRY(resume_open_shards(cx, e));
    OSH_TRY(osh_dir_sync(cx, e->partial));
    OSH_TRY(osh_dir_sync_above(cx, e->partial));
    OSH_TRY(osh_identity_json(cx, &id, e->id, OSH_IDENTITY_ALL));
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_IDENTITY, id, strlen(id)));
    OSH_TRY(resume_draw_run(cx, e));
    OSH_TRY(osh_emit_barrier(cx, e));
done:
    osh_free(cx, id);
    return rc;
}

/* Opens and locks the partial directory. Sets *fresh to true if this call created it. */
static osh_status resume_enter(osh_ctx *cx, osh_emitter *e, bool *fresh)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, e->partial, OSH_JOURNAL_NAME); // own
    bool busy = false, made = osh_inode_at(e->partial).kind == OSH_INODE_NONE;
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_claim_partial(cx, e));
    OSH_TRY(osh_dir_make(cx, e->partial));
    OSH_TRY(osh_file_hold(cx, &e->dir, e->partial));
    OSH_TRY(osh_journal_open(cx, &e->journal, path, &busy));
    if (busy) OSH_FAIL(cx, OSH_E_USAGE, "%s: another process is writing it", e->partial);
    e->replaced_sum = journal_find_replaced(e->journal);
    *fresh = made;
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_emit_begin(osh_ctx *cx, osh_emitter *e, osh_result *results)
{
    osh_status rc = OSH_OK;
    bool found = false;
    OSH_TRY(resume_enter(cx, e, &e->ours));
    if (!e->plan->in.opt->restart) OSH_TRY(resume_check_identity(cx, e, &found));
    e->resumed = found;
    OSH_TRY(osh_claim_files(cx, e, OSH_E_USAGE));
    // If replaced_sum is 0, osh_claim_replaced refuses to remove e->replaced, which may be the only
    // copy of an old output.
    if (!found) e->replaced_sum = 0;
    OSH_TRY(osh_claim_replaced(cx, e, OSH_E_USAGE));
    if (!found) {
        e->ours = true;
        OSH_TRY(resume_begin_new(cx, e));
        goto done;
    }
    OSH_TRY(resume_open_shards(cx, e));
    OSH_TRY(osh_emit_replay(cx, e, results));
    e->ours = true;
    if (!e->run) OSH_TRY(resume_draw_run(cx, e)); // the record of the run's random number was lost
    for (int s = 0; s < e->plan->manifest.n_shards; s++) e->dirty[s] = true;
    if (!e->complete && osh_emitter_holds_work(e)) {
        OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_RESUMED, NULL, 0));
        e->n_resumed++;
    }
    if (!e->complete) OSH_TRY(osh_emit_barrier(cx, e));
done:
    return rc;
}

static osh_status resume_check_shard_sizes(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    for (int s = 0; s < e->plan->manifest.n_shards; s++) {
        int64_t size = -1, mtime;
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, e->final, e->plan->manifest.shards[s].name)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        if (osh_file_exists(path)) OSH_TRY(osh_file_stat(cx, &size, &mtime, path));
        if (size != e->plan->manifest.shards[s].n_bytes)
            OSH_FAIL(
                cx, OSH_E_USAGE,
                "%s is finished, but %s has %lld bytes where %lld were written: want --overwrite",
                e->final, e->plan->manifest.shards[s].name, (long long)size,
                (long long)e->plan->manifest.shards[s].n_bytes);
    }
done:
    osh_free(cx, path);
    return rc;
}

/* Fails if a file in the list `files` of the manifest is missing in the finished output, or has
 * another checksum. Shards are not read here; `oneshot verify` reads them. */
static osh_status resume_check_side_files(osh_ctx *cx, const osh_emitter *e, const cJSON *files)
{
    osh_status rc = OSH_OK;
    char *path = NULL, text[OSH_SUM_TEXT]; // own: path
    const cJSON *file;
    cJSON_ArrayForEach(file, files)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file, "name"));
        const char *want = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file, "xxh3"));
        int64_t n = 0;
        if (!name || !want || strchr(name, '/'))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s/" OSH_MANIFEST_NAME ": wrong entry in \"files\"",
                     e->final);
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, e->final, name)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        if (!osh_file_exists(path))
            OSH_FAIL(cx, OSH_E_USAGE, "%s is finished, but %s is missing: want --overwrite",
                     e->final, name);
        OSH_TRY(osh_sum_text_of_file(cx, text, &n, path));
        if (strcmp(text, want))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s is finished, but %s was changed later (checksum %s, written %s): want "
                     "--overwrite",
                     e->final, name, text, want);
    }
done:
    osh_free(cx, path);
    return rc;
}

/* Completes a rename that was interrupted. A journal in the final directory means that the process
 * ended after the rename, before it removed the journal. */
static osh_status resume_finish_rename(osh_ctx *cx, osh_emitter *e, const char *journal)
{
    osh_status rc = OSH_OK;
    osh_journal *j = NULL; // own
    bool busy = false;
    OSH_TRY(osh_claim_journal(cx, journal));
    OSH_TRY(osh_journal_open(cx, &j, journal, &busy));
    if (busy) OSH_FAIL(cx, OSH_E_USAGE, "%s: another process is writing it", e->final);
    e->replaced_sum = journal_find_replaced(j);
    OSH_TRY(osh_emit_remove_replaced(cx, e));
    OSH_TRY(osh_file_remove(cx, journal));
    OSH_TRY(osh_dir_sync(cx, e->final));
done:
    e->replaced_sum = 0;
    osh_journal_close(cx, j);
    return rc;
}

osh_status osh_emit_is_finished(osh_ctx *cx, osh_emitter *e, bool *finished)
{
    osh_status rc = OSH_OK;
    char *manifest = osh_path_join(cx, e->final, OSH_MANIFEST_NAME); // own
    char *journal = osh_path_join(cx, e->final, OSH_JOURNAL_NAME);   // own
    char *diff = NULL;                                               // own
    cJSON *root = NULL;                                              // own
    bool just_now;
    *finished = false;
    if (!manifest || !journal) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(manifest)) goto done;
    just_now = osh_file_exists(journal);
    if (just_now) OSH_TRY(resume_finish_rename(cx, e, journal));
    if (e->plan->in.opt->overwrite && !just_now) goto done;
    OSH_TRY(osh_manifest_read(cx, &root, e->final, NULL, NULL));
    OSH_TRY(
        osh_identity_differs(cx, &diff, e->id, cJSON_GetObjectItemCaseSensitive(root, "made_of")));
    if (!diff)
        OSH_TRY(osh_origin_of_output(cx, &diff, e,
                                     cJSON_GetObjectItemCaseSensitive(root, "read_from")));
    if (diff && !e->plan->in.opt->overwrite)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s holds a finished checkpoint: want --overwrite or another --output; of this run %s",
            e->final, diff);
    if (!diff) OSH_TRY(resume_check_shard_sizes(cx, e));
    if (!diff)
        OSH_TRY(
            resume_check_side_files(cx, e, cJSON_GetObjectItemCaseSensitive(root, "files")));
    *finished = !diff;
done:
    osh_free(cx, manifest);
    osh_free(cx, journal);
    osh_free(cx, diff);
    cJSON_Delete(root);
    return rc;
}
