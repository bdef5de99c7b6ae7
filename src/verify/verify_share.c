/* verify_share.c - divides the checks of `oneshot verify` among ranks. All ranks go through the
 * same list of checks and number them. Each rank does some of the checks, and sends its findings
 * with the numbers of the checks to rank 0. So rank 0 prints the findings in the same order as a
 * single process. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "io/journal.h"
#include "plan/division.h"
#include "verify/verify.h"

bool osh_verify_next(osh_verify *v, int64_t bytes)
{
    int owner = 0;
    for (int k = 1; k < osh_ranks_n(v->opt->ranks); k++)
        if (v->load[k] < v->load[owner]) owner = k;
    v->load[owner] += (double)bytes + 1; // + 1, because a check of 0 bytes takes time, too
    v->item++, v->here = owner == osh_ranks_me(v->opt->ranks);
    return v->here;
}

void osh_verify_alone(osh_verify *v)
{
    v->item++, v->here = !osh_ranks_me(v->opt->ranks);
    osh_ranks_phase(v->opt->ranks, "verify", NULL);
}

/* Appends the sizes of those files of the output that every rank reads. The ranks compare these
 * sizes. */
static osh_status files_tell(osh_ctx *cx, osh_buf *b, const char *dir)
{
    static const char *const names[] = {"config.json", "oneshot-manifest.json"};
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        char *path = osh_path_join(cx, dir, names[i]); // own
        if (!path) OSH_TRY(OSH_E_NOMEM);
        long long n = stat(path, &st) ? -1 : (long long)st.st_size; // -1 if the file does not exist
        osh_free(cx, path);
        OSH_TRY(osh_buf_line(cx, b, "%s: %lld bytes", names[i], n));
    }
done:
    return rc;
}

osh_status osh_verify_agree(osh_ctx *cx, const osh_verify *v, const char *what,
                            const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    if (!v->opt->ranks) goto done;
    if (ck) OSH_TRY(osh_shards_tell(cx, &b, ck));
    if (ck == v->ck) OSH_TRY(files_tell(cx, &b, v->dir));
    OSH_TRY(osh_ranks_agree(cx, v->opt->ranks, what, b.data ? b.data : "no checkpoint"));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

typedef struct seen { // checksum of a source tensor that this rank has read
    int64_t tensor;
    uint64_t sum;
} seen;

osh_status osh_verify_gather_sums(osh_ctx *cx, const osh_verify *v)
{
    osh_status rc = OSH_OK;
    osh_ranks *ranks = v->opt->ranks;
    const osh_checkpoint *ck = v->plan->in.ck;
    seen *all = NULL; // own
    int64_t n = 0;
    if (!ranks) goto done;
    OSH_NEW(cx, all, ck->n_tensors);
    if (osh_ranks_me(ranks)) {
        for (int64_t i = 0; i < ck->n_tensors; i++)
            if (osh_checkpoint_seen(ck, i, &all[n].sum)) all[n++].tensor = i;
        OSH_TRY(osh_ranks_send(cx, ranks, &n, sizeof n, 0));
        OSH_TRY(osh_ranks_send(cx, ranks, all, (size_t)n * sizeof *all, 0));
        goto done;
    }
    for (int k = 1; k < osh_ranks_n(ranks); k++) {
        OSH_TRY(osh_ranks_recv(cx, ranks, &n, sizeof n, k));
        OSH_TRY(osh_ranks_recv(cx, ranks, all, (size_t)n * sizeof *all, k));
        for (int64_t i = 0; i < n; i++)
            OSH_TRY(osh_checkpoint_saw(cx, ck, all[i].tensor, all[i].sum));
    }
done:
    osh_free(cx, all);
    return rc;
}

/* Sends the counts and findings of this rank to rank 0. */
static osh_status findings_post(osh_ctx *cx, const osh_verify *v)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    size_t shown = v->n < OSH_VERIFY_MAX ? v->n : OSH_VERIFY_MAX;
    const uint64_t counts[] = {v->n, (uint64_t)v->n_sums, (uint64_t)v->n_modules,
                               (uint64_t)v->n_compared};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        OSH_TRY(osh_put_u64(cx, &b, counts[i]));
    for (size_t i = 0; i < shown; i++) {
        const osh_finding *f = &v->findings[i];
        OSH_TRY(osh_put_u64(cx, &b, (uint64_t)f->item));
        OSH_TRY(osh_put_text(cx, &b, f->where));
        OSH_TRY(osh_put_text(cx, &b, f->found));
        OSH_TRY(osh_put_text(cx, &b, f->wanted));
    }
    void *bytes = b.data; // osh_ranks_post becomes the owner of these bytes, also after a failure
    size_t n = b.len;
    b = (osh_buf){.data = NULL};
    OSH_TRY(osh_ranks_post(cx, v->opt->ranks, bytes, n));
    OSH_TRY(osh_ranks_post_wait(cx, v->opt->ranks, 0));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status finding_read(osh_ctx *cx, osh_finding *f, osh_reader *in)
{
    osh_status rc = OSH_OK;
    char **texts[] = {&f->where, &f->found, &f->wanted};
    f->item = (int64_t)osh_read_u64(in);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n;
        const char *text = osh_read_text(in, &n);
        if (in->bad) OSH_FAIL(cx, OSH_E_IO, "a rank has sent findings that cannot be read");
        if (!(*texts[i] = osh_sprintf(cx, "%.*s", (int)n, text)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the findings");
    }
done:
    return rc;
}

/* Takes the message of rank `from`: adds its counts to those of v, and appends its findings to the
 * *n findings so far. The caller sorts the findings. */
static osh_status findings_take(osh_ctx *cx, osh_verify *v, size_t *n, int from)
{
    osh_status rc = OSH_OK;
    void *bytes = NULL; // own
    size_t n_bytes;
    OSH_TRY(osh_ranks_take(cx, v->opt->ranks, &bytes, &n_bytes, &from, true));
    osh_reader in = {bytes, n_bytes, false};
    uint64_t all = osh_read_u64(&in), shown = all < OSH_VERIFY_MAX ? all : OSH_VERIFY_MAX;
    v->n += all, v->n_sums += (int64_t)osh_read_u64(&in);
    v->n_modules += (int64_t)osh_read_u64(&in), v->n_compared += (int64_t)osh_read_u64(&in);
    if (*n + shown > v->cap) {
        osh_finding *more = osh_realloc(cx, v->findings, (*n + shown) * sizeof *more);
        if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the findings");
        memset(more + v->cap, 0, (*n + shown - v->cap) * sizeof *more);
        v->findings = more, v->cap = *n + shown;
    }
    for (uint64_t i = 0; i < shown; i++) OSH_TRY(finding_read(cx, &v->findings[(*n)++], &in));
done:
    osh_free(cx, bytes);
    return rc;
}

static int finding_order(const void *a, const void *b)
{
    const osh_finding *x = a, *y = b;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

osh_status osh_verify_gather(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    osh_ranks *ranks = v->opt->ranks;
    if (!ranks) return OSH_OK;
    if (osh_ranks_me(ranks)) return findings_post(cx, v);
    size_t n = v->n < OSH_VERIFY_MAX ? v->n : OSH_VERIFY_MAX;
    for (int k = 1; k < osh_ranks_n(ranks); k++) OSH_TRY(findings_take(cx, v, &n, k));
    /* the findings of each check come from one rank, so they are still in order */
    for (size_t i = 0; i < n; i++) v->findings[i].nth = i;
    if (n) qsort(v->findings, n, sizeof *v->findings, finding_order);
done:
    return rc;
}
