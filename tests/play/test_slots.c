/* test_slots.c - tests src/store/slots.c, which stores values on the disk. Uses the emulated GPU
 * and an emulated cuFile. Every reader must get exactly the stored rows. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "ops/cuda/cuda.h"
#include "ops/wordsum.h"
#include "play/fixture.h"
#include "play/play.h"
#include "store/activations.h"
#include "store/loaders.h"
#include "store/slots.h"
#include "torture.h"

enum { MIB = 1 << 20, ARENA = 112 * MIB, SAMPLES = 540, WIDTH = 3, BATCH = 520, N_BATCHES = 2 };
// samples of 1 to 97 tokens, and one of 900,000 tokens, which is larger than a slot (a slot is a
// buffer in GPU memory for reads by cuFile)
static int64_t offsets[SAMPLES + 1];
static osh_value values[1] = {{.name = "a", .width = WIDTH, .dtype = OSH_BF16}};
static osh_graph graph = {.values = values, .n_values = 1, .input_ids = -1, .dtype = OSH_BF16};
static osh_dataset data = {.offsets = offsets, .n = SAMPLES};
static const int64_t batch_at[N_BATCHES + 1] = {0, BATCH, SAMPLES};
static char dir[] = "slots-XXXXXX";

typedef struct fixture {
    osh_ctx *cx;
    osh_device *d;
    osh_acts *a;
} fixture;

static void ok(fixture *f, osh_status rc)
{
    if (rc) fail_msg("%s", osh_error_text(f->cx));
}

static void quiet(void *user, osh_log_level level, const char *text)
{
    (void)user, (void)level, (void)text;
}

static void open_acts(fixture *f, bool by_gpu)
{
    ok(f, osh_acts_new(f->cx, &f->a, &graph, &data, &(osh_acts_place){OSH_TIER_DISK, dir, false}));
    ok(f, osh_acts_use(f->cx, f->a, f->d));
    osh_acts_of_run(f->a, 7), osh_acts_stage(f->a, 3);
    if (by_gpu) osh_acts_by_gpu(f->a);
}

static int setup(void **state)
{
    static fixture f;
    *state = &f;
    f = (fixture){0};
    for (int s = 0; s < SAMPLES; s++)
        offsets[s + 1] = offsets[s] + (s == 5 ? 900000 : 1 + s * 31 % 97);
    strcpy(dir, "slots-XXXXXX");
    if (!mkdtemp(dir) || osh_ctx_new(&f.cx, 1)) return 1;
    osh_log_tell(f.cx, quiet, NULL);
    if (!osh_device_kinds[OSH_GPU].type->files->direct(f.cx, 0, "true", true)) return 1;
    ok(&f, osh_device_open(f.cx, &f.d, &osh_device_kinds[OSH_GPU], 0, ARENA));
    ok(&f, f.d->type->files->stage_open(f.cx, f.d, "true"));
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    osh_acts_free(f->cx, f->a, false);
    osh_dir_remove(f->cx, dir);
    return play_close_leaks(f->cx, f->d);
}

static uint16_t bits_at(int64_t i, int round) { return (uint16_t)(i * 7 + i / 999 + 13 * round); }

static osh_tensor *rows_new(fixture *f, int b)
{
    osh_tensor *t = NULL;
    int64_t shape[2] = {offsets[batch_at[b + 1]] - offsets[batch_at[b]], WIDTH};
    ok(f, osh_tensor_new_on(f->cx, &t, (osh_where){f->d, OSH_LIFE_SHORT}, OSH_BF16, 2, shape));
    return t;
}

static void store_all(fixture *f, int round)
{
    for (int b = 0; b < N_BATCHES; b++) {
        osh_tensor *t = rows_new(f, b);
        int64_t n = osh_tensor_numel(t), first = offsets[batch_at[b]] * WIDTH;
        uint16_t *host = osh_alloc(f->cx, (size_t)n * 2);
        for (int64_t i = 0; i < n; i++) host[i] = bits_at(first + i, round);
        ok(f, osh_tensor_put(f->cx, t, 0, host, (size_t)n * 2));
        ok(f, osh_acts_store(f->cx, f->a, 0, batch_at[b], batch_at[b + 1] - batch_at[b], t));
        osh_free(f->cx, host);
        osh_tensor_free(f->cx, t);
    }
}

static void load_all(fixture *f, int round)
{
    for (int b = 0; b < N_BATCHES; b++) {
        osh_tensor *t = rows_new(f, b);
        int64_t n = osh_tensor_numel(t), first = offsets[batch_at[b]] * WIDTH, wrong = 0;
        uint16_t *host = osh_alloc(f->cx, (size_t)n * 2);
        ok(f, osh_tensor_zero(f->cx, t));
        ok(f, osh_acts_load(f->cx, f->a, 0, batch_at[b], batch_at[b + 1] - batch_at[b], t));
        ok(f, osh_tensor_get(f->cx, host, t, 0, (size_t)n * 2));
        for (int64_t i = 0; i < n; i++) wrong += host[i] != bits_at(first + i, round);
        if (wrong)
            fail_msg("batch %d: %lld of %lld are other rows", b, (long long)wrong, (long long)n);
        osh_free(f->cx, host);
        osh_tensor_free(f->cx, t);
    }
}

static osh_device_counters counted(fixture *f)
{
    osh_device_counters c;
    ok(f, f->d->type->count(f->cx, f->d, &c));
    return c;
}

/* Sets `path` to the file that has the value. The directory has only one other file, which is small
 * and identifies the directory. */
