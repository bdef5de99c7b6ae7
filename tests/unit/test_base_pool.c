/* test_base_pool.c - checks parallel loops and nested loops for any number of threads. Every chunk
 * must run once. If chunks fail, the loop must return the failure of the first of them. A reader
 * must read at most one item ahead. */
#include "torture.h"
#include "base/ahead.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

typedef struct job {
    _Atomic int runs[1000];
    _Atomic int bad_worker;
    int n_threads;
} job;

static osh_status mark(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    job *j = user;
    if (worker < 0 || worker >= j->n_threads) atomic_fetch_add(&j->bad_worker, 1);
    atomic_fetch_add(&j->runs[chunk], 1);
    return OSH_OK;
}

static void every_chunk_once(void **state)
{
    for (int threads = 1; threads <= 5; threads += 2) {
        osh_ctx *cx;
        assert_int_equal(osh_ctx_new(&cx, threads), OSH_OK);
        assert_int_equal(osh_threads(cx), threads);
        for (int n = 0; n <= 1000; n += n < 10 ? 1 : 330) {
            job j = {.n_threads = threads};
            assert_ok(cx, osh_parallel_for(cx, n, mark, &j));
            for (int i = 0; i < 1000; i++) assert_int_equal(j.runs[i], i < n);
            assert_int_equal(j.bad_worker, 0);
        }
        osh_ctx_free(cx);
    }
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 0), OSH_OK);
    assert_true(osh_threads(cx) >= 1);
    osh_ctx_free(cx);
}

static void many_small_jobs(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 3), OSH_OK);
    job j = {.n_threads = 3};
    for (int i = 0; i < 5000; i++) assert_ok(cx, osh_parallel_for(cx, 4, mark, &j));
    for (int i = 0; i < 4; i++) assert_int_equal(j.runs[i], 5000);
    osh_ctx_free(cx);
}

static osh_status fail_some(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const int64_t *first = user;
    if (chunk < *first || chunk % 3) return OSH_OK;
    volatile double x = 1; // lower chunks take longer, so a higher chunk fails first
    for (int i = 0; i < (int)(60 - chunk) * 2000; i++) x *= 1.0000001;
    osh_status rc =
        osh_fail(cx, chunk % 2 ? OSH_E_NUMERIC : OSH_E_FORMAT, "chunk %d is bad", (int)chunk);
    osh_note(cx, "testing");
    return rc;
}

static void lowest_failure_wins(void **state)
{
    for (int threads = 1; threads <= 4; threads++) {
        osh_ctx *cx;
        assert_int_equal(osh_ctx_new(&cx, threads), OSH_OK);
        for (int repeat = 0; repeat < 50; repeat++) {
            int64_t first = 19;
            assert_fails(cx, OSH_E_NUMERIC, osh_parallel_for(cx, 60, fail_some, &first),
                         "chunk 21 is bad; while testing");
            first = 24;
            assert_fails(cx, OSH_E_FORMAT, osh_parallel_for(cx, 60, fail_some, &first),
                         "chunk 24 is bad");
        }
        int64_t none = 1000; // the pool still works after a failure
        assert_ok(cx, osh_parallel_for(cx, 60, fail_some, &none));
        assert_string_equal(osh_error_text(cx), "");
        osh_ctx_free(cx);
    }
}

static osh_status fail_first(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    atomic_fetch_add((_Atomic int64_t *)user, 1);
    return chunk == 0 ? osh_fail(cx, OSH_E_IO, "at once") : OSH_OK;
}

static void a_failure_ends_the_loop(void **state)
{
    osh_ctx *cx;
    _Atomic int64_t runs = 0;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    assert_int_equal(osh_parallel_for(cx, INT64_MAX - 100, fail_first, &runs), OSH_E_IO);
    osh_ctx_free(cx);
}

static osh_status recovered(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    if (chunk < 50) {
        osh_fail(cx, OSH_E_IO, "not fatal");
        // the message of a chunk that succeeds must not be added to the message of a failed chunk
        return OSH_OK;
    }
    return chunk == 77 ? osh_fail(cx, OSH_E_IO, "fatal") : OSH_OK;
}

