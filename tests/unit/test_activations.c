/* test_activations.c - stores and loads values. The loaded rows must equal the stored rows for
 * every tier and every division into batches. A file of an earlier process is used again or
 * refused. */
#include "base/file.h"
#include "store/activations.h"
#include "store/loaders.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SAMPLES = 5, TOKENS = 37, WIDTH = 24 };
static int64_t offsets[SAMPLES + 1] = {0, 7, 8, 20, 36, TOKENS};
static osh_value values[2] = {{.name = "h", .width = WIDTH, .dtype = OSH_BF16},
                              {.name = "q", .width = 8, .dtype = OSH_BF16}};
static osh_graph graph = {.values = values, .n_values = 2, .input_ids = -1, .dtype = OSH_BF16};
static osh_dataset data = {.offsets = offsets, .n = SAMPLES};
static uint16_t rows[TOKENS * WIDTH], back[TOKENS * WIDTH];
static char dir[64];

static void fill(void)
{
    /* Makes rows that compress well. */
    for (int i = 0; i < TOKENS * WIDTH; i++) rows[i] = (uint16_t)(i / 40 * 77);
}

static osh_tensor part(uint16_t *from, int64_t first, int64_t n)
{
    int64_t t0 = offsets[first], shape[2] = {offsets[first + n] - t0, WIDTH};
    return osh_tensor_view(OSH_BF16, 2, shape, from + t0 * WIDTH);
}

static osh_status store_all(osh_ctx *cx, osh_acts *a, int64_t size)
{
    osh_status rc = OSH_OK;
    for (int64_t s = 0; s < SAMPLES; s += size) {
        int64_t n = s + size < SAMPLES ? size : SAMPLES - s;
        osh_tensor t = part(rows, s, n);
        OSH_TRY(osh_acts_store(cx, a, 0, s, n, &t));
    }
done:
    return rc;
}

static osh_status load_all(osh_ctx *cx, osh_acts *a, int64_t size)
{
    osh_status rc = OSH_OK;
    memset(back, 0xff, sizeof back);
    for (int64_t s = 0; s < SAMPLES; s += size) {
        int64_t n = s + size < SAMPLES ? size : SAMPLES - s;
        osh_tensor t = part(back, s, n);
        OSH_TRY(osh_acts_load(cx, a, 0, s, n, &t));
    }
done:
    return rc;
}

static void all_tiers(void **state)
{
    osh_ctx *cx;
    fill();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int tier = OSH_TIER_DEVICE; tier <= OSH_TIER_DISK; tier++)
        for (int zstd = 0; zstd <= (tier == OSH_TIER_DISK); zstd++)
            for (int64_t size = 1; size <= 5; size += 2) {
                osh_acts *a = NULL;
                assert_ok(cx, osh_acts_new(cx, &a, &graph, &data,
                                           &(osh_acts_place){(osh_tier)tier, dir, zstd}));
                assert_false(osh_acts_has(a, 0));
                size_t before = osh_mem_used(cx, OSH_MEM_HOST);
                assert_ok(cx, store_all(cx, a, size));
                assert_true(osh_acts_has(a, 0) && !osh_acts_has(a, 1));
                if (tier != OSH_TIER_DISK) {
                    size_t took = osh_mem_used(cx, OSH_MEM_HOST) - before;
                    assert_int_equal(took, osh_acts_bytes(&graph, &data, (osh_tier)tier, 0, 0));
                    assert_int_equal(osh_mem_used(cx, OSH_MEM_DEVICE),
                                     tier == OSH_TIER_DEVICE ? took : 0);
                }
                assert_ok(cx, load_all(cx, a, 6 - size));
                assert_memory_equal(rows, back, sizeof rows);
                rows[3 * WIDTH] ^= 1; // changes a row before all rows are stored again
                assert_ok(cx, store_all(cx, a, 2));
                assert_ok(cx, load_all(cx, a, 1));
                assert_memory_equal(rows, back, sizeof rows);
                osh_acts_drop(cx, a, 0);
                assert_false(osh_acts_has(a, 0));
                assert_fails(cx, OSH_E_INTERNAL, load_all(cx, a, 1), "value h");
                osh_acts_free(cx, a, false);
            }
    assert_int_equal(osh_mem_live(cx), 0);
    assert_false(osh_dir_exists(dir));
    osh_ctx_free(cx);
}

