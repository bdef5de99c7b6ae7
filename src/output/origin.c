/* origin.c - checks that the source still has the bytes that the run has read.
 *
 * The checksum of each tensor is computed while the tensor is read (io/ckpt_sums.c), and is written
 * to the journal and to the manifest. A shard with an unchanged stamp (size, inode, times) is not
 * read again. In a shard whose stamp has changed, the tensors that the run has read are read again.
 * If their bytes are the same, the run continues; if not, the run fails. */
#include <stdlib.h>
#include <string.h>

#include "output/emit_impl.h"
#include "output/manifest_text.h"

osh_status osh_origin_open(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_checkpoint *ck = e->plan->in.ck;
    OSH_TRY(osh_checkpoint_watch(cx, ck));
    OSH_NEW(cx, e->told, ck->n_tensors);
    OSH_NEW(cx, e->stamps, ck->n_shards);
    for (int s = 0; s < ck->n_shards; s++) e->stamps[s] = *osh_container_stamp(ck->shards[s]);
done:
    return rc;
}

/* Reads shard s of the source again and compares it with the bytes that were read before. If they
 * differ, sets *diff (own) to a text that describes the first difference. If not, sets *diff to
 * NULL and stores the current stamp of the shard for later checks. */
static osh_status origin_reread_shard(osh_ctx *cx, char **diff, osh_emitter *e, int s)
{
    osh_status rc = OSH_OK;
    osh_stamp stamp;
    OSH_TRY(osh_checkpoint_reread(cx, diff, &stamp, e->plan->in.ck, s));
    if (*diff) goto done;
    e->stamps[s] = stamp;
    OSH_TRY(osh_identity_stamp(cx, e->id, e->plan->in.ck->shard_names[s], &stamp));
done:
    return rc;
}

osh_status osh_emit_check_source(osh_ctx *cx, osh_emitter *e, bool last)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = e->plan->in.ck;
    char *diff = NULL; // own
    for (int s = 0; s < ck->n_shards; s++) {
        osh_stamp now; // current stamp of the file
        OSH_TRY(osh_path_stamp(cx, &now, osh_container_path(ck->shards[s])));
        if (osh_stamp_same(&now, &e->stamps[s]) && !(last && e->stamps[s].fresh)) continue;
        // waits until the stamp can be trusted
        if (last) OSH_TRY(osh_path_settle(cx, osh_container_path(ck->shards[s])));
        OSH_TRY(origin_reread_shard(cx, &diff, e, s));
        if (diff) OSH_FAIL(cx, OSH_E_IO, "the source changed during the run: %s", diff);
    }
done:
    osh_free(cx, diff);
    return rc;
}

osh_status osh_origin_check_files(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_identity *now = NULL; // own
    char *diff = NULL;        // own
    OSH_TRY(osh_identity_of_source(cx, &now, e->plan->in.ck));
    OSH_TRY(osh_identity_source_differs(cx, &diff, now, e->id));
    if (diff) OSH_FAIL(cx, OSH_E_IO, "the source changed during the run: %s", diff);
done:
    osh_identity_free(cx, now);
    osh_free(cx, diff);
    return rc;
}

/* True if `stamps` has the current stamp of shard s of the source, and the stamp is old enough to
 * be trusted. */
static bool origin_is_stamped(const osh_emitter *e, int s, const cJSON *stamps)
{
    return !e->stamps[s].fresh &&
           osh_identity_has_stamp(e->id, e->plan->in.ck->shard_names[s], stamps);
}

/* Reads the last record of stamps (OSH_REC_STAMPS) in the journal. */
static osh_status origin_read_stamps(osh_ctx *cx, cJSON **out, const osh_emitter *e)
{
    const osh_journal_record *rec = osh_journal_at(e->journal, 0);
    for (int64_t i = 1; i < osh_journal_count(e->journal); i++)
        if (osh_journal_at(e->journal, i)->type == OSH_REC_STAMPS)
            rec = osh_journal_at(e->journal, i);
    return osh_json_parse(cx, out, (const char *)rec->data, rec->n, OSH_JOURNAL_NAME, 0);
}

osh_status osh_origin_resume(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    cJSON *was = NULL;               // own
    char *diff = NULL, *text = NULL; // own
    bool any = false;
    OSH_TRY(origin_read_stamps(cx, &was, e));
    for (int s = 0; s < e->plan->in.ck->n_shards; s++) {
        if (origin_is_stamped(e, s, was)) continue;
        any = true;
        OSH_TRY(origin_reread_shard(cx, &diff, e, s));
        if (diff)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s was begun with another source: %s; want the same, another --output, or "
                     "--restart, which discards it",
                     e->partial, diff);
    }
    if (!any) goto done;
    OSH_TRY(osh_identity_json(cx, &text, e->id, OSH_IDENTITY_STAMPS));
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_STAMPS, text, strlen(text)));
done:
    cJSON_Delete(was);
    osh_free(cx, diff);
    osh_free(cx, text);
    return rc;
}

/* The manifest has the checksum of a source tensor. Stores this checksum, as if the tensor had just
 * been read. Has the type of osh_json_taken.item. */
static osh_status origin_take_sum(osh_ctx *cx, void *user, const cJSON *tensor)
{
    const osh_checkpoint *ck = user;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(tensor, "source");
    const cJSON *sum = cJSON_GetObjectItemCaseSensitive(tensor, "source_xxh3");
    const osh_ckpt_tensor *t =
        cJSON_IsString(name) ? osh_checkpoint_find_copied(ck, name->valuestring) : NULL;
    if (!t || !cJSON_IsString(sum)) return OSH_OK;
    return osh_checkpoint_saw(cx, ck, t - ck->tensors, strtoull(sum->valuestring, NULL, 16));
}

osh_status osh_origin_of_output(osh_ctx *cx, char **diff, osh_emitter *e, const cJSON *read_from)
{
    osh_status rc = OSH_OK;
    *diff = NULL;
    OSH_TRY(osh_manifest_read(cx, NULL, e->final, &(osh_json_taken){"tensors", origin_take_sum},
                              e->plan->in.ck));
    for (int s = 0; s < e->plan->in.ck->n_shards && !*diff; s++)
        if (!origin_is_stamped(e, s, read_from)) OSH_TRY(origin_reread_shard(cx, diff, e, s));
    // forgets the checksums of the manifest, because this run has not read the tensors
    OSH_TRY(osh_checkpoint_watch(cx, e->plan->in.ck));
done:
    return rc;
}
