/* claim.c - the places that a run writes to are its own, and stay so: another process, or a person, may have moved,
 * removed or replaced them meanwhile, and a rename would give the output's name to what somebody else made. */
#include "base/inode.h"
#include "output/emit_impl.h"

static osh_status fail_gone(osh_ctx *cx, const osh_emitter *e, const char *path)
{
    osh_inode now = osh_inode_at(path);
    bool gone = now.kind == OSH_INODE_NONE;
    return osh_fail(cx, OSH_E_IO,
                    "%s was %s while this run wrote it%s%s: what it wrote does not get the name %s, and nothing there "
                    "was touched",
                    path, gone ? "removed or moved" : "replaced", gone ? "" : ", by ",
                    gone ? "" : osh_inode_text(&now), e->final);
}

osh_status osh_emit_still_held(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    if (!osh_file_is_at(e->dir, e->partial)) OSH_TRY(fail_gone(cx, e, e->partial));
    if (!(path = osh_path_join(cx, e->partial, OSH_JOURNAL_NAME))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_journal_is_at(e->journal, path)) OSH_TRY(fail_gone(cx, e, path));
    for (int s = 0; s < e->plan->n_shards; s++)
        if (!osh_file_is_at(e->shards[s], osh_file_path(e->shards[s])))
            OSH_TRY(fail_gone(cx, e, osh_file_path(e->shards[s])));
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_emit_old_still_held(osh_ctx *cx, const osh_emitter *e)
{
    if (!e->old || osh_file_is_at(e->old, e->final)) return OSH_OK;
    return fail_gone(cx, e, e->final);
}

/* Between the last look and the rename somebody may have put another directory there: it goes back. */
osh_status osh_emit_got_name(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    if (osh_file_is_at(e->dir, e->final)) goto done;
    if (osh_inode_at(e->partial).kind == OSH_INODE_NONE) OSH_TRY(osh_rename(cx, e->final, e->partial));
    OSH_TRY(fail_gone(cx, e, e->partial));
done:
    return rc;
}