static void forgotten_rows_are_gone(void **state)
{
    osh_ctx *cx;
    osh_acts *a = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx,
              osh_acts_new(cx, &a, &graph, &data, &(osh_acts_place){OSH_TIER_HOST, NULL, false}));
    assert_ok(cx, store_all(cx, a, 1));
    osh_acts_forget(cx, a, 0, 1, 2);
    osh_tensor t = part(back, 3, 2), gone = part(back, 1, 1);
    assert_ok(cx, osh_acts_load(cx, a, 0, 3, 2, &t));
    assert_fails(cx, OSH_E_INTERNAL, osh_acts_load(cx, a, 0, 1, 1, &gone), "sample 1");
    osh_acts_free(cx, a, false);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Stores all batches with osh_acts_put. The store keeps its first samples in memory, and writes the
 * other samples to its tier. */
static osh_status put_all(osh_ctx *cx, osh_acts *a, const int64_t *at, int n_batches)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    for (int b = 0; b < n_batches; b++) {
        osh_tensor from = part(rows, at[b], at[b + 1] - at[b]);
        OSH_TRY(osh_tensor_new(cx, &t, from.dtype, from.ndim, from.shape));
        memcpy(t->data, from.data, osh_tensor_bytes(&from));
        OSH_TRY(osh_acts_put(cx, a, 0, at[b], at[b + 1] - at[b], &t));
        osh_tensor_free(cx, t);
        t = NULL;
    }
done:
    osh_tensor_free(cx, t);
    return rc;
}

static osh_status get_all(osh_ctx *cx, osh_acts *a, const int64_t *at, int n_batches, bool last)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    memset(back, 0xff, sizeof back);
    for (int b = 0; b < n_batches; b++) {
        OSH_TRY(osh_acts_get(cx, &t, a, &(osh_acts_rows){0, at[b], at[b + 1] - at[b]}, last, NULL));
        memcpy(part(back, at[b], at[b + 1] - at[b]).data, t->data, osh_tensor_bytes(t));
        osh_tensor_free(cx, t);
        t = NULL;
    }
done:
    osh_tensor_free(cx, t);
    return rc;
}

static const int64_t batch_at[] = {0, 2, 3, SAMPLES};
enum { BATCHES = 3 };

static void kept_rows(void **state)
{
    osh_ctx *cx;
    fill();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int tier = OSH_TIER_DEVICE; tier <= OSH_TIER_DISK; tier++)
        for (int kept = 0; kept <= BATCHES; kept++) {
            /* A store on a device keeps all samples or none. */
            if (tier == OSH_TIER_DEVICE && kept < BATCHES) continue;
            osh_acts *a = NULL;
            osh_tensor *t = NULL;
            assert_ok(cx, osh_acts_new(cx, &a, &graph, &data,
                                       &(osh_acts_place){(osh_tier)tier, dir, false}));
            osh_acts_keep(a, batch_at[kept]);
            size_t before = osh_mem_used(cx, OSH_MEM_HOST);
            assert_ok(cx, put_all(cx, a, batch_at, BATCHES));
            if (tier == OSH_TIER_DISK && kept) {
                size_t file = osh_mem_used(cx, OSH_MEM_HOST) - before;
                assert_in_range(file, osh_acts_kept_bytes(&graph, &data, 0, batch_at, kept),
                                /* an open file may take up to 4096 bytes */
                                osh_acts_kept_bytes(&graph, &data, 0, batch_at, kept) + 4096);
            }
            for (int turn = 0; turn < 2; turn++) {
                assert_ok(cx, get_all(cx, a, batch_at, BATCHES, false));
                assert_memory_equal(rows, back, sizeof rows);
                rows[5] ^= 1; // changes a row before all rows are stored again
                assert_ok(cx, put_all(cx, a, batch_at, BATCHES));
            }
            assert_ok(cx, get_all(cx, a, batch_at, BATCHES, true));
            assert_memory_equal(rows, back, sizeof rows);
            if (kept)
                assert_fails(cx, OSH_E_INTERNAL,
                             osh_acts_get(cx, &t, a, &(osh_acts_rows){0, 0, 2}, true, NULL),
                             "sample 0");
            osh_acts_drop(cx, a, 0);
            assert_false(osh_acts_has(a, 0));
            osh_acts_free(cx, a, false);
        }
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* The store writes a file for a value. A later store must use the file only for the same run, stage
 * and value, and only for samples with the same lengths. (A stage is a number that the caller
 * sets.) */
