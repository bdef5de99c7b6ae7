/* test_blocks.c - tests values in page-locked host memory (src/store/blocks.c, activations.c) on
 * the emulated GPU. The rows must be the same in every order that the streams allow. They must also
 * be the same with few blocks, and with memory that cannot be locked. */
#include "gpu/gpu.h"
#include "play/fixture.h"
#include "play/play.h"
#include "store/activations.h"
#include "store/blocks.h"
#include "torture.h"

enum { MIB = 1 << 20, ARENA = 96 * MIB, BATCHES = 6, TOKENS = 300, WIDTH = 128, OUT_OF_MEMORY = 2,
       LOST = 719 };
/* Each batch is one sample. The sample has 300 tokens, or 60 tokens in the last batch. */
static int64_t offsets[BATCHES + 1];
static osh_value values[3] = {{.name = "a", .width = WIDTH, .dtype = OSH_BF16},
                              {.name = "b", .width = WIDTH, .dtype = OSH_BF16},
                              {.name = "c", .width = 8, .dtype = OSH_BF16}};
static osh_graph graph = {.values = values, .n_values = 3, .input_ids = -1, .dtype = OSH_BF16};
static osh_dataset data = {.offsets = offsets, .n = BATCHES};

typedef struct fixture {
    osh_ctx *cx;
    osh_device *d;
    osh_acts *a;
} fixture;

static int setup(void **state)
{
    static fixture f;
    *state = &f;
    f = (fixture){0};
    for (int b = 0; b < BATCHES; b++) offsets[b + 1] = offsets[b] + (b + 1 < BATCHES ? TOKENS : 60);
    if (osh_ctx_new(&f.cx, 1)) return 1;
    if (osh_device_open(f.cx, &f.d, &osh_device_kinds[OSH_GPU], 0, ARENA))
        fail_msg("%s", osh_error_text(f.cx));
    if (osh_acts_new(f.cx, &f.a, &graph, &data, &(osh_acts_place){OSH_TIER_HOST, NULL, false}))
        return 1;
    return osh_acts_use(f.cx, f.a, f.d) ? 1 : 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    osh_acts_free(f->cx, f->a, false);
    return play_close_leaks(f->cx, f->d);
}

static void ok(fixture *f, osh_status rc)
{
    if (rc) fail_msg("%s", osh_error_text(f->cx));
}

static void fill(void *to, size_t n, int value, int64_t batch, int round)
{
    uint8_t *p = to;
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 7 + i / 999 + (size_t)(31 * value + 77 * batch + 13 * round));
}

static osh_tensor *rows_new(fixture *f, int value, int64_t batch)
{
    osh_tensor *t = NULL;
    int64_t shape[2] = {offsets[batch + 1] - offsets[batch], values[value].width};
    ok(f, osh_tensor_new_on(f->cx, &t, (osh_where){f->d, OSH_LIFE_SHORT}, OSH_BF16, 2, shape));
    return t;
}

/* Stores rows that are made on the GPU; no two batches have equal rows. As soon as the GPU memory
 * of the rows is free, it is overwritten. */
static void store(fixture *f, int value, int64_t batch, int round)
{
    osh_tensor *t = rows_new(f, value, batch), *next;
    size_t n = osh_tensor_bytes(t);
    void *host = osh_alloc(f->cx, n);
    assert_non_null(host);
    fill(host, n, value, batch, round);
    ok(f, osh_tensor_put(f->cx, t, 0, host, n));
    ok(f, osh_acts_store(f->cx, f->a, value, batch, 1, t));
    osh_tensor_free(f->cx, t);
    next = rows_new(f, value, batch); // `next` is allocated in the memory that t had
    ok(f, osh_tensor_zero(f->cx, next));
    osh_tensor_free(f->cx, next);
    osh_free(f->cx, host);
}

static void check(fixture *f, int value, int64_t batch, int round, const osh_tensor *t)
{
    size_t n = osh_tensor_bytes(t);
    void *got = osh_alloc(f->cx, n), *want = osh_alloc(f->cx, n);
    assert_true(got && want);
    fill(want, n, value, batch, round);
    ok(f, osh_tensor_get(f->cx, got, t, 0, n));
    if (memcmp(got, want, n))
        fail_msg("value %d, batch %d, round %d: other rows", value, (int)batch, round);
    osh_free(f->cx, got);
    osh_free(f->cx, want);
}

static void load(fixture *f, int value, int64_t batch, int round)
{
    osh_tensor *t = rows_new(f, value, batch);
    ok(f, osh_tensor_zero(f->cx, t));
    ok(f, osh_acts_load(f->cx, f->a, value, batch, 1, t));
    check(f, value, batch, round, t);
    osh_tensor_free(f->cx, t);
}