static void stale_messages_do_not_stick(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 3), OSH_OK);
    assert_int_equal(osh_parallel_for(cx, 100, recovered, NULL), OSH_E_IO);
    assert_string_equal(osh_error_text(cx), "fatal");
    osh_ctx_free(cx);
}

/* Interrupts the loop in its eleventh chunk. After an interrupt no new chunk begins. Chunks that
 * have begun run to their end. */
static osh_status interrupt_at(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    _Atomic int64_t *runs = user;
    if (atomic_fetch_add(runs, 1) == 10) osh_interrupt(cx);
    return OSH_OK;
}

static void an_interrupt_ends_the_loop(void **state)
{
    for (int threads = 1; threads <= 4; threads++) {
        osh_ctx *cx;
        _Atomic int64_t runs = 0;
        assert_int_equal(osh_ctx_new(&cx, threads), OSH_OK);
        assert_fails(cx, OSH_E_INTERRUPTED,
                     osh_parallel_for(cx, INT64_MAX - 100, interrupt_at, &runs), "interrupted");
        assert_true(runs >= 11 && runs < 11 + threads);
        assert_fails(cx, OSH_E_INTERRUPTED, osh_parallel_for(cx, 1, interrupt_at, &runs),
                     "interrupted");
        assert_ok(cx, osh_parallel_for(cx, 0, interrupt_at, &runs));
        osh_ctx_free(cx);
    }
}

static osh_status inner(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    atomic_fetch_add((_Atomic int *)user, (int)chunk);
    return worker == 0 ? OSH_OK
                       : osh_fail(cx, OSH_E_INTERNAL, "worker %d of an inline loop", worker);
}

static osh_status outer(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    void *p = osh_alloc(cx, 100);
    // the nested loop runs on the calling thread
    osh_status rc = osh_parallel_for(cx, 10, inner, user);
    osh_free(cx, p);
    return rc;
}

static void nested_calls_run_inline(void **state)
{
    osh_ctx *cx;
    _Atomic int sum = 0;
    assert_int_equal(osh_ctx_new(&cx, 4), OSH_OK);
    assert_ok(cx, osh_parallel_for(cx, 64, outer, &sum));
    assert_int_equal(sum, 64 * 45);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

typedef struct side {
    osh_ctx *cx;
    _Atomic int sum;
    osh_status rc;
} side;

static osh_status add_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    atomic_fetch_add((_Atomic int *)user, 1);
    return OSH_OK;
}

static void *side_main(void *user)
{
    side *s = user;
    for (int i = 0; i < 500 && !s->rc; i++) s->rc = osh_parallel_for(s->cx, 20, add_chunk, &s->sum);
    return NULL;
}

static void a_thread_beside_the_pool(void **state)
{
    osh_ctx *cx;
    side s = {0};
    pthread_t t;
    _Atomic int sum = 0;
    assert_int_equal(osh_ctx_new(&cx, 3), OSH_OK);
    assert_int_equal(osh_ctx_fork(&s.cx, cx), OSH_OK);
    assert_int_equal(pthread_create(&t, NULL, side_main, &s), 0);
    for (int i = 0; i < 500; i++) assert_ok(cx, osh_parallel_for(cx, 20, add_chunk, &sum));
    pthread_join(t, NULL);
    assert_int_equal(s.rc, OSH_OK);
    assert_int_equal(s.sum, 10000);
    assert_int_equal(sum, 10000);
    osh_ctx_free(s.cx);
    osh_ctx_free(cx);
}

static osh_status alloc_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    for (size_t i = 0; i < 50; i++) {
        void *p = osh_alloc(cx, i * 10);
        if (!p) return OSH_E_NOMEM;
        osh_free(cx, p);
    }
    return OSH_OK;
}

static void counters_are_shared(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 4), OSH_OK);
    assert_ok(cx, osh_parallel_for(cx, 100, alloc_chunk, NULL));
    assert_int_equal(osh_mem_live(cx), 0);
    assert_true(osh_mem_peak(cx) >= 490 && osh_mem_peak(cx) <= 4 * 490);
    osh_mem_fail_after(cx, 777); // an allocation in any worker fails
    assert_fails(cx, OSH_E_NOMEM, osh_parallel_for(cx, 100, alloc_chunk, NULL), "cannot allocate");
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

