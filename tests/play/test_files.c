/* test_files.c - tests reads from files to the GPU (src/gpu/files.cu) on the emulated GPU with an
 * emulated cuFile. The bytes must be right at any offset, in every order that the streams allow,
 * from many threads, and after every failure. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cufile.h"
#include "gpu/gpu.h"
#include "ops/cuda/cuda.h"
#include "play/fixture.h"
#include "play/play.h"
#include "torture.h"

enum { MIB = 1 << 20, ARENA = 112 * MIB, FILE_BYTES = 9 * MIB + 123, NO_FS = 5008, REFUSES = 5010,
       N_THREADS = 6 };
static char path[64];

typedef struct fixture {
    osh_ctx *cx;
    osh_device *d;
    osh_file *file;
    osh_device_file *f;
} fixture;

static char byte_at(int64_t i) { return (char)(i * 7 + i / 999); }

static void ok(osh_ctx *cx, osh_status rc)
{
    if (rc) fail_msg("%s", osh_error_text(cx));
}

static void quiet(void *user, osh_log_level level, const char *text)
{
    (*(int *)user)++, (void)level, (void)text;
}

static void open_file(fixture *f, bool direct)
{
    ok(f->cx, osh_file_open(f->cx, &f->file, path));
    if (direct) osh_file_use_direct(f->file);
    ok(f->cx, f->d->type->files->open(f->cx, &f->f, f->d, f->file));
}

static void close_file(fixture *f)
{
    f->d->type->files->close(f->cx, f->f), f->f = NULL;
    osh_file_close(f->cx, f->file), f->file = NULL;
}

static int setup(void **state)
{
    static fixture f;
    static int messages;
    *state = &f, messages = 0;
    f = (fixture){0};
    if (osh_ctx_new(&f.cx, 1)) return 1;
    osh_log_tell(f.cx, quiet, &messages);
    strcpy(path, "files-XXXXXX");
    int fd = mkstemp(path);
    char *all = malloc(FILE_BYTES);
    for (int64_t i = 0; i < FILE_BYTES; i++) all[i] = byte_at(i);
    if (fd < 0 || write(fd, all, FILE_BYTES) != FILE_BYTES) return 1;
    close(fd);
    free(all);
    if (!osh_device_kinds[OSH_GPU].type->files->direct(f.cx, 0, "true", true)) return 1;
    ok(f.cx, osh_device_open(f.cx, &f.d, &osh_device_kinds[OSH_GPU], 0, ARENA));
    ok(f.cx, f.d->type->files->stage_open(f.cx, f.d, "true"));
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    close_file(f);
    unlink(path);
    if (osh_play_calls("cuFileHandleRegister") < osh_play_calls("cuFileHandleDeregister") ||
        osh_play_calls("cuFileHandleDeregister.unknown"))
        return 1;
    return play_close_leaks(f->cx, f->d);
}

static osh_device_counters counted(fixture *f)
{
    osh_device_counters c;
    ok(f->cx, f->d->type->count(f->cx, f->d, &c));
    return c;
}

static void check(fixture *f, const osh_tensor *t, int64_t at)
{
    size_t n = osh_tensor_bytes(t);
    char *got = osh_alloc(f->cx, n);
    ok(f->cx, osh_tensor_get(f->cx, got, t, 0, n));
    for (size_t i = 0; i < n; i++)
        if (got[i] != byte_at(at + (int64_t)i))
            fail_msg("byte %zu of %zu from %lld on", i, n, (long long)at);
    osh_free(f->cx, got);
}

static osh_tensor *bytes_new(fixture *f, int64_t n)
{
    osh_tensor *t = NULL;
    ok(f->cx, osh_tensor_new_on(f->cx, &t, (osh_where){f->d, OSH_LIFE_LONG}, OSH_U8, 1, &n));
    ok(f->cx, osh_tensor_zero(f->cx, t));
    return t;
}

/* Reads bytes [at, at + n) of the file to the GPU and checks each byte. If `ahead` is true, the
 * read need not wait for earlier work of the device. */
static void read_range(fixture *f, int64_t at, int64_t n, bool ahead)
{
    osh_tensor *t = bytes_new(f, n);
    ok(f->cx, f->d->type->files->read(f->cx, f->f, t->data, (size_t)n, at, ahead));
    if (ahead) ok(f->cx, f->d->type->fence(f->cx, f->d));
    check(f, t, at);
    osh_tensor_free(f->cx, t);
}

static const int64_t ranges[][2] = {
    {0, 1},          {1, 4095},         {4095, 2},           {4096, 4096},
    {5000, 1},       {123, 9 * MIB},    {FILE_BYTES - 1, 1}, {8 * MIB - 3, MIB + 126},
    {0, FILE_BYTES}, {4 * MIB, 4 * MIB}};
enum { N_RANGES = sizeof ranges / sizeof *ranges };

static void test_ranges(void **state)
{
    fixture *f = *state;
    int64_t sum = 0;
    open_file(f, true);
    for (int k = 0; k < 4; k++) {
        osh_play_lazy(k & 2);
        for (int i = 0; i < N_RANGES; i++)
            read_range(f, ranges[i][0], ranges[i][1], k & 1), sum += ranges[i][1];
    }
    osh_device_counters c = counted(f);
    // All bytes were read by cuFile: no read was misaligned, and the host read nothing.
    assert_int_equal(c.file_bytes, sum);
    assert_int_equal(c.detours[OSH_DETOUR_FILE], 0);
    assert_int_equal(c.put_bytes + c.ahead_bytes, 0);
}