/* Replaces value 0 by value 1 and back, n times, batch by batch, as n subgraphs do. */
static void visits(fixture *f, int n)
{
    for (int b = 0; b < BATCHES; b++) store(f, 0, b, 0);
    for (int k = 0; k < n; k++) {
        for (int b = 0; b < BATCHES; b++) {
            load(f, k % 2, b, k);
            osh_acts_forget(f->cx, f->a, k % 2, b, 1);
            store(f, (k + 1) % 2, b, k + 1);
        }
        osh_acts_drop(f->cx, f->a, k % 2);
    }
    for (int b = 0; b < BATCHES; b++) load(f, n % 2, b, n);
}

/* Replaces values like visits(), but the host does not wait. The streams work one after the other,
 * so a missing event gives wrong rows. `first` is the index of the stream that works first. */
static void chain(fixture *f, int n, bool ahead, int first)
{
    for (int b = 0; b < BATCHES; b++) store(f, 0, b, 0);
    for (int k = 0; k < n; k++) {
        int from = k % 2, to = 1 - from;
        bool in[3] = {[0] = !from, [1] = from}, out[3] = {[0] = !to, [1] = to};
        if (ahead) ok(f, osh_acts_open(f->cx, f->a, in, out, TOKENS));
        for (int b = 0; b < BATCHES; b++) {
            osh_tensor *x = rows_new(f, from, b), *y = rows_new(f, to, b);
            ok(f, osh_acts_load(f->cx, f->a, from, b, 1, x));
            if (b + 1 < BATCHES) ok(f, osh_acts_ask(f->cx, f->a, from, b + 1, 1));
            ok(f, osh_tensor_copy(f->cx, y, x));
            ok(f, osh_tensor_zero(f->cx, x));
            osh_acts_forget(f->cx, f->a, from, b, 1);
            ok(f, osh_acts_store(f->cx, f->a, to, b, 1, y));
            ok(f, osh_tensor_zero(f->cx, y));
            osh_tensor_free(f->cx, x), osh_tensor_free(f->cx, y);
        }
        if (ahead) ok(f, osh_acts_close(f->cx, f->a));
        osh_acts_drop(f->cx, f->a, from);
        osh_tensor *all = NULL; // a tensor of zeros overwrites the freed memory of x and y
        ok(f, osh_tensor_new_on(f->cx, &all, (osh_where){f->d, OSH_LIFE_SHORT}, OSH_U8, 1,
                                (int64_t[]){4 * MIB}));
        ok(f, osh_tensor_zero(f->cx, all));
        osh_tensor_free(f->cx, all);
    }
    osh_play_drain(first);
    for (int b = 0; b < BATCHES; b++) {
        osh_tensor *t = rows_new(f, n % 2, b);
        ok(f, osh_acts_load(f->cx, f->a, n % 2, b, 1, t));
        check(f, 0, b, 0, t);
        osh_tensor_free(f->cx, t);
    }
    osh_acts_drop(f->cx, f->a, n % 2);
}

static void test_order(void **state)
{
    fixture *f = *state;
    enum { STREAMS = 4 };
    long locked = osh_play_calls("cudaHostRegister");
    for (int k = 0; k < 2 * 2 * STREAMS; k++) {
        osh_play_lazy(k & 1);
        chain(f, 1 + k % 3, k & 2, k / 4);
        chain(f, 4, k & 2, k / 4);
    }
    assert_int_equal(osh_play_calls("cudaHostRegister") - locked, BATCHES);
    osh_play_fail("cudaHostRegister", 3, OUT_OF_MEMORY); // locking fails for some blocks
    osh_acts_free(f->cx, f->a, false), f->a = NULL;
    ok(f, osh_acts_new(f->cx, &f->a, &graph, &data, &(osh_acts_place){OSH_TIER_HOST, NULL, false}));
    ok(f, osh_acts_use(f->cx, f->a, f->d));
    for (int k = 0; k < STREAMS; k++) chain(f, 3, true, k);
}