enum { APART = 23, AT_ONCE = 5 };
typedef struct apart {
    osh_ctx *cx;
    int made[APART], n_waiting;
    _Atomic int n_made, n_begun, n_taken;
    int bad; // index of the chunk that fails; < 0: no chunk fails
    int bad_take;
} apart;

static osh_status make_apart(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    apart *a = user;
    _Atomic int sum = 0;
    if (atomic_fetch_add(&a->n_begun, 1) - a->n_taken >= AT_ONCE)
        return osh_fail(cx, OSH_E_INTERNAL, "too many wait");
    if (osh_threads(cx) != 1)
        return osh_fail(cx, OSH_E_INTERNAL, "%d threads in a chunk", osh_threads(cx));
    osh_status rc = osh_parallel_for(cx, 3, add_chunk, &sum);
    if (chunk == a->bad) return osh_fail(cx, OSH_E_NUMERIC, "chunk %d is bad", (int)chunk);
    a->made[chunk]++;
    atomic_fetch_add(&a->n_made, 1);
    return rc ? rc : sum == 3 ? OSH_OK : OSH_E_INTERNAL;
}

static osh_status take_apart(osh_ctx *cx, void *user, int64_t chunk)
{
    apart *a = user;
    if (cx != a->cx || chunk != a->n_taken || a->made[chunk] != 1) return OSH_E_INTERNAL;
    if (a->n_made - a->n_taken > a->n_waiting) a->n_waiting = a->n_made - a->n_taken;
    if (chunk == a->bad_take) return osh_fail(cx, OSH_E_IO, "nobody takes %d", (int)chunk);
    a->n_taken++;
    return OSH_OK;
}

/* Chunk AT_ONCE - 1 ends only when another chunk has begun. So the test hangs if the loop waits for
 * all AT_ONCE chunks before it begins the next. */
static osh_status make_late(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    apart *a = user;
    osh_status rc = make_apart(cx, user, chunk, worker);
    while (chunk == AT_ONCE - 1 && a->n_begun <= AT_ONCE) sched_yield();
    return rc;
}

/* The calling thread takes the finished chunks in order. At most AT_ONCE chunks have begun and are
 * not yet taken. After a failure no chunk begins or is taken. */
static void chunks_apart(void **state)
{
    osh_ctx *cx;
    apart a, b;
    const osh_apart of_a = {make_apart, take_apart, &a}, of_b = {make_apart, take_apart, &b};
    const osh_apart late = {make_late, take_apart, &a};
    for (int threads = 1; threads <= 4; threads++) {
        assert_int_equal(osh_ctx_new(&cx, threads), OSH_OK);
        for (int i = 0; i < 100; i++) {
            a = (apart){.cx = cx, .bad = -1, .bad_take = -1};
            assert_ok(cx, osh_parallel_apart(cx, APART, AT_ONCE, &of_a));
            assert_int_equal(a.n_taken, APART);
            assert_in_range(a.n_waiting, 1, AT_ONCE);
            assert_int_equal(osh_threads(cx), threads); // after the loop, the context may use all
                                                        // threads again
        }
        a = (apart){.cx = cx, .bad = 12, .bad_take = -1},
        b = (apart){.cx = cx, .bad = -1, .bad_take = 7};
        assert_fails(cx, OSH_E_NUMERIC, osh_parallel_apart(cx, APART, AT_ONCE, &of_a),
                     "chunk 12 is bad");
        assert_int_equal(a.n_taken, 12);
        assert_fails(cx, OSH_E_IO, osh_parallel_apart(cx, APART, AT_ONCE, &of_b), "nobody takes 7");
        assert_int_equal(b.n_taken, 7);
        assert_in_range(b.n_made, 8, 7 + AT_ONCE);
        a = (apart){.cx = cx, .bad = -1, .bad_take = -1};
        if (threads > 1) assert_ok(cx, osh_parallel_apart(cx, APART, AT_ONCE, &late));
        osh_ctx_free(cx);
    }
}

