/* test_device.c - tests src/gpu/device.cu and copies.cu on the emulated GPU: copies in every order
 * that the streams allow, counters, and the message of every call that can fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu.h"
#include "play/fixture.h"
#include "play/play.h"

enum { MIB = 1 << 20, ARENA = 96 * MIB, OUT_OF_MEMORY = 2, DRIVER_TOO_OLD = 35, NO_DEVICE = 100,
       NO_IMAGE = 209, LAUNCH_FAILURE = 719 };

typedef struct fixture {
    osh_ctx *cx;
    osh_device *d;
} fixture;

static int setup(void **state)
{
    static fixture f;
    *state = &f;
    f.d = NULL;
    if (osh_ctx_new(&f.cx, 1)) return 1;
    if (osh_device_open(f.cx, &f.d, &osh_device_kinds[OSH_GPU], 0, ARENA))
        fail_msg("%s", osh_error_text(f.cx));
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    return play_close_leaks(f->cx, f->d);
}

static char *pattern(osh_ctx *cx, char *p, size_t n, int seed)
{
    if (!p) p = osh_alloc(cx, n ? n : 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = (char)(i * 7 + i / 1000 + (size_t)seed);
    return p;
}

static osh_tensor *bytes_new(fixture *f, size_t n)
{
    osh_tensor *t = NULL;
    if (osh_tensor_new_on(f->cx, &t, (osh_where){f->d, OSH_LIFE_LONG}, OSH_U8, 1,
                          (int64_t[]){(int64_t)n}))
        fail_msg("%s", osh_error_text(f->cx));
    return t;
}

/* Copies n bytes to the GPU and back. The source is overwritten as soon as `put` returns. The
 * target may be page-locked. */
static void round_trip(fixture *f, size_t n, bool ahead, bool pinned)
{
    osh_ctx *cx = f->cx;
    void *from = NULL, *to = NULL;
    osh_tensor *t = bytes_new(f, n);

    if (pinned) {
        assert_int_equal(f->d->type->pinned->alloc(cx, f->d, &from, n), OSH_OK);
        assert_int_equal(f->d->type->pinned->alloc(cx, f->d, &to, n), OSH_OK);
    } else {
        from = osh_alloc(cx, n), to = osh_alloc(cx, n);
    }
    pattern(cx, from, n, 3);
    char *want = pattern(cx, NULL, n, 3);
    if (ahead) assert_int_equal(f->d->type->put_ahead(cx, f->d, t->data, from, n), OSH_OK);
    else assert_int_equal(osh_tensor_put(cx, t, 0, from, n), OSH_OK);
    memset(from, 0x55, n);
    if (ahead) assert_int_equal(f->d->type->fence(cx, f->d), OSH_OK);
    assert_int_equal(osh_tensor_get(cx, to, t, 0, n), OSH_OK);
    assert_memory_equal(to, want, n);
    if (pinned) f->d->type->pinned->free(cx, f->d, from), f->d->type->pinned->free(cx, f->d, to);
    else osh_free(cx, from), osh_free(cx, to);
    osh_free(cx, want);
    osh_tensor_free(cx, t);
}

static void test_copies(void **state)
{
    // copies are made in chunks of 4 MiB
    const size_t sizes[] = {1, 511, 256 << 10, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 21 * MIB + 7};
    for (int k = 0; k < 8; k++) {
        osh_play_lazy(k & 4);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            round_trip(*state, sizes[i], k & 1, k & 2);
    }
}

/* Makes more small copies than the ring of buffers can hold. The source of each copy is overwritten
 * when `put` returns. */
static void test_many_small(void **state)
{
    fixture *f = *state;
    enum { N = 3000, EACH = 10007 };
    osh_tensor *t = bytes_new(f, (size_t)N * EACH);
    char *got = osh_alloc(f->cx, (size_t)N * EACH), *part = osh_alloc(f->cx, EACH);

    osh_play_lazy(true);
    for (int i = 0; i < N; i++)
        assert_int_equal(
            osh_tensor_put(f->cx, t, (size_t)i * EACH, pattern(f->cx, part, EACH, i), EACH),
            OSH_OK);
    assert_int_equal(osh_tensor_get(f->cx, got, t, 0, (size_t)N * EACH), OSH_OK);
    for (int i = 0; i < N; i++)
        assert_memory_equal(got + (size_t)i * EACH, pattern(f->cx, part, EACH, i), EACH);
    osh_free(f->cx, got), osh_free(f->cx, part);
    osh_tensor_free(f->cx, t);
}