/* Tests values that are requested but not used, and a device that is closed with pending work. */
static void test_left(void **state)
{
    fixture *f = *state;
    bool in[3] = {true}, out[3] = {false, true};
    for (int first = 0; first < 4; first++) {
        size_t used = osh_arena_used(f->d->arena);
        osh_play_lazy(true);
        store(f, 0, 0, 0), store(f, 0, 1, 0);
        ok(f, osh_acts_open(f->cx, f->a, in, out, TOKENS));
        assert_int_equal(osh_arena_used(f->d->arena) - used,
                         (size_t)(osh_acts_way_bytes(&graph, 0, TOKENS) +
                                  osh_acts_way_bytes(&graph, 1, TOKENS)));
        load(f, 0, 1, 0);
        ok(f, osh_acts_ask(f->cx, f->a, 0, 0, 1));
        assert_int_equal(osh_acts_ask(f->cx, f->a, 0, 2, 1), OSH_E_INTERNAL);
        osh_error_clear(f->cx);
        ok(f, osh_acts_close(f->cx, f->a));
        assert_int_equal(osh_arena_used(f->d->arena), used);
        osh_tensor *t = rows_new(f, 0, 0); // a new tensor gets the memory that the copy had
        char *got = osh_alloc(f->cx, osh_tensor_bytes(t));
        ok(f, osh_tensor_zero(f->cx, t));
        osh_play_drain(first);
        ok(f, osh_tensor_get(f->cx, got, t, 0, osh_tensor_bytes(t)));
        for (size_t i = 0; i < osh_tensor_bytes(t); i++) assert_int_equal(got[i], 0);
        osh_free(f->cx, got);
        osh_tensor_free(f->cx, t);
        store(f, 1, 1, 1);
        ok(f, osh_acts_open(f->cx, f->a, in, out, TOKENS));
        ok(f, osh_acts_ask(f->cx, f->a, 0, 0, 1));
        load(f, 0, 1, 0); // loads batch 1, although batch 0 was requested
        store(f, 1, 0, 1); // the copy of this value still runs when the blocks are freed
        osh_acts_free(f->cx, f->a, false), f->a = NULL;
        assert_int_equal(osh_arena_used(f->d->arena), used);
        ok(f, osh_acts_new(f->cx, &f->a, &graph, &data,
                           &(osh_acts_place){OSH_TIER_HOST, NULL, false}));
        ok(f, osh_acts_use(f->cx, f->a, f->d));
    }
}

static int64_t bytes_of(int value)
{
    int64_t n = 0;
    for (int b = 0; b < BATCHES; b++)
        n += osh_acts_batch_bytes(&graph, value, offsets[b + 1] - offsets[b]);
    return n;
}

/* Blocks are page-locked once and used again for the next value. The list of blocks may use 4 KiB
 * of host memory that the plan does not count. */
static void test_reuse(void **state)
{
    fixture *f = *state;
    size_t before = osh_mem_used(f->cx, OSH_MEM_HOST);
    long unlocked = osh_play_calls("cudaHostUnregister");
    for (int lazy = 0; lazy < 2; lazy++) {
        long locked = osh_play_calls("cudaHostRegister");
        osh_play_lazy(lazy);
        visits(f, 5);
        locked = osh_play_calls("cudaHostRegister") - locked;
        assert_int_equal(locked, lazy ? 0 : BATCHES);
        assert_in_range(osh_mem_used(f->cx, OSH_MEM_HOST) - before, bytes_of(0),
                        bytes_of(0) + 4096);
        osh_acts_drop(f->cx, f->a, 1);
    }
    assert_int_equal(osh_play_calls("cudaHostUnregister"), unlocked);
    // a narrower value needs smaller blocks, which replace the larger blocks
    for (int b = 0; b < BATCHES; b++) store(f, 2, b, 0);
    for (int b = 0; b < BATCHES; b++) load(f, 2, b, 0);
    assert_in_range(osh_mem_used(f->cx, OSH_MEM_HOST) - before, bytes_of(2), bytes_of(0) + 4096);
    assert_true(osh_play_calls("cudaHostUnregister") > unlocked);
}

/* Page-locking fails for the n-th block. */
static void test_refused(void **state)
{
    fixture *f = *state;
    static const int errors[] = {OUT_OF_MEMORY, 1, 304, 801};
    for (int nth = 1; nth <= 4; nth++) {
        long locked = osh_play_calls("cudaHostRegister");
        osh_play_fail("cudaHostRegister", nth, errors[nth - 1]);
        osh_play_lazy(nth & 1);
        visits(f, 3);
        for (int v = 0; v < 2; v++) osh_acts_drop(f->cx, f->a, v);
        // after a failure, page-locking is not tried again
        assert_int_equal(osh_play_calls("cudaHostRegister") - locked, nth);
        osh_play_fail(NULL, 0, 0);
        osh_acts_free(f->cx, f->a, false), f->a = NULL;
        ok(f, osh_acts_new(f->cx, &f->a, &graph, &data,
                           &(osh_acts_place){OSH_TIER_HOST, NULL, false}));
        ok(f, osh_acts_use(f->cx, f->a, f->d));
    }
}