static void slots_of_others_are_not_taken(void **state)
{
    /* other_data has as many tokens as `data`, so the file of a value has the same size. The
     * samples of other_data have other lengths. */
    static int64_t other_offsets[SAMPLES + 1] = {0, 1, 8, 20, 36, TOKENS};
    static osh_dataset other_data = {.offsets = other_offsets, .n = SAMPLES};
    static osh_value same[2] = {{.name = "h", .width = WIDTH, .dtype = OSH_BF16},
                                {.name = "q", .width = WIDTH, .dtype = OSH_BF16}};
    static osh_graph two = {.values = same, .n_values = 2, .input_ids = -1, .dtype = OSH_BF16};
    osh_ctx *cx;
    fill();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int other = 0; other < 5; other++)
        for (int zstd = 0; zstd < 2; zstd++) {
            osh_acts *a = NULL;
            bool found = false;
            char from[128], to[128];
            assert_ok(
                cx, osh_acts_new(cx, &a, &two, &data, &(osh_acts_place){OSH_TIER_DISK, dir, zstd}));
            osh_acts_of_run(a, 7), osh_acts_stage(a, 3);
            assert_ok(cx, store_all(cx, a, 2));
            assert_ok(cx, load_all(cx, a, 1));
            osh_acts_free(cx, a, true);
            snprintf(from, sizeof from, "%s/00000.values", dir);
            snprintf(to, sizeof to, "%s/00001.values", dir);
            if (other == 3) assert_int_equal(rename(from, to), 0);
            assert_ok(cx,
                      osh_acts_new(cx, &a, &two, other == 4 ? &other_data : &data,
                                   &(osh_acts_place){OSH_TIER_DISK, dir, zstd}));
            osh_acts_of_run(a, other == 1 ? 8 : 7);
            assert_ok(cx, osh_acts_adopt(cx, a, other == 3, other == 2 ? 2 : 3, &found));
            assert_int_equal(found, other == 0);
            osh_acts_free(cx, a, false);
            assert_false(osh_dir_exists(dir)); // the directory is removed, even if osh_acts_adopt
                                               // refused its file
        }
    osh_ctx_free(cx);
}

static osh_status disk_tier(osh_ctx *cx, osh_acts **a)
{
    return osh_acts_new(cx, a, &graph, &data, &(osh_acts_place){OSH_TIER_DISK, dir, false});
}

/* If the directory belongs to another program, the error names the path, and the directory is not
 * changed. */
static void other_directories_are_refused(void **state)
{
    osh_ctx *cx;
    osh_acts *a = NULL;
    char path[128], elsewhere[128];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    snprintf(elsewhere, sizeof elsewhere, "%s.elsewhere", dir);
    assert_ok(cx, osh_dir_make(cx, elsewhere));
    assert_int_equal(symlink(elsewhere, dir), 0);
    assert_fails(cx, OSH_E_USAGE, disk_tier(cx, &a), "is a symbolic link");
    assert_int_equal(unlink(dir), 0);
    assert_ok(cx, osh_file_write_all(cx, dir, "mine", 4));
    assert_fails(cx, OSH_E_USAGE, disk_tier(cx, &a), "is a file");
    assert_int_equal(unlink(dir), 0);
    assert_ok(cx, osh_dir_make(cx, dir));
    snprintf(path, sizeof path, "%s/00000.values", dir);
    assert_ok(cx, osh_file_write_all(cx, path, "mine", 4));
    assert_fails(cx, OSH_E_USAGE, disk_tier(cx, &a), "no oneshot-scratch");
    assert_int_equal(unlink(path), 0);
    assert_ok(cx,
              osh_acts_new(cx, &a, &graph, &data, &(osh_acts_place){OSH_TIER_DISK, dir, false}));
    osh_acts_free(cx, a, true);
    snprintf(path, sizeof path, "%s/notes", dir);
    assert_ok(cx, osh_file_write_all(cx, path, "mine", 4));
    assert_fails(cx, OSH_E_USAGE, disk_tier(cx, &a), "notes is a file");
    assert_true(osh_file_exists(path));
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/00000.values", dir);
    snprintf(elsewhere, sizeof elsewhere, "%s.elsewhere/mine", dir);
    assert_ok(cx, osh_file_write_all(cx, elsewhere, "mine", 4));
    assert_int_equal(link(elsewhere, path), 0);
    assert_fails(cx, OSH_E_USAGE, disk_tier(cx, &a), "a second name");
    assert_int_equal(unlink(path), 0);
    assert_ok(cx,
              osh_acts_new(cx, &a, &graph, &data, &(osh_acts_place){OSH_TIER_DISK, dir, false}));
    assert_ok(cx, store_all(cx, a, 1));
    snprintf(path, sizeof path, "%s/notes", dir);
    assert_ok(cx, osh_file_write_all(cx, path, "mine", 4)); // a file that stands for the file of
                                                            // another program
    osh_acts_free(cx, a, false);
    assert_true(osh_file_exists(path));
    assert_ok(cx, osh_dir_remove(cx, dir));
    snprintf(elsewhere, sizeof elsewhere, "%s.elsewhere", dir);
    assert_ok(cx, osh_dir_remove(cx, elsewhere));
    osh_ctx_free(cx);
}