/* Tests that put_ahead runs after the work that was queued before `follow`, and does not wait for
 * later work. Tests that the work after a fence runs after put_ahead. */
static void test_order(void **state)
{
    fixture *f = *state;
    osh_ctx *cx = f->cx;
    enum { N = 5 * MIB };
    for (int k = 0; k < 4; k++) {
        osh_play_lazy(k & 2);
        osh_tensor *a = bytes_new(f, N), *b = bytes_new(f, N), *c = bytes_new(f, N);
        void *page_locked = NULL;
        assert_int_equal(f->d->type->pinned->alloc(cx, f->d, &page_locked, N), OSH_OK);
        char *first = pattern(cx, NULL, N, 1), *second = pattern(cx, NULL, N, 2),
             *got = osh_alloc(cx, N);
        memcpy(page_locked, second, N);
        assert_int_equal(osh_tensor_put(cx, a, 0, first, N), OSH_OK);
        assert_int_equal(osh_tensor_copy(cx, b, a), OSH_OK);
        assert_int_equal(f->d->type->follow(cx, f->d), OSH_OK);
        long waits = osh_play_calls("cudaStreamWaitEvent");
        for (int i = 0; i < 2; i++)
            assert_int_equal(
                f->d->type->put_ahead(cx, f->d, a->data, k & 1 ? page_locked : second, N), OSH_OK);
        assert_int_equal(osh_play_calls("cudaStreamWaitEvent"), waits);
        assert_int_equal(f->d->type->fence(cx, f->d), OSH_OK);
        assert_int_equal(osh_tensor_copy(cx, c, a), OSH_OK);
        assert_int_equal(osh_tensor_get(cx, got, b, 0, N), OSH_OK);
        assert_memory_equal(got, first, N);
        assert_int_equal(osh_tensor_get(cx, got, c, 0, N), OSH_OK);
        assert_memory_equal(got, second, N);
        assert_int_equal(osh_tensor_zero(cx, c), OSH_OK);
        assert_int_equal(osh_tensor_get(cx, got, c, 0, N), OSH_OK);
        for (int i = 0; i < N; i++) assert_true(!got[i]);
        osh_free(cx, first), osh_free(cx, second), osh_free(cx, got);
        f->d->type->pinned->free(cx, f->d, page_locked);
        osh_tensor_free(cx, a), osh_tensor_free(cx, b), osh_tensor_free(cx, c);
    }
}

static void test_counters(void **state)
{
    fixture *f = *state;
    osh_ctx *cx = f->cx;
    osh_device_counters n;
    osh_device_mark *from = NULL, *to = NULL;
    double seconds = -1;
    osh_tensor *t = bytes_new(f, 9 * MIB), *u = bytes_new(f, 9 * MIB);
    char *p = pattern(cx, NULL, 9 * MIB, 1);

    osh_play_lazy(true);
    assert_int_equal(f->d->type->mark_new(cx, f->d, &from), OSH_OK);
    assert_int_equal(osh_tensor_put(cx, t, 0, p, 9 * MIB), OSH_OK);
    assert_int_equal(osh_tensor_copy(cx, u, t), OSH_OK); // gives the compute stream some work to do
    assert_int_equal(f->d->type->put_ahead(cx, f->d, t->data, p, 5 * MIB), OSH_OK);
    assert_int_equal(f->d->type->fence(cx, f->d), OSH_OK);
    assert_int_equal(f->d->type->mark_new(cx, f->d, &to), OSH_OK);
    assert_int_equal(osh_tensor_get(cx, p, u, 0, 3 * MIB), OSH_OK);
    assert_int_equal(f->d->type->count(cx, f->d, &n), OSH_OK);
    assert_int_equal(n.put_bytes, 9 * MIB);
    assert_int_equal(n.ahead_bytes, 5 * MIB);
    assert_int_equal(n.get_bytes, 3 * MIB);
    assert_true(n.put_s > 0 && n.get_s > 0 && n.ahead_s > 0);
    assert_true(n.hidden_s > 0 && n.hidden_s <= n.ahead_s);
    assert_int_equal(f->d->type->mark_between(cx, &seconds, from, to), OSH_OK);
    assert_true(seconds > 0 && seconds < 60);
    f->d->type->mark_free(cx, from), f->d->type->mark_free(cx, to), f->d->type->mark_free(cx, NULL);
    osh_free(cx, p);
    osh_tensor_free(cx, t), osh_tensor_free(cx, u);
}

