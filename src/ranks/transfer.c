/* transfer.c - moves bytes between ranks. A function that waits asks MPI again and again whether
 * its transfer is complete: often at first, and later with a sleep between two questions. So a rank
 * that waits for a long time leaves its processor to other ranks. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "ranks/ranks_impl.h"

/* SPINS: number of times that MPI is asked before the first sleep. LONGEST_NS: longest sleep in
 * nanoseconds. */
enum { SPINS = 64, LONGEST_NS = 1000000 };

/* Sleeps before question number *n to MPI (from 0), and adds 1 to *n. There is no sleep before the
 * first SPINS questions. */
static void wait_a_little(int *n)
{
    if (++*n < SPINS) {
        sched_yield();
        return;
    }
    long ns = 20000L * (*n - SPINS + 1);
    nanosleep(&(struct timespec){.tv_nsec = ns < LONGEST_NS ? ns : LONGEST_NS}, NULL);
}

osh_status osh_ranks_check(osh_ctx *cx, const osh_ranks *r, int code)
{
    char text[OSH_RANKS_TEXT];
    if (!code) return OSH_OK;
    r->t->text(code, text);
    return osh_fail(cx, OSH_E_IO, "MPI: %s", text);
}

osh_status osh_ranks_wait(osh_ctx *cx, osh_ranks *r, void **request)
{
    osh_status rc = OSH_OK;
    double began = osh_now();
    for (int n = 0, done = 0;;) {
        OSH_TRY(osh_ranks_check(cx, r, r->t->test(request, &done)));
        if (done) break;
        OSH_TRY(osh_ranks_hear(cx, r));
        OSH_TRY(osh_check_interrupt(cx));
        wait_a_little(&n);
    }
done:
    r->waited += osh_now() - began;
    return rc;
}

/* Waits for a transfer. code: result of the call that began it. */
static osh_status transfer_finish(osh_ctx *cx, osh_ranks *r, int code, void *request)
{
    osh_status rc = osh_ranks_check(cx, r, code);
    return rc ? rc : osh_ranks_wait(cx, r, &request);
}

/* Returns the size in bytes of one part of a transfer. The transfer has n bytes, and the part
 * begins at byte `at`. */
static size_t part_bytes(size_t n, size_t at)
{
    return n - at < OSH_RANKS_PART ? n - at : OSH_RANKS_PART;
}

int64_t osh_ranks_sent(const osh_ranks *r) { return r ? r->sent : 0; }
double osh_ranks_waited(const osh_ranks *r) { return r ? r->waited : 0; }

osh_status osh_ranks_send(osh_ctx *cx, osh_ranks *r, const void *from, size_t n, int to)
{
    osh_status rc = OSH_OK;
    if (r) r->sent += (int64_t)n;
    for (size_t at = 0, part; r && at < n; at += part) {
        void *request = NULL;
        part = part_bytes(n, at);
        int code = r->t->send((const char *)from + at, part, to, OSH_TAG_ORDER, &request);
        OSH_TRY(transfer_finish(cx, r, code, request));
    }
done:
    return rc;
}

osh_status osh_ranks_recv(osh_ctx *cx, osh_ranks *r, void *to, size_t n, int from)
{
    osh_status rc = OSH_OK;
    for (size_t at = 0, part; r && at < n; at += part) {
        void *request = NULL;
        part = part_bytes(n, at);
        int code = r->t->recv((char *)to + at, part, from, OSH_TAG_ORDER, &request);
        OSH_TRY(transfer_finish(cx, r, code, request));
    }
done:
    return rc;
}

osh_status osh_ranks_broadcast(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n, int root)
{
    osh_status rc = OSH_OK;
    if (r && r->facts.rank == root) r->sent += (int64_t)n * (r->facts.size - 1);
    for (size_t at = 0, part; r && at < n; at += part) {
        void *request = NULL;
        part = part_bytes(n, at);
        int code = r->t->broadcast((char *)bytes + at, part, root, &request);
        OSH_TRY(transfer_finish(cx, r, code, request));
    }
done:
    return rc;
}

osh_status osh_ranks_barrier(osh_ctx *cx, osh_ranks *r)
{
    osh_status rc = OSH_OK;
    void *request = NULL;
    if (!r) goto done;
    int code = r->t->barrier(&request);
    OSH_TRY(transfer_finish(cx, r, code, request));
done:
    return rc;
}

osh_status osh_ranks_gather(osh_ctx *cx, osh_ranks *r, void *all, const void *mine, size_t n)
{
    osh_status rc = OSH_OK;
    if (osh_ranks_me(r) > 0) return osh_ranks_send(cx, r, mine, n, 0);
    memcpy(all, mine, n);
    for (int k = 1; k < osh_ranks_n(r); k++)
        OSH_TRY(osh_ranks_recv(cx, r, (char *)all + (size_t)k * n, n, k));
done:
    return rc;
}