/* A complete file of a killed run is used again. A file with a changed byte or a missing end is
 * refused. */
static void files_are_taken_up(void **state)
{
    osh_ctx *cx;
    fill();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int fault = 0; fault < 4; fault++)
        for (int zstd = 0; zstd < 2; zstd++) {
            osh_acts *a = NULL;
            bool found = false;
            char path[128];
            assert_ok(cx, osh_acts_new(cx, &a, &graph, &data,
                                       &(osh_acts_place){OSH_TIER_DISK, dir, zstd}));
            assert_ok(cx, store_all(cx, a, 2));
            assert_ok(cx, osh_acts_sync(cx, a, 0));
            osh_acts_free(cx, a, true);
            snprintf(path, sizeof path, "%s/00000.values", dir);
            FILE *f = fopen(path, "r+");
            assert_non_null(f);
            // changes a byte of the first slot
            if (fault == 1) fseek(f, 30, SEEK_SET), fputc(0x5a, f);
            fclose(f);
            if (fault == 2) assert_int_equal(truncate(path, 400), 0);
            if (fault == 3) assert_int_equal(unlink(path), 0);
            assert_ok(cx, osh_acts_new(cx, &a, &graph, &data,
                                       &(osh_acts_place){OSH_TIER_DISK, dir, zstd}));
            assert_ok(cx, osh_acts_adopt(cx, a, 0, 0, &found));
            assert_int_equal(found, fault == 0);
            assert_int_equal(osh_acts_has(a, 0), fault == 0);
            if (found) {
                assert_ok(cx, load_all(cx, a, 3));
                assert_memory_equal(rows, back, sizeof rows);
            }
            osh_acts_free(cx, a, false);
            assert_false(osh_dir_exists(dir)); // the directory is removed, even if osh_acts_adopt
                                               // refused its file
        }
    osh_ctx_free(cx);
}

/* Two stores, a and b, have values with equal numbers, but different rows. Either both stores are
 * in memory, or both are in one directory, or only b is in a directory. */
static osh_status beside_others(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    const osh_tier *tiers = user; // tiers of both stores
    osh_acts *a = NULL, *b = NULL; // own
    OSH_TRY(osh_acts_new(cx, &a, &graph, &data, &(osh_acts_place){tiers[0], dir, true}));
    OSH_TRY(osh_acts_new_beside(cx, &b, a, tiers[1], false, dir));
    rows[0] = 1;
    OSH_TRY(store_all(cx, a, 2));
    rows[0] = 2;
    OSH_TRY(store_all(cx, b, 1));
    OSH_TRY(load_all(cx, b, 1));
    assert_int_equal(back[0], 2);
    osh_acts_free(cx, b, false), b = NULL;
    OSH_TRY(load_all(cx, a, 1));
    assert_int_equal(back[0], 1);
    assert_memory_equal(rows + 1, back + 1, sizeof rows - sizeof *rows);
done:
    osh_acts_free(cx, b, false);
    osh_acts_free(cx, a, false);
    assert_false(!rc && osh_dir_exists(dir));
    return rc;
}