/* A lane is a stream of the device. The test copies data to the GPU on the lane IN, within the GPU
 * on the lane WORK, and to the host on the lane OUT. Checks the counters of the copies. */
static void test_lanes(void **state)
{
    fixture *f = *state;
    osh_ctx *cx = f->cx;
    const osh_device_type *type = f->d->type;
    enum { N = 3 * MIB, TIMES = 20 }; // TIMES: more copies than can be timed at once
    osh_device_counters n;
    void *from = NULL;
    char *to = osh_alloc(cx, N + 4096), *there = to + 4096 - (uintptr_t)to % 4096;
    const char *why = "";
    osh_tensor *a = bytes_new(f, N), *b = bytes_new(f, N);

    assert_int_equal(f->d->type->pinned->alloc(cx, f->d, &from, N), OSH_OK);
    assert_int_equal(f->d->type->pinned->lock(cx, f->d, &why, there, N / 4096 * 4096 - 4096),
                     OSH_OK);
    assert_null(why);
    assert_int_equal(f->d->type->pinned->lock(cx, f->d, &why, there + 4096, 4096), OSH_OK);
    assert_string_equal(why, "part or all of the requested memory range is already mapped");
    f->d->type->pinned->unlock(cx, f->d, there);
    assert_int_equal(f->d->type->pinned->lock(cx, f->d, &why, there, N), OSH_OK);
    assert_null(why);
    osh_play_lazy(true);
    pattern(cx, from, N, 5);
    for (int k = 0; k < TIMES; k++) {
        assert_int_equal(type->order(cx, f->d, OSH_LANE_IN, OSH_LANE_WORK), OSH_OK);
        assert_int_equal(type->move(cx, f->d, OSH_LANE_IN, a->data, from, N), OSH_OK);
        assert_int_equal(type->order(cx, f->d, OSH_LANE_WORK, OSH_LANE_IN), OSH_OK);
        assert_int_equal(osh_tensor_copy(cx, b, a), OSH_OK);
        assert_int_equal(osh_tensor_zero(cx, a), OSH_OK);
        assert_int_equal(type->order(cx, f->d, OSH_LANE_OUT, OSH_LANE_WORK), OSH_OK);
        assert_int_equal(type->move(cx, f->d, OSH_LANE_OUT, there, b->data, N), OSH_OK);
        assert_int_equal(type->order(cx, f->d, OSH_LANE_WORK, OSH_LANE_OUT), OSH_OK);
        assert_int_equal(osh_tensor_zero(cx, b), OSH_OK);
        osh_play_drain(k % 4);
        assert_memory_equal(there, from, N);
        memset(there, 0, N);
    }
    assert_int_equal(f->d->type->count(cx, f->d, &n), OSH_OK);
    assert_int_equal(n.ahead_bytes, (int64_t)N * TIMES);
    assert_int_equal(n.get_bytes, (int64_t)N * TIMES);
    assert_true(n.ahead_s > 0 && n.hidden_s >= 0 && n.hidden_s <= n.ahead_s);
    assert_true(n.get_s > 0 && n.get_hidden_s >= 0 && n.get_hidden_s <= n.get_s);
    double hidden = n.get_hidden_s;
    // no work waits for this copy, so its time is hidden
    assert_int_equal(type->move(cx, f->d, OSH_LANE_OUT, there, b->data, N), OSH_OK);
    assert_int_equal(type->sync(cx, f->d), OSH_OK);
    assert_int_equal(f->d->type->count(cx, f->d, &n), OSH_OK);
    assert_true(n.get_hidden_s > hidden);
    f->d->type->pinned->unlock(cx, f->d, there);
    f->d->type->pinned->free(cx, f->d, from);
    osh_free(cx, to);
    osh_tensor_free(cx, a), osh_tensor_free(cx, b);
}

static void test_text(void **state)
{
    fixture *f = *state;
    assert_string_equal(
        f->d->text,
        "emulated GPU, compute capability 9.0, CUDA 13.0, cuBLASLt 13.0.0, cuSOLVER 12.0.0");
    assert_true(osh_device_present(&osh_device_kinds[OSH_GPU]));
}

