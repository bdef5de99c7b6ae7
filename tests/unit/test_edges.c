/* test_edges.c - tests writes to a file. Several threads write neighbouring ranges (pieces) in any
 * order. The file must have the bytes of all pieces, even with flushes between the writes. Any
 * number of blocks may wait for their last bytes. Bytes outside the pieces must not change. */
#include "dir_fixture.h"
#include "io/edges.h"

#include <pthread.h>

enum { BYTES = 3 << 20, MOST = 9000, THREADS = 4 };

typedef struct piece { int64_t at; size_t n; } piece;
typedef struct job {
    osh_ctx *cx;
    osh_edges *e;
    osh_file *f;
    const uint8_t *want;
    const piece *pieces;
    int first, n;
    bool lies_as_in_file;
    osh_status rc;
} job;

static uint64_t seed_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void *write_some(void *user)
{
    job *j = user;
    uint8_t *block = osh_alloc(j->cx, (size_t)MOST + 3 * OSH_BLOCK_BYTES);
    for (int i = j->first; i < j->n && !j->rc; i += THREADS) {
        const piece *p = &j->pieces[i];
        uint8_t *from =
            (uint8_t *)osh_file_align(block) + (j->lies_as_in_file ? p->at % OSH_BLOCK_BYTES : 1);
        memcpy(from, j->want + p->at, p->n);
        j->rc = osh_edges_write(j->cx, j->e, j->f, from, p->n, p->at);
        if (!j->rc && i % 97 == 0) j->rc = osh_edges_flush(j->cx, j->e);
    }
    osh_free(j->cx, block);
    return NULL;
}

/* Writes the pieces and compares the file. One of every `hole` pieces is not written; if `hole` is
 * 0, all are written. */
static void edges_check(void **state, int n_cut, uint64_t seed, bool direct, bool lies_as_in_file,
                        int hole)
{
    fixture *fx = *state;
    osh_ctx *cx = fx->cx;
    char *path = osh_path_join(cx, fx->dir, "edges");
    uint8_t *want = osh_alloc(cx, BYTES), *got = osh_alloc(cx, BYTES);
    piece *pieces = osh_alloc(cx, sizeof *pieces * (BYTES + 1));
    osh_file *f = NULL;
    osh_edges *e = NULL;
    pthread_t threads[THREADS];
    job jobs[THREADS];
    int n = 0, kept = 0;
    for (int64_t i = 0; i < BYTES; i++) want[i] = (uint8_t)seed_next(&seed);
    for (int64_t at = 0; at < BYTES; n++) {
        size_t k = 1 + seed_next(&seed) % (uint64_t)n_cut;
        pieces[n] = (piece){at, (int64_t)k < BYTES - at ? k : (size_t)(BYTES - at)};
        at += (int64_t)pieces[n].n;
    }
    for (int i = 0; i < n; i++) {
        if (!hole || i % hole) pieces[kept++] = pieces[i];
        else memset(want + pieces[i].at, 0x5a, pieces[i].n);
    }
    // changes the order of the pieces: a piece moves up to a hundred positions
    for (int i = kept - 1; i > 0; i--) {
        int j = i - (int)(seed_next(&seed) % 100);
        piece p = pieces[i];
        if (j < 0) j = 0;
        pieces[i] = pieces[j], pieces[j] = p;
    }
    memset(got, 0x5a, BYTES);
    assert_int_equal(osh_file_create(cx, &f, path), OSH_OK);
    assert_int_equal(osh_file_pwrite(cx, f, got, BYTES, 0), OSH_OK);
    assert_int_equal(osh_file_sync(cx, f), OSH_OK);
    if (direct) osh_file_use_direct(f);
    assert_int_equal(osh_edges_new(cx, &e), OSH_OK);
    for (int t = 0; t < THREADS; t++) {
        jobs[t] = (job){.e = e, .f = f, .want = want, .pieces = pieces, .first = t, .n = kept,
                        .lies_as_in_file = lies_as_in_file};
        assert_int_equal(osh_ctx_fork(&jobs[t].cx, cx), OSH_OK);
        assert_int_equal(pthread_create(&threads[t], NULL, write_some, &jobs[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        assert_int_equal(jobs[t].rc, OSH_OK);
        osh_ctx_free(jobs[t].cx);
    }
    assert_int_equal(osh_edges_flush(cx, e), OSH_OK);
    assert_int_equal(osh_file_pread(cx, f, got, BYTES, 0), OSH_OK);
    assert_memory_equal(got, want, BYTES);
    osh_edges_free(cx, e);
    osh_file_close(cx, f);
    osh_free(cx, path);
    osh_free(cx, pieces);
    osh_free(cx, got);
    osh_free(cx, want);
}

static void test_small_pieces(void **state)
{
    edges_check(state, 700, 1, true, true, 0);
    edges_check(state, 700, 2, false, true, 0);
    edges_check(state, 40, 3, true, true, 0);
}

static void test_pieces_of_blocks(void **state)
{
    edges_check(state, MOST, 4, true, true, 0);
    edges_check(state, MOST, 5, false, true, 0);
    edges_check(state, MOST, 6, true, false, 0);
}

static void test_holes(void **state)
{
    edges_check(state, 700, 7, true, true, 5);
    edges_check(state, MOST, 8, true, true, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_small_pieces, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_pieces_of_blocks, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_holes, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