/* ---- a reader ---- */

typedef struct shelf {
    _Atomic int n_read, n_given; // n_read: number of items that were read; n_given: number of items
                                 // that the caller has got
    int bad;                     // item that cannot be read; -1: none
    _Atomic int too_early;       // number of reads that began before they were allowed
    osh_read_ahead *reader;          // own
    bool waits;                  // true if each read waits until osh_read_ahead_free stops it
    pthread_t thread;            // thread of the last read
} shelf;

static osh_status shelf_read(osh_ctx *cx, void *user, int item)
{
    shelf *s = user;
    s->too_early += item != s->n_read || item > s->n_given;
    while (s->waits && !osh_read_ahead_stops(cx, s->reader)) sched_yield();
    if (item == s->bad) return osh_fail(cx, OSH_E_IO, "item %d is bad", item);
    s->thread = pthread_self();
    s->n_read++;
    return OSH_OK;
}

static osh_status shelf_start(osh_ctx *cx, shelf *s, int n, bool ahead)
{
    return osh_read_ahead_start(cx, &s->reader,
                                &(osh_read_items){shelf_read, s, n, .ahead = ahead});
}

static void a_reader_is_one_item_ahead(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int taken = 0; taken <= 20; taken += 5) { // frees the reader after `taken` of 20 items
        shelf s = {.bad = -1};
        assert_ok(cx, shelf_start(cx, &s, 20, true));
        for (int i = 0; i < taken; i++) {
            assert_ok(cx, osh_read_ahead_wait(cx, s.reader));
            assert_true(s.n_read > i);
            s.n_given++;
            osh_read_ahead_next(s.reader);
        }
        osh_read_ahead_free(cx, s.reader);
        assert_in_range(s.n_read, taken, taken + 1);
        assert_int_equal(s.too_early, 0);
    }
    shelf s = {.bad = 1}, waiting = {.bad = -1, .waits = true};
    assert_ok(cx, shelf_start(cx, &s, 3, true));
    assert_ok(cx, osh_read_ahead_wait(cx, s.reader));
    s.n_given++;
    osh_read_ahead_next(s.reader);
    assert_fails(cx, OSH_E_IO, osh_read_ahead_wait(cx, s.reader), "item 1 is bad");
    osh_read_ahead_free(cx, s.reader);
    assert_int_equal(s.n_read, 1);
    assert_ok(cx, shelf_start(cx, &waiting, 3, true));
    osh_read_ahead_free(cx, waiting.reader); // stops the read, which would wait forever
    osh_ctx_free(cx);
}

static void a_reader_without_a_thread(void **state)
{
    osh_ctx *cx;
    shelf s = {.bad = 2};
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx, shelf_start(cx, &s, 3, false));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s.n_read, i); // without a thread of its own, the reader reads an item only
                                       // when the caller asks for it
        assert_ok(cx, osh_read_ahead_wait(cx, s.reader));
        assert_true(pthread_equal(s.thread, pthread_self()));
        assert_false(osh_read_ahead_stops(cx, s.reader));
        s.n_given++;
        osh_read_ahead_next(s.reader);
    }
    assert_fails(cx, OSH_E_IO, osh_read_ahead_wait(cx, s.reader), "item 2 is bad");
    osh_read_ahead_free(cx, s.reader);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_once),         cmocka_unit_test(many_small_jobs),
        cmocka_unit_test(lowest_failure_wins),      cmocka_unit_test(a_failure_ends_the_loop),
        cmocka_unit_test(an_interrupt_ends_the_loop), cmocka_unit_test(stale_messages_do_not_stick),
        cmocka_unit_test(nested_calls_run_inline),  cmocka_unit_test(a_thread_beside_the_pool),
        cmocka_unit_test(counters_are_shared),      cmocka_unit_test(chunks_apart),
        cmocka_unit_test(a_reader_is_one_item_ahead), cmocka_unit_test(a_reader_without_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