static void find_file(fixture *f, char path[300])
{
    char **names = NULL;
    size_t n = 0;
    int64_t n_bytes = 0, mtime;
    ok(f, osh_dir_list(f->cx, &names, &n, dir));
    for (size_t i = 0; i < n && n_bytes < MIB; i++) {
        snprintf(path, 300, "%s/%s", dir, names[i]);
        ok(f, osh_file_stat(f->cx, &n_bytes, &mtime, path));
    }
    osh_strings_free(f->cx, names, n);
    assert_true(n_bytes >= MIB);
}

/* The checksum on the GPU must equal that on the host, at any address and for any length. A changed
 * bit or two swapped words must change the checksum. */
static void test_sum(void **state)
{
    fixture *f = *state;
    static const size_t sizes[] = {0, 1, 7, 8, 129, 4096, 100003};
    unsigned char bytes[100003 + 9];
    osh_tensor *t = NULL;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 31 + i / 250);
    ok(f, osh_tensor_new_on(f->cx, &t, (osh_where){f->d, OSH_LIFE_LONG}, OSH_U8, 1,
                            (int64_t[]){sizeof bytes}));
    ok(f, osh_tensor_put(f->cx, t, 0, bytes, sizeof bytes));
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t at = 0; at < 9; at++) {
            uint64_t sum = 0;
            ok(f, osh_cuda_wordsum(f->cx, f->d, f->d->type->files->sums(f->d) + k,
                                   (char *)t->data + at, sizes[k]));
            ok(f,
               f->d->type->get(f->cx, f->d, &sum, f->d->type->files->sums(f->d) + k, sizeof sum));
            assert_int_equal(sum, osh_wordsum(bytes + at, sizes[k]));
        }
    uint64_t words[3] = {1, 2, 3}, was = osh_wordsum(words, sizeof words);
    words[1] ^= 1ull << 63;
    assert_int_not_equal(osh_wordsum(words, sizeof words), was);
    words[1] = 1, words[0] = 2;
    assert_int_not_equal(osh_wordsum(words, sizeof words), was);
    osh_tensor_free(f->cx, t);
}

/* The GPU reads rows from the file directly or through the host. Streams run at once, or only when
 * the host waits for them. The file must have the planned size. */
static void test_rows(void **state)
{
    fixture *f = *state;
    int64_t all = offsets[SAMPLES] * WIDTH * 2;
    for (int k = 0; k < 4; k++) {
        int64_t before = counted(f).file_bytes;
        osh_play_lazy(k & 2), osh_play_protect(k == 1);
        open_acts(f, k & 1);
        store_all(f, k), load_all(f, k);
        store_all(f, k + 5), load_all(f, k + 5);
        assert_int_equal(counted(f).file_bytes - before, k & 1 ? 2 * all : 0);
        osh_acts_free(f->cx, f->a, true), f->a = NULL;
        char path[300];
        int64_t n_bytes = 0, mtime = 0;
        find_file(f, path);
        ok(f, osh_file_stat(f->cx, &n_bytes, &mtime, path));
        assert_in_range(n_bytes, all, osh_slots_bytes(&graph, &data, 0, 0, true));
        bool found = false;
        open_acts(f, !(k & 1)); // cuFile reads what the host has written, and vice versa
        ok(f, osh_acts_adopt(f->cx, f->a, 0, 3, &found));
        assert_true(found);
        load_all(f, k + 5);
        osh_acts_free(f->cx, f->a, false), f->a = NULL;
    }
    assert_int_equal(counted(f).detours[OSH_DETOUR_FILE], 0);
    osh_play_protect(true);
}

enum { AHEAD = 2, N_SMALL = 6 };
static const int64_t small_at[N_SMALL + 1] = {0, 90, 180, 270, 360, 450, SAMPLES};

/* Reads all batches like a pass that prefetches. The rows are checked only after all requests,
 * because a check waits for the copies. */
static void load_asked(fixture *f, int round)
{
    static const bool in[] = {true};
    osh_tensor *t[N_SMALL];
    ok(f, osh_acts_open(f->cx, f->a, in, in, 0));
    for (int b = 0; b < N_SMALL; b++) {
        ok(f, osh_acts_get(f->cx, &t[b], f->a,
                           &(osh_acts_rows){0, small_at[b], small_at[b + 1] - small_at[b]}, false,
                           f->d));
        for (int next = b ? b + AHEAD : 1; next <= b + AHEAD && next < N_SMALL; next++)
            ok(f,
               osh_acts_ask(f->cx, f->a, 0, small_at[next], small_at[next + 1] - small_at[next]));
    }
    ok(f, osh_acts_close(f->cx, f->a));
    for (int b = 0; b < N_SMALL; b++) {
        int64_t n = osh_tensor_numel(t[b]), first = offsets[small_at[b]] * WIDTH, wrong = 0;
        uint16_t *host = osh_alloc(f->cx, (size_t)n * 2);
        ok(f, osh_tensor_get(f->cx, host, t[b], 0, (size_t)n * 2));
        for (int64_t i = 0; i < n; i++) wrong += host[i] != bits_at(first + i, round);
        if (wrong)
            fail_msg("batch %d: %lld of %lld are other rows", b, (long long)wrong, (long long)n);
        osh_free(f->cx, host);
        osh_tensor_free(f->cx, t[b]);
    }
}