/* Tests reads without a second descriptor of the file, and reads of a file that cuFile refuses. */
static void test_refused(void **state)
{
    fixture *f = *state;
    for (int how = 0; how < 2; how++) {
        long reads = osh_play_calls("cuFileRead");
        if (how) osh_play_fail("cuFileHandleRegister", 1, NO_FS);
        open_file(f, how);
        for (int i = 0; i < N_RANGES; i++) read_range(f, ranges[i][0], ranges[i][1], i & 1);
        assert_int_equal(osh_play_calls("cuFileRead"), reads);
        assert_int_equal(counted(f).detours[OSH_DETOUR_FILE], how + 1);
        close_file(f);
    }
}

/* In each read, the n-th call of cuFile fails or returns too few bytes. A short result has two
 * whole blocks, two blocks and a part of the next, or 100 bytes. All bytes must be right. After an
 * error or an almost empty read, the host must read the rest of the file. */
static void test_faults(void **state)
{
    static const struct { const char *name; int value; bool goes_on; } faults[] = {
        {"cuFileRead", 5 /* EIO */, false}, {"cuFileRead", REFUSES, false},
        {"cuFileRead.short", 8192, true},
        {"cuFileRead.short", 10000, true}, {"cuFileRead.short", 100, false}};
    fixture *f = *state;
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++)
        for (int n = 1; n <= 3; n++) {
            int64_t detours = counted(f).detours[OSH_DETOUR_FILE], by_gpu = counted(f).file_bytes;
            open_file(f, true);
            osh_play_fail(faults[k].name, n, faults[k].value);
            read_range(f, 123, 9 * MIB, n & 1); // a read of 9 MiB needs three slots (buffers in GPU
                                                // memory)
            osh_device_counters c = counted(f);
            assert_int_equal(c.detours[OSH_DETOUR_FILE] - detours, !faults[k].goes_on);
            assert_int_equal(c.file_bytes - by_gpu == 9 * MIB, faults[k].goes_on);
            long reads = osh_play_calls("cuFileRead");
            read_range(f, 5, 100, false);
            assert_int_equal(osh_play_calls("cuFileRead") - reads, faults[k].goes_on);
            osh_play_fail(NULL, 0, 0);
            close_file(f);
        }
}

/* A file that has become shorter is an error, for reads by cuFile and by the host. */
static void test_truncated(void **state)
{
    fixture *f = *state;
    osh_tensor *t = bytes_new(f, MIB);
    open_file(f, true);
    assert_int_equal(truncate(path, 8 * MIB + 5), 0);
    assert_fails(f->cx, OSH_E_FORMAT,
                 f->d->type->files->read(f->cx, f->f, t->data, MIB, 8 * MIB - 4096, false), path);
    osh_tensor_free(f->cx, t);
}

typedef struct reader {
    fixture *f;
    osh_ctx *cx; // own
    osh_tensor *t;
    int64_t at;
    osh_status rc;
} reader;

static void *read_part(void *user)
{
    reader *r = user;
    osh_file *file = NULL;
    osh_device_file *f = NULL;
    r->rc = osh_file_open(r->cx, &file, path);
    if (!r->rc)
        osh_file_use_direct(file), r->rc = r->f->d->type->files->open(r->cx, &f, r->f->d, file);
    if (!r->rc)
        r->rc =
            r->f->d->type->files->read(r->cx, f, r->t->data, osh_tensor_bytes(r->t), r->at, true);
    r->f->d->type->files->close(r->cx, f);
    osh_file_close(r->cx, file);
    return NULL;
}

/* The number of threads that read at the same time exceeds the number of slots. Each thread has a
 * handle of its own. */
static void test_threads(void **state)
{
    fixture *f = *state;
    reader r[N_THREADS];
    pthread_t threads[N_THREADS];
    osh_play_lazy(true);
    for (int i = 0; i < N_THREADS; i++) {
        r[i] = (reader){.f = f, .t = bytes_new(f, 5 * MIB + i), .at = 1000 * i + 1};
        ok(f->cx, osh_ctx_fork(&r[i].cx, f->cx));
    }
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_part, &r[i]), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    ok(f->cx, f->d->type->fence(f->cx, f->d));
    for (int i = 0; i < N_THREADS; i++) {
        ok(r[i].cx, r[i].rc);
        check(f, r[i].t, r[i].at);
        osh_tensor_free(f->cx, r[i].t);
        osh_ctx_free(r[i].cx);
    }
}

/* Makes three tensors with finite values. Then adds an infinity to the last tensor, to the second,
 * and to the first. After each of these changes, the first tensor with an infinity must be
 * found. */
static void test_finite(void **state)
{
    fixture *f = *state;
    const osh_tensor *t[3];
    osh_tensor *own[3] = {NULL};
    const uint16_t infinite = 0x7f80; // infinity in BF16
    int first = -1;
    for (int i = 0; i < 3; i++) {
        ok(f->cx, osh_tensor_new_on(f->cx, &own[i], (osh_where){f->d, OSH_LIFE_LONG}, OSH_BF16, 2,
                                    (int64_t[]){7, 129}));
        ok(f->cx, osh_tensor_zero(f->cx, own[i])), t[i] = own[i];
    }
    for (int bad = 3; bad >= 0; bad--) {
        if (bad < 3)
            ok(f->cx,
               osh_tensor_put(f->cx, own[bad], bad == 1 ? 0 : 7 * 129 * 2 - 2, &infinite, 2));
        ok(f->cx, osh_cuda_all_finite(f->cx, &first, f->d, t, 3));
        assert_int_equal(first, bad);
    }
    for (int i = 0; i < 3; i++) osh_tensor_free(f->cx, own[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_faults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_finite, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