static void test_lost(void **state)
{
    fixture *f = *state;
    osh_tensor *t = rows_new(f, 0, 0);
    ok(f, osh_tensor_zero(f->cx, t));
    osh_play_fail("cudaHostRegister", 1, LOST);
    assert_int_equal(osh_acts_store(f->cx, f->a, 0, 0, 1, t), OSH_E_IO);
    assert_non_null(strstr(osh_error_text(f->cx), "cudaHostRegister: unspecified launch failure"));
    osh_tensor_free(f->cx, t);
    osh_error_clear(f->cx);
}

/* Copies tensors between host memory and the blocks. Such tensors are the values of a subgraph that
 * is processed alone. */
static void test_host_tensors(void **state)
{
    fixture *f = *state;
    int64_t shape[2] = {TOKENS, WIDTH};
    osh_tensor *t = NULL, *gone = NULL;
    osh_play_lazy(true);
    ok(f, osh_tensor_new(f->cx, &t, OSH_BF16, 2, shape));
    for (int k = 0; k < 3; k++) {
        store(f, 0, 1, k); // the next value gets the freed block
        osh_acts_drop(f->cx, f->a, 0);
        fill(t->data, osh_tensor_bytes(t), 1, 0, k);
        ok(f, osh_acts_store(f->cx, f->a, 1, 0, 1, t));
        memset(t->data, 0, osh_tensor_bytes(t));
        ok(f, osh_acts_load(f->cx, f->a, 1, 0, 1, t));
        check(f, 1, 0, k, t);
        load(f, 1, 0, k);
        store(f, 1, 0, k + 1);
        ok(f, osh_acts_load(f->cx, f->a, 1, 0, 1, t));
        check(f, 1, 0, k + 1, t);
        assert_int_equal(osh_acts_load(f->cx, f->a, 1, 1, 1, t), OSH_E_INTERNAL);
        assert_non_null(strstr(osh_error_text(f->cx),
                               "sample 1 of value b is not stored; while loading value b"));
        osh_error_clear(f->cx);
    }
    osh_tensor_free(f->cx, t), osh_tensor_free(f->cx, gone);
}

static osh_status store_two(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    fixture *f = user;
    osh_acts *a = NULL; // own
    osh_tensor *t = NULL; // own
    OSH_TRY(osh_acts_new(cx, &a, &graph, &data, &(osh_acts_place){OSH_TIER_HOST, NULL, false}));
    OSH_TRY(osh_acts_use(cx, a, f->d));
    OSH_TRY(osh_tensor_new_on(cx, &t, (osh_where){f->d, OSH_LIFE_SHORT}, OSH_BF16, 2,
                              (int64_t[]){TOKENS, WIDTH}));
    OSH_TRY(osh_tensor_zero(cx, t));
    for (int b = 0; b < 2; b++) OSH_TRY(osh_acts_store(cx, a, 0, b, 1, t));
    OSH_TRY(osh_acts_load(cx, a, 0, 1, 1, t));
done:
    osh_tensor_free(cx, t);
    osh_acts_free(cx, a, false);
    return rc;
}

/* Every allocation fails once. No memory may remain locked. */
static void test_torture(void **state)
{
    fixture *f = *state;
    size_t live = osh_play_live(), bytes = osh_mem_live(f->cx);
    bool done = false;
    for (int n = 1; !done; n++) {
        osh_mem_fail_after(f->cx, n);
        osh_status rc = store_two(f->cx, f);
        osh_mem_fail_after(f->cx, -1);
        done = !rc;
        assert_true(done || rc == OSH_E_NOMEM);
        osh_error_clear(f->cx);
        assert_int_equal(osh_play_live(), live);
        assert_int_equal(osh_mem_live(f->cx), bytes);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    // the size of a block exceeds n by at most n / 16 bytes plus a page
    for (size_t n = 1; n < (size_t)1 << 33; n += n / 7 + 1) {
        size_t most = n + n / 16 + 4096, gross = osh_blocks_gross(n);
        assert_in_range(gross, n, most + 3 * 4096 + 256);
    }
    assert_int_equal(osh_blocks_gross(128 * MIB), osh_blocks_gross(128 * MIB - 4096 * 900));
}

int main(void)
{
#define ON_GPU(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ON_GPU(test_reuse), ON_GPU(test_order), ON_GPU(test_left),
        ON_GPU(test_refused), ON_GPU(test_lost), ON_GPU(test_host_tensors),
        ON_GPU(test_torture), cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