/* Threads prefetch rows to blocks of host memory. The blocks are page-locked or pageable (by an
 * option, or because locking has failed). The rows must be the same in either order of the streams.
 * There must be blocks only for the prefetched batches and one more batch. */
static void test_ahead(void **state)
{
    fixture *f = *state;
    osh_play_protect(false);
    for (int k = 0; k < 6; k++) {
        int64_t pageable = counted(f).detours[OSH_DETOUR_PAGEABLE], tokens = 0;
        osh_play_lazy(k & 1);
        ok(f,
           osh_acts_new(f->cx, &f->a, &graph, &data, &(osh_acts_place){OSH_TIER_DISK, dir, false}));
        if (k / 2 == 1) osh_acts_unpinned(f->a);
        if (k / 2 == 2) osh_play_fail("cudaHostRegister", 2, 2);
        ok(f, osh_acts_use(f->cx, f->a, f->d));
        store_all(f, k);
        int64_t before = (int64_t)osh_mem_used(f->cx, OSH_MEM_HOST),
                most = osh_loaders_own_bytes(1 + k, 0);
        for (int b = 1; b < N_SMALL; b++) // sets `tokens` to the length of the longest batch
            if (offsets[small_at[b + 1]] - offsets[small_at[b]] > tokens)
                tokens = offsets[small_at[b + 1]] - offsets[small_at[b]];
        ok(f, osh_acts_read_ahead(f->cx, f->a, 1 + k, AHEAD));
        load_asked(f, k);
        int64_t took = (int64_t)osh_mem_used(f->cx, OSH_MEM_HOST) - before;
        assert_in_range(took, most + 1,
                        most + osh_loaders_value_bytes(&graph, 0, AHEAD, tokens, true));
        store_all(f, k + 5), load_asked(f, k + 5);
        // the second value uses the blocks of the first
        assert_int_equal((int64_t)osh_mem_used(f->cx, OSH_MEM_HOST) - before, took);
        assert_int_equal(counted(f).detours[OSH_DETOUR_PAGEABLE] > pageable, k / 2 == 2);
        osh_play_fail(NULL, 0, 0);
        osh_acts_free(f->cx, f->a, false), f->a = NULL;
    }
    osh_play_protect(true);
}

/* Tests faults of cuFile: a read fails, is too short, or returns a wrong bit. Then the host must
 * read the bytes, and the rows must be right. Host code may access GPU memory in this test, which
 * saves time. */
static void test_faults(void **state)
{
    static const struct { const char *name; int n, value; } faults[] = {
        {"cuFileHandleRegister", 1, 5008}, {"cuFileRead", 3, 5}, {"cuFileRead.short", 2, 4096},
        {"cuFileRead.short", 530, 9}, {"cuFileRead.wrong", 1, 1}, {"cuFileRead.wrong", 6, 1},
        {"cuFileRead.wrong", 530, -1}};
    fixture *f = *state;
    osh_play_protect(false);
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
        int64_t before = counted(f).detours[OSH_DETOUR_FILE];
        open_acts(f, true);
        store_all(f, 1);
        osh_play_fail(faults[k].name, faults[k].n, faults[k].value);
        load_all(f, 1);
        assert_int_equal(counted(f).detours[OSH_DETOUR_FILE] > before, faults[k].value != 4096);
        osh_play_fail(NULL, 0, 0);
        osh_acts_free(f->cx, f->a, false), f->a = NULL;
    }
    osh_play_protect(true);
}

/* Another process changes the data or a header of a file. Every kind of read of this file must
 * fail. */
static void test_changed(void **state)
{
    fixture *f = *state;
    for (int k = 0; k < 4; k++) {
        char path[300];
        osh_file *file = NULL;
        osh_tensor *t = rows_new(f, 0);
        open_acts(f, k & 1);
        store_all(f, 1);
        find_file(f, path);
        // changes a byte of the first header or of the first sample
        ok(f, osh_file_open_rw(f->cx, &file, path));
        ok(f, osh_file_pwrite(f->cx, file, "\x55", 1, k & 2 ? 8 : 3 * OSH_BLOCK_BYTES));
        osh_file_close(f->cx, file);
        assert_fails(f->cx, OSH_E_IO, osh_acts_load(f->cx, f->a, 0, 0, BATCH, t),
                     "sample 0 of a has other bytes");
        osh_tensor_free(f->cx, t);
        osh_acts_free(f->cx, f->a, false), f->a = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sum, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ahead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_faults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