static void values_beside_others(void **state)
{
    for (osh_tier first = OSH_TIER_HOST; first <= OSH_TIER_DISK; first++)
        for (osh_tier second = OSH_TIER_HOST; second <= OSH_TIER_DISK; second++)
            assert_true(torture(beside_others, (osh_tier[]){first, second}) > 4);
}

/* Gets values as a pass does: batch by batch, with `ahead` prefetched batches. */
static osh_status get_asked(osh_ctx *cx, osh_acts *a, int64_t ahead)
{
    static const bool in[] = {true, false}, out[] = {false, true};
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    memset(back, 0xff, sizeof back);
    OSH_TRY(osh_acts_open(cx, a, in, out, TOKENS));
    for (int64_t k = 0; k < BATCHES; k++) {
        OSH_TRY(osh_acts_get(cx, &t, a,
                             &(osh_acts_rows){0, batch_at[k], batch_at[k + 1] - batch_at[k]}, false,
                             NULL));
        for (int64_t b = k ? k + ahead : 1; b <= k + ahead && b < BATCHES; b++)
            OSH_TRY(osh_acts_ask(cx, a, 0, batch_at[b], batch_at[b + 1] - batch_at[b]));
        memcpy(part(back, batch_at[k], batch_at[k + 1] - batch_at[k]).data, t->data,
               osh_tensor_bytes(t));
        osh_tensor_free(cx, t), t = NULL;
    }
done:
    osh_tensor_free(cx, t);
    return rc ? rc : osh_acts_close(cx, a);
}

static osh_status new_ahead(osh_ctx *cx, osh_acts **a, int n_threads, int64_t ahead, bool zstd)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_acts_new(cx, a, &graph, &data, &(osh_acts_place){OSH_TIER_DISK, dir, zstd}));
    OSH_TRY(osh_acts_read_ahead(cx, *a, n_threads, ahead));
done:
    return rc;
}

/* Prefetched batches must have the stored rows, for any number of threads and batches, and whether
 * or not some samples are kept in memory. A damaged file must give the same error as without
 * prefetching. */
static void read_ahead(void **state)
{
    osh_ctx *cx;
    fill();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int turn = 0; turn < 36; turn++) {
        int n_threads = 1 + turn % 3 * 2, ahead = 1 + turn / 3 % 2, kept = turn / 6 % 3;
        osh_acts *a = NULL;
        char path[128];
        assert_ok(cx, new_ahead(cx, &a, n_threads, ahead, turn >= 18));
        osh_acts_keep(a, batch_at[kept]);
        assert_int_equal(osh_acts_ahead(a), ahead);
        for (int again = 0; again < 2; again++) {
            rows[7] ^= 1;
            assert_ok(cx, put_all(cx, a, batch_at, BATCHES));
            assert_ok(cx, get_asked(cx, a, ahead));
            assert_memory_equal(rows, back, sizeof rows);
        }
        snprintf(path, sizeof path, "%s/00000.values", dir);
        FILE *f = fopen(path, "r+");
        assert_non_null(f);
        // changes a byte of the data of sample 3, or of the zstd frame of these data
        fseek(f, 20 * WIDTH * 2 + 3 * 16 + 20, SEEK_SET);
        fputc(0x5a, f);
        fclose(f);
        assert_fails(cx, OSH_E_IO, get_asked(cx, a, ahead),
                     "sample 3 of h has other bytes than the run wrote");
        osh_acts_free(cx, a, false);
        assert_int_equal(osh_mem_live(cx), 0);
    }
    osh_ctx_free(cx);
}