/* ---- errors ---- */
/* Errors while a device is opened. `text` is a part of the message if call `nth` of the function
 * `name` fails with `error`. */
static const struct {
    const char *name;
    int nth, error;
    osh_status rc;
    const char *text;
} refusals[] = {
    {"cudaDriverGetVersion", 1, DRIVER_TOO_OLD, OSH_E_UNSUPPORTED,
     "no NVIDIA driver: libcuda.so.1 was not found"},
    {"cudaGetDeviceCount", 1, DRIVER_TOO_OLD, OSH_E_UNSUPPORTED,
     "wanted one for CUDA 13.0 or later"},
    {"cudaGetDeviceCount", 1, NO_DEVICE, OSH_E_UNSUPPORTED, "there is no CUDA GPU in this machine"},
    {"cudaFuncGetAttributes", 1, NO_IMAGE, OSH_E_UNSUPPORTED,
     "no code for emulated GPU, compute capability 9.0"},
    {"cudaMalloc", 1, OUT_OF_MEMORY, OSH_E_NOMEM,
     "cudaMalloc: out of memory (cudaErrorMemoryAllocation): the GPU cuda:0 has 1073741824 of "
     "1073741824 bytes free, "
     "wanted"},
    {"cudaMalloc", 1, LAUNCH_FAILURE, OSH_E_IO,
     "cudaMalloc: unspecified launch failure (cudaErrorLaunchFailure): this process has lost"},
    {"cudaHostAlloc", 1, OUT_OF_MEMORY, OSH_E_IO, "cudaHostAlloc: out of memory"},
    {"cudaStreamCreateWithFlags", 2, LAUNCH_FAILURE, OSH_E_IO, "this process has lost the GPU"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        osh_ctx *cx = NULL;
        osh_device *d = NULL;
        assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
        osh_play_fail(refusals[i].name, refusals[i].nth, refusals[i].error);
        assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, ARENA),
                         refusals[i].rc);
        if (!strstr(osh_error_text(cx), refusals[i].text)) fail_msg("%s", osh_error_text(cx));
        assert_non_null(strstr(osh_error_text(cx), "; while opening the device cuda:0"));
        assert_null(d);
        osh_play_fail(NULL, 0, 0);
        assert_int_equal(osh_play_live(), 0);
        assert_int_equal(osh_mem_live(cx), 0);
        osh_error_clear(cx);
        assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 1, ARENA),
                         OSH_E_UNSUPPORTED);
        assert_non_null(strstr(osh_error_text(cx), "there is no GPU cuda:1: this machine has 1"));
        osh_ctx_free(cx);
    }
}

/* Every call and every allocation while a device is opened fails once. Nothing may leak. */
static void test_every_call(void **state)
{
    (void)state;
    static const char *const names[] = {
        "cudaDriverGetVersion", "cudaGetDeviceCount", "cudaSetDevice", "cudaGetDeviceProperties",
        "cudaFuncGetAttributes", "cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithFlags",
        "cudaEventCreateWithFlags", NULL /* NULL: no call fails, but a host allocation does */};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool opened = false;
        // the opening of a device makes hundreds of events, so not every call is tested
        for (int nth = 1; !opened; nth += nth < 20 ? 1 : 50) {
            osh_ctx *cx = NULL;
            osh_device *d = NULL;
            assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
            if (names[i]) osh_play_fail(names[i], nth, 999);
            else osh_mem_fail_after(cx, nth);
            osh_status rc =
                osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, OSH_GPU_WORKSPACE + MIB);
            opened = !rc;
            osh_play_fail(NULL, 0, 0);
            osh_mem_fail_after(cx, -1);
            if (rc) assert_true(osh_error_text(cx)[0] && !d);
            osh_device_close(cx, d);
            assert_int_equal(osh_play_live(), 0);
            assert_int_equal(osh_mem_live(cx), 0);
            osh_ctx_free(cx);
            assert_true(nth < 1000);
        }
    }
}

/* The GPU is lost during the work. Every call must report this, and closing the device must leak
 * nothing. */