osh_status osh_ranks_largest(osh_ctx *cx, osh_ranks *r, int64_t *n)
{
    osh_status rc = OSH_OK;
    int64_t *all = NULL; // own [ranks]
    OSH_NEW(cx, all, osh_ranks_n(r));
    OSH_TRY(osh_ranks_gather(cx, r, all, n, sizeof *n));
    for (int k = 0; k < osh_ranks_n(r) && !osh_ranks_me(r); k++)
        if (all[k] > *n) *n = all[k];
    OSH_TRY(osh_ranks_broadcast(cx, r, n, sizeof *n, 0));
done:
    osh_free(cx, all);
    return rc;
}

/* ---- messages to rank 0 ---- */

static void post_free(osh_ctx *cx, osh_post *p)
{
    if (!p) return;
    osh_free(cx, p->bytes);
    osh_free(cx, p->requests);
    osh_free(cx, p);
}

osh_status osh_ranks_post(osh_ctx *cx, osh_ranks *r, void *bytes, size_t n)
{
    osh_status rc = OSH_OK;
    osh_post *p = NULL; // own
    OSH_NEW(cx, p, 1);
    p->bytes = bytes, bytes = NULL, p->n = n, r->sent += (int64_t)n;
    OSH_NEW(cx, p->requests, 1 + (n + OSH_RANKS_PART - 1) / OSH_RANKS_PART);
    int code = r->t->send(&p->n, sizeof p->n, 0, OSH_TAG_POST, &p->requests[p->n_requests++]);
    for (size_t at = 0, part; !code && at < n; at += part) {
        part = part_bytes(n, at);
        code = r->t->send((const char *)p->bytes + at, part, 0, OSH_TAG_POST,
                          &p->requests[p->n_requests++]);
    }
    osh_post *added = p;
    if (r->last) r->last->next = p;
    else r->first = p;
    /* MPI may use the memory of p even after a failure, so the list owns p from here on */
    r->last = p, p = NULL;
    if (code) added->n_requests--;
    OSH_TRY(osh_ranks_check(cx, r, code));
done:
    post_free(cx, p);
    osh_free(cx, bytes);
    return rc;
}

/* Sets *all to true if the message p is sent completely. */
static osh_status post_test(osh_ctx *cx, const osh_ranks *r, const osh_post *p, bool *all)
{
    osh_status rc = OSH_OK;
    *all = true;
    for (int k = 0, done; k < p->n_requests; k++) {
        if (!p->requests[k]) continue;
        OSH_TRY(osh_ranks_check(cx, r, r->t->test(&p->requests[k], &done)));
        *all &= done != 0;
    }
done:
    return rc;
}

osh_status osh_ranks_posted(osh_ctx *cx, osh_ranks *r, int *n_left)
{
    osh_status rc = OSH_OK;
    bool all = true;
    *n_left = 0;
    while (r && r->first) {
        osh_post *p = r->first;
        OSH_TRY(post_test(cx, r, p, &all));
        if (!all) break;
        if (!(r->first = p->next)) r->last = NULL;
        post_free(cx, p);
    }
    for (const osh_post *p = r ? r->first : NULL; p; p = p->next) ++*n_left;
done:
    return rc;
}

osh_status osh_ranks_post_wait(osh_ctx *cx, osh_ranks *r, int most)
{
    osh_status rc = OSH_OK;
    double began = osh_now();
    for (int n = 0, left;;) {
        OSH_TRY(osh_ranks_posted(cx, r, &left));
        if (left <= most) break;
        OSH_TRY(osh_check_interrupt(cx));
        wait_a_little(&n);
    }
done:
    if (r) r->waited += osh_now() - began;
    return rc;
}

/* Receives the length of a posted message, or a part of its bytes. */
static osh_status message_recv(osh_ctx *cx, osh_ranks *r, void *to, size_t n, int from)
{
    void *request = NULL;
    int code = r->t->recv(to, n, from, OSH_TAG_POST, &request);
    return transfer_finish(cx, r, code, request);
}

osh_status osh_ranks_take(osh_ctx *cx, osh_ranks *r, void **bytes, size_t *n, int *from, bool wait)
{
    osh_status rc = OSH_OK;
    uint64_t length = 0;
    char *all = NULL; // own
    size_t head;
    double began = osh_now();
    *bytes = NULL, *n = 0;
    if (!r) goto done;
    for (int k = 0, any = *from >= 0; !any;) {
        OSH_TRY(osh_ranks_check(cx, r, r->t->probe(OSH_TAG_POST, &any, from, &head)));
        if (any) break;
        OSH_TRY(osh_ranks_hear(cx, r));
        if (!wait) goto done;
        OSH_TRY(osh_check_interrupt(cx));
        wait_a_little(&k);
    }
    r->waited += osh_now() - began;
    OSH_TRY(message_recv(cx, r, &length, sizeof length, *from));
    if (!(all = osh_alloc(cx, length ? length : 1)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a message of rank %d", *from);
    for (size_t at = 0, part; at < length; at += part) {
        part = part_bytes(length, at);
        OSH_TRY(message_recv(cx, r, all + at, part, *from));
    }
    *bytes = all, *n = length, all = NULL; // passes ownership
done:
    osh_free(cx, all);
    return rc;
}