/* Prefetching uses as many bytes as the plan counts for it. */
static void read_ahead_is_planned(void **state)
{
    // offsets of the samples, which have equal lengths
    static const int64_t even[] = {0, 8, 16, 24, 32, 40};
    static const osh_dataset same = {.offsets = (int64_t *)even, .n = SAMPLES};
    static const bool in[] = {true, true};
    static uint16_t any[40 * WIDTH];
    osh_ctx *cx;
    osh_acts *a = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx,
              osh_acts_new(cx, &a, &graph, &same, &(osh_acts_place){OSH_TIER_DISK, dir, false}));
    for (int v = 0; v < 2; v++) {
        osh_tensor t = osh_tensor_view(OSH_BF16, 2, (int64_t[]){40, graph.values[v].width}, any);
        assert_ok(cx, osh_acts_store(cx, a, v, 0, SAMPLES, &t));
    }
    int64_t before = (int64_t)osh_mem_used(cx, OSH_MEM_HOST), most = osh_loaders_own_bytes(3, 0);
    assert_ok(cx, osh_acts_read_ahead(cx, a, 3, 3));
    assert_ok(cx, osh_acts_open(cx, a, in, in, 8));
    for (int s = 1; s <= 3; s++)
        for (int v = 0; v < 2; v++) assert_ok(cx, osh_acts_ask(cx, a, v, s, 1));
    for (int v = 0; v < 2; v++) most += osh_loaders_value_bytes(&graph, v, 3, 8, false);
    assert_int_equal((int64_t)osh_mem_used(cx, OSH_MEM_HOST) - before, most);
    assert_ok(cx, osh_acts_close(cx, a));
    assert_int_equal((int64_t)osh_mem_used(cx, OSH_MEM_HOST) - before, osh_loaders_own_bytes(3, 0));
    osh_acts_free(cx, a, false);
    assert_int_equal(osh_mem_live(cx), 0);
    assert_int_equal(osh_loaders_ahead(1, 100, 100), 1);
    assert_int_equal(osh_loaders_ahead(8, 100, 100), 8);
    // 100 samples in 25 batches: two batches of 4 samples occupy 8 threads
    assert_int_equal(osh_loaders_ahead(8, 100, 25), 2);
    assert_int_equal(osh_loaders_ahead(8, 4, 4), 3);
    assert_int_equal(osh_loaders_ahead(8, 4, 1), 0);
    osh_ctx_free(cx);
}

static osh_status whole_ahead(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_acts *a = NULL; // own
    OSH_TRY(new_ahead(cx, &a, 2, 2, false));
    OSH_TRY(put_all(cx, a, batch_at, BATCHES));
    OSH_TRY(get_asked(cx, a, 2));
done:
    osh_acts_free(cx, a, false);
    return rc;
}

static osh_status whole(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_acts *a = NULL; // own
    OSH_TRY(osh_acts_new(cx, &a, &graph, &data, &(osh_acts_place){*(osh_tier *)user, dir, true}));
    OSH_TRY(store_all(cx, a, 2));
    OSH_TRY(load_all(cx, a, 2));
done:
    osh_acts_free(cx, a, false);
    return rc;
}

static osh_status whole_kept(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_acts *a = NULL; // own
    OSH_TRY(osh_acts_new(cx, &a, &graph, &data, &(osh_acts_place){*(osh_tier *)user, dir, true}));
    osh_acts_keep(a, batch_at[2]);
    OSH_TRY(put_all(cx, a, batch_at, BATCHES));
    OSH_TRY(get_all(cx, a, batch_at, BATCHES, false));
    OSH_TRY(get_all(cx, a, batch_at, BATCHES, true));
done:
    osh_acts_free(cx, a, false);
    return rc;
}

static void out_of_memory(void **state)
{
    for (int tier = OSH_TIER_DEVICE; tier <= OSH_TIER_DISK; tier++) {
        osh_tier t = (osh_tier)tier;
        assert_true(torture(whole, &t) > 4);
        if (tier == OSH_TIER_DISK) assert_true(torture(whole_kept, &t) > 8);
        if (tier == OSH_TIER_DISK) assert_true(torture(whole_ahead, NULL) > 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_tiers),
                                       cmocka_unit_test(forgotten_rows_are_gone),
                                       cmocka_unit_test(kept_rows),
                                       cmocka_unit_test(read_ahead),
                                       cmocka_unit_test(read_ahead_is_planned),
                                       cmocka_unit_test(values_beside_others),
                                       cmocka_unit_test(files_are_taken_up),
                                       cmocka_unit_test(slots_of_others_are_not_taken),
                                       cmocka_unit_test(other_directories_are_refused),
                                       cmocka_unit_test(out_of_memory)};
    snprintf(dir, sizeof dir, "test_activations.%ld", (long)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