static void test_lost(void **state)
{
    fixture *f = *state;
    char byte = 0;
    osh_tensor *t = bytes_new(f, 1);

    assert_int_equal(osh_tensor_put(f->cx, t, 0, &byte, 1), OSH_OK);
    osh_play_fail("cudaStreamSynchronize", 1, LAUNCH_FAILURE);
    assert_int_equal(f->d->type->sync(f->cx, f->d), OSH_E_IO);
    assert_string_equal(
        osh_error_text(f->cx),
        "cudaStreamSynchronize: unspecified launch failure (cudaErrorLaunchFailure): this process"
        " has lost the GPU; the same command continues from the end of the journal");
    osh_error_clear(f->cx);
    assert_int_equal(osh_tensor_put(f->cx, t, 0, &byte, 1), OSH_E_IO);
    assert_int_equal(osh_tensor_get(f->cx, &byte, t, 0, 1), OSH_E_IO);
    assert_int_equal(osh_tensor_zero(f->cx, t), OSH_E_IO);
    assert_int_equal(f->d->type->fence(f->cx, f->d), OSH_E_IO);
    osh_tensor_free(f->cx, t);
}

static void test_memory(void **state)
{
    fixture *f = *state;
    size_t free_bytes = 0;
    void *p = NULL;
    osh_device *bare = NULL;

    assert_int_equal(osh_device_kinds[OSH_GPU].type->free_bytes(f->cx, &free_bytes, 0), OSH_OK);
    assert_int_equal(free_bytes, (1 << 30) - ARENA); // the arena has all memory of the device
    assert_int_equal(osh_arena_used(f->d->arena), OSH_GPU_WORKSPACE);
    assert_null(osh_device_alloc(f->cx, f->d, ARENA + 1, OSH_LIFE_LONG));
    assert_non_null(
        strstr(osh_error_text(f->cx), "no block of 100663297 bytes in the device's memory"));
    osh_error_clear(f->cx);
    osh_play_fail("cudaHostAlloc", 1, OUT_OF_MEMORY);
    assert_int_equal(f->d->type->pinned->alloc(f->cx, f->d, &p, 64), OSH_E_NOMEM);
    assert_string_equal(osh_error_text(f->cx), "cannot allocate 64 bytes of page-locked memory");
    // for an arena of 0 bytes no memory is allocated
    assert_int_equal(osh_device_open(f->cx, &bare, &osh_device_kinds[OSH_GPU], 0, 0), OSH_OK);
    assert_null(bare->base);
    osh_device_close(f->cx, bare);
    assert_int_equal(
        osh_device_open(f->cx, &bare, &osh_device_kinds[OSH_GPU], 0, OSH_GPU_WORKSPACE - 1),
        OSH_E_NOMEM);
}

/* With blocks_apart each block is an allocation of its own, so that a memory checker detects
 * accesses past its end. The arena counts blocks as usual. */
static void test_apart(void **state)
{
    fixture *f = *state;
    size_t live = osh_play_live(), used = osh_arena_used(f->d->arena);
    unsigned char byte[2] = {0};
    f->d->blocks_apart = true;
    osh_tensor *a = bytes_new(f, 1000), *b = bytes_new(f, 24);
    assert_int_equal(osh_play_live() - live, 1024);
    assert_int_equal(osh_arena_used(f->d->arena) - used,
                     osh_arena_gross(1000) + osh_arena_gross(24));
    for (unsigned char i = 0; i < 2; i++) {
        unsigned char seven = 7 + i;
        assert_int_equal(osh_tensor_put(f->cx, i ? b : a, 3, &seven, 1), OSH_OK);
    }
    assert_int_equal(osh_tensor_get(f->cx, &byte[0], a, 3, 1), OSH_OK);
    assert_int_equal(osh_tensor_get(f->cx, &byte[1], b, 3, 1), OSH_OK);
    assert_true(byte[0] == 7 && byte[1] == 8);
    osh_play_fail("cudaMalloc", 1, OUT_OF_MEMORY);
    assert_null(osh_device_alloc(f->cx, f->d, 8, OSH_LIFE_SHORT));
    osh_error_clear(f->cx);
    osh_tensor_free(f->cx, a), osh_tensor_free(f->cx, b);
    assert_int_equal(osh_play_live(), live);
    assert_int_equal(osh_arena_used(f->d->arena), used);
}

int main(void)
{
#define ON_GPU(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ON_GPU(test_copies), ON_GPU(test_many_small), ON_GPU(test_order), ON_GPU(test_counters),
        ON_GPU(test_lanes), ON_GPU(test_text), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_call),
        ON_GPU(test_lost), ON_GPU(test_memory),
        ON_GPU(test_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
