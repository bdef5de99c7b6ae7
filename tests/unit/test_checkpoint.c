/* test_checkpoint.c - tests model directories. A directory has one file, or shards with an index,
 * or both. If it has both, the file and the index may contradict each other. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/xxh3.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "unit/dir_fixture.h"

/* Writes a shard with U8 tensors of shape [2, 3], named by the letters of `names`. Element i of 'a'
 * is 'a' + i. */
static void put_shard(fixture *f, const char *file, const char *names)
{
    osh_entry e[8] = {0};
    char text[8][2] = {0}, *header = NULL;
    uint8_t data[4096];
    size_t n = strlen(names), n_header = 0;

    for (size_t i = 0; i < n; i++) {
        text[i][0] = names[i];
        e[i] = (osh_entry){text[i], OSH_U8, 2, {2, 3}, 0, 0};
    }
    assert_int_equal(osh_safetensors_layout_array(f->cx, &header, &n_header, e, (int64_t)n),
                     OSH_OK);
    memcpy(data, header, n_header);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 6; k++) data[e[i].begin + k] = (uint8_t)(e[i].name[0] + k);
    put(f, file, data, n_header + 6 * n);
    osh_free(f->cx, header);
}

static int setup(void **state)
{
    if (setup_dir(state)) return -1;
    put_text(*state, "config.json", "{\"architectures\": [\"LlamaForCausalLM\"]}");
    return 0;
}

static osh_checkpoint *open_dir(fixture *f)
{
    osh_checkpoint *ck = NULL;
    if (osh_checkpoint_open(f->cx, &ck, f->dir)) fail_msg("%s", osh_error_text(f->cx));
    return ck;
}

static void check_refused(fixture *f, osh_status want, const char *words, const char *more)
{
    osh_checkpoint *ck = NULL;
    osh_status rc = osh_checkpoint_open(f->cx, &ck, f->dir);
    const char *text = osh_error_text(f->cx);
    if (rc != want || !strstr(text, words) || !strstr(text, more))
        fail_msg("status %d, wanted %d and '%s', '%s' in: %s", rc, want, words, more, text);
    assert_null(ck);
    osh_error_clear(f->cx);
    assert_int_equal(osh_mem_live(f->cx), 0);
}

/* Writes two shards, and an index that lists the second shard first. */
static void put_sharded(fixture *f)
{
    put_shard(f, "m-2.safetensors", "ca");
    put_shard(f, "m-1.safetensors", "db");
    put_text(
        f, "model.safetensors.index.json",
        "{\"metadata\": {\"total_size\": 24}, \"weight_map\": {\"a\": \"m-2.safetensors\","
        " \"b\": \"m-1.safetensors\", \"c\": \"m-2.safetensors\", \"d\": \"m-1.safetensors\"}}");
}

static void test_single(void **state)
{
    fixture *f = *state;
    put_shard(f, "model.safetensors", "ab");
    osh_checkpoint *ck = open_dir(f);
    assert_int_equal(ck->n_shards, 1);
    assert_int_equal(ck->n_tensors, 2);
    assert_non_null(osh_checkpoint_find(ck, "a"));
    assert_null(osh_checkpoint_find(ck, "z"));
    assert_string_equal(ck->config->architecture, "LlamaForCausalLM");
    osh_checkpoint_close(f->cx, ck);
    osh_checkpoint_close(f->cx, NULL);
}

static void test_sharded(void **state)
{
    fixture *f = *state;
    // tensors are sorted by the name of their shard, then by their position in the shard
    static const char order[] = "bdac";
    put_sharded(f);
    osh_checkpoint *ck = open_dir(f);
    assert_int_equal(ck->n_shards, 2);
    assert_string_equal(ck->shard_names[0], "m-1.safetensors");
    assert_int_equal(ck->n_tensors, 4);
    for (int i = 0; i < 4; i++) {
        char name[2] = {order[i], 0};
        uint8_t data[6] = {0};
        assert_string_equal(ck->tensors[i].e->name, name);
        assert_ptr_equal(osh_checkpoint_find(ck, name), &ck->tensors[i]);
        assert_int_equal(osh_checkpoint_read(f->cx, data, ck, &ck->tensors[i]), OSH_OK);
        for (int k = 0; k < 6; k++) assert_int_equal(data[k], order[i] + k);
    }
    osh_checkpoint_close(f->cx, ck);
}

static const char *path_of(const fixture *f, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return path;
}

/* Opens the checkpoint. Checks the number of tensors, the name of its first shard, and the name of
 * the safetensors file that is not read. `aside` is this name, or NULL if there is no such file. */
static void check_files(fixture *f, int n_tensors, const char *shard, const char *aside)
{
    osh_checkpoint *ck = open_dir(f);
    assert_int_equal(ck->n_tensors, n_tensors);
    assert_string_equal(ck->shard_names[0], shard);
    assert_int_equal(ck->n_aside, aside != NULL);
    if (aside) assert_string_equal(ck->aside[0], aside);
    osh_checkpoint_close(f->cx, ck);
    assert_int_equal(osh_mem_live(f->cx), 0);
}

#define INDEX "model.safetensors.index.json"

/* transformers reads model.safetensors, vLLM reads the shards of the index. A directory in which
 * the two programs read different files is refused. */
static void test_both(void **state)
{
    fixture *f = *state;
    put_shard(f, "model.safetensors", "ab");
    put_text(f, INDEX, "{\"weight_map\": {\"a\": \"gone.safetensors\"}}");
    check_files(f, 2, "model.safetensors", NULL);
    put_text(f, INDEX,
             "{\"weight_map\": {\"a\": \"model.safetensors\", \"old\": \"model.safetensors\"}}");
    check_files(f, 2, "model.safetensors", NULL);
    put_text(f, INDEX,
             "{\"weight_map\": {\"a\": \"model.safetensors\", \"b\": \"m-2.safetensors\"}}");
    check_refused(f, OSH_E_FORMAT, "has both model.safetensors and " INDEX, "moved away");

    put_text(f, INDEX, "{\"weight_map\": {\"a\": \"model-00001-of-00001.safetensors\"}}");
    assert_int_equal(symlink("model.safetensors", path_of(f, "model-00001-of-00001.safetensors")),
                     0);
    check_files(f, 2, "model.safetensors", NULL);
    assert_int_equal(unlink(path_of(f, "model-00001-of-00001.safetensors")), 0);

    put_sharded(f);
    check_refused(f, OSH_E_FORMAT, "has both model.safetensors and " INDEX, "names m-");
    // the tensors of the shards are also in model.safetensors
    put_shard(f, "model.safetensors", "abcd");
    check_refused(f, OSH_E_FORMAT, "has both model.safetensors and " INDEX, "names m-");
    assert_int_equal(unlink(path_of(f, "m-1.safetensors")), 0);
    check_refused(f, OSH_E_FORMAT, "has both model.safetensors and " INDEX,
                  "names m-2.safetensors");
}

/* Tests safetensors files that are no shards. */
static void test_aside(void **state)
{
    fixture *f = *state;
    put_sharded(f);
    put_shard(f, "consolidated.safetensors", "a"); // a file of this name is in Mistral's format
    check_files(f, 4, "m-1.safetensors", "consolidated.safetensors");
    assert_int_equal(unlink(path_of(f, "consolidated.safetensors")), 0);

    put_text(f, INDEX, "{\"weight_map\": {\"a\": \"m-00001-of-00002.safetensors\"}}");
    put_shard(f, "m-00001-of-00002.safetensors", "a");
    /* a shard of another index; no loader reads this shard */
    put_shard(f, "m-00001-of-00003.safetensors", "z");
    assert_int_equal(unlink(path_of(f, "m-1.safetensors")), 0);
    assert_int_equal(unlink(path_of(f, "m-2.safetensors")), 0);
    check_files(f, 1, "m-00001-of-00002.safetensors", "m-00001-of-00003.safetensors");
    put_shard(f, "m-00002-of-00002.safetensors", "b");
    check_refused(f, OSH_E_FORMAT,
                  "m-00002-of-00002.safetensors and m-00001-of-00002",
                  "lists only the second");

    assert_int_equal(unlink(path_of(f, INDEX)), 0);
    put_shard(f, "model.safetensors", "ab");
    put_shard(f, "model-00001-of-00002.safetensors", "a");
    check_refused(f, OSH_E_FORMAT,
                  "has both model.safetensors and model-00001-of-00002.safetensors", "no " INDEX);
}

static void test_load(void **state)
{
    fixture *f = *state;
    osh_tensor *t = NULL;
    put_shard(f, "model.safetensors", "ab");
    osh_checkpoint *ck = open_dir(f);
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "b", 2, (int64_t[]){2, 3}), OSH_OK);
    assert_true(t->dtype == OSH_U8 && t->ndim == 2 && ((uint8_t *)t->data)[5] == 'b' + 5);
    osh_tensor_free(f->cx, t);
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "b", -1, NULL), OSH_OK);
    osh_tensor_free(f->cx, t);
    t = NULL;
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "b", 2, (int64_t[]){3, 2}), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f->cx), "b has shape [2, 3], wanted [3, 2]"));
    osh_error_clear(f->cx);
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "b", 1, (int64_t[]){6}), OSH_E_FORMAT);
    osh_error_clear(f->cx);
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "b", 0, NULL), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f->cx), "wanted []"));
    osh_error_clear(f->cx);
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "lm_head.weight", -1, NULL), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f->cx), "has no tensor lm_head.weight"));
    osh_error_clear(f->cx);
    assert_null(t);
    osh_checkpoint_close(f->cx, ck);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    static const char index[] = "model.safetensors.index.json";

    check_refused(f, OSH_E_IO, "has no model.safetensors and no", index);
    put_text(f, "model.safetensors", "no");
    check_refused(f, OSH_E_FORMAT, "model.safetensors: has 2 bytes", "");
    drop(f, "model.safetensors");
    put_sharded(f);
    drop(f, "m-2.safetensors");
    check_refused(f, OSH_E_IO, "m-2.safetensors", "opening shard 2 of 2");
    put_shard(f, "m-2.safetensors", "a");
    check_refused(f, OSH_E_FORMAT, "c is not in its shard m-2.safetensors", "or in another");
    put_shard(f, "m-2.safetensors", "acx");
    check_refused(f, OSH_E_FORMAT, "does not list x", "m-2.safetensors");
    put_shard(f, "m-2.safetensors", "acb");
    check_refused(f, OSH_E_FORMAT, "b occurs twice, in m-1.safetensors", "in m-2.safetensors");
    put_shard(f, "m-2.safetensors", "a");
    put_shard(f, "m-1.safetensors", "bcd");
    check_refused(f, OSH_E_FORMAT, "c is not in its shard m-2.safetensors but in",
                  "m-1.safetensors");

    char *path = osh_path_join(f->cx, f->dir, "m-1.safetensors");
    put_sharded(f);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    osh_free(f->cx, path);
    check_refused(f, OSH_E_FORMAT, "truncated", "opening shard 1 of 2");
}

static void test_refused_index(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"[]", "has no weight_map"},
        {"{}", "has no weight_map"},
        {"{\"weight_map\": []}", "has no weight_map"},
        {"{\"weight_map\": {}}", "names no shard"},
        {"{\"weight_map\": {\"a\": 7}}", "a is in '(not a string)'"},
        {"{\"weight_map\": {\"a\": \"\"}}", "wanted a file name"},
        {"{\"weight_map\": {\"a\": \"..\"}}", "wanted a file name"},
        {"{\"weight_map\": {\"a\": \"../m-1.safetensors\"}}", "wanted a file name without '/'"},
        {"{\"weight_map\": {\"a\": \"/m-1.safetensors\"}}", "wanted a file name without '/'"},
        {"{\"weight_map\": {\"a\": \"m-1.safetensors\", \"a\": \"m-2.safetensors\"}}",
         "'a' occurs twice"},
        {"{\"weight_map\": {\"a\\u0000\": \"m-1.safetensors\"}}", "NUL"},
        {"{\"weight_map\": {", "line 1"},
    };
    put_sharded(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_text(f, "model.safetensors.index.json", rows[i].text);
        check_refused(f, OSH_E_FORMAT, rows[i].words, "model.safetensors.index.json");
    }
    drop(f, "config.json");
    check_refused(f, OSH_E_IO, "config.json", "");
    strcat(f->dir, "/absent");
    check_refused(f, OSH_E_IO, "is not a directory", "/absent");
    *strrchr(f->dir, '/') = 0;
}

static void test_side_files(void **state)
{
    fixture *f = *state;
    static const char *const want[] = {".gitattributes", "LICENSE", "generation_config.json",
                                       "tokenizer.json", "vocab.bin.txt"};
    static const char *const dropped[] = {"x.bin",       "y.pt",
                                          "z.pth",       "q.gguf",
                                          "o.onnx",      "t.h5",
                                          "f.msgpack",   "pytorch_model.bin.index.json",
                                          "recipe.yaml", "other.safetensors"};
    char **names = NULL, sub[128], to[160];
    size_t n = 0;

    put_shard(f, "model.safetensors", "a");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) put_text(f, want[i], "x");
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) put_text(f, dropped[i], "x");
    snprintf(sub, sizeof sub, "%s/original", f->dir);
    assert_int_equal(mkdir(sub, 0777), 0);
    osh_checkpoint *ck = open_dir(f);
    if (osh_checkpoint_side_files(f->cx, &names, &n, ck)) fail_msg("%s", osh_error_text(f->cx));
    assert_int_equal(n, sizeof want / sizeof *want);
    for (size_t i = 0; i < n; i++) assert_string_equal(names[i], want[i]);
    osh_strings_free(f->cx, names, n);

    names = NULL;
    snprintf(to, sizeof to, "%s/merges.txt",
             f->dir); // a hub cache has a link without target if a blob was deleted
    assert_int_equal(symlink("gone", to), 0);
    assert_int_equal(osh_checkpoint_side_files(f->cx, &names, &n, ck), OSH_E_IO);
    assert_non_null(strstr(osh_error_text(f->cx), "merges.txt"));
    assert_null(names);
    osh_checkpoint_close(f->cx, ck);
}

/* A shard is no side file, even if it has the name of a side file. Without an open checkpoint,
 * osh_side_files treats no file as a shard. */
static void test_side_files_shards(void **state)
{
    fixture *f = *state;
    put_shard(f, "noext", "a");
    put_shard(f, "x.json", "b");
    put_text(f, INDEX, "{\"weight_map\": {\"a\": \"noext\", \"b\": \"x.json\"}}");
    put_text(f, "LICENSE", "x");
    osh_checkpoint *ck = open_dir(f), closed = {.dir = f->dir};
    for (int k = 0; k < 2; k++) {
        char **names = NULL;
        size_t n = 0;
        if (osh_checkpoint_side_files(f->cx, &names, &n, k ? &closed : ck))
            fail_msg("%s", osh_error_text(f->cx));
        assert_int_equal(n, k ? 3 : 1);
        assert_string_equal(names[0], "LICENSE");
        osh_strings_free(f->cx, names, n);
    }
    osh_checkpoint_close(f->cx, ck);
}

static osh_status make_nines(osh_ctx *cx, void *to, void *user, const osh_entry *e, int64_t first,
                             int64_t n)
{
    for (int64_t r = 0; r < n; r++) // all values of row r are equal; each row has the value of the
                                    // row before it plus 1
        memset((char *)to + r * e->shape[1], *(int *)user + (int)(first + r), (size_t)e->shape[1]);
    return OSH_OK;
}

static void test_virtual(void **state)
{
    fixture *f = *state;
    int nine = 9, eight = 8;
    osh_tensor *t = NULL;
    put_shard(f, "model.safetensors", "ab");
    osh_checkpoint *ck = open_dir(f);
    int64_t shape[] = {1, 4};
    osh_entry like = {.dtype = OSH_I8, .ndim = 2, .shape = {1, 4}};
    assert_int_equal(osh_checkpoint_add_virtual(f->cx, ck, "v", &like, make_nines, &nine), OSH_OK);
    assert_int_equal(osh_checkpoint_add_virtual(f->cx, ck, "a", &like, make_nines, &eight), OSH_OK);
    assert_int_equal(ck->n_tensors, 4);
    const osh_entry *made = osh_checkpoint_find(ck, "v")->e;
    assert_int_equal(made->end - made->begin, 4); // the plan computes the size of a virtual tensor
                                                  // from its offsets
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "v", 2, shape), OSH_OK);
    assert_int_equal(((int8_t *)t->data)[3], 9);
    osh_tensor_free(f->cx, t);
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "a", 2, shape),
                     OSH_OK); // the name "a" now belongs to the virtual tensor
    assert_int_equal(((int8_t *)t->data)[0], 8);
    osh_tensor_free(f->cx, t);
    t = NULL;
    uint8_t stored[6];
    assert_int_equal(osh_checkpoint_read(f->cx, stored, ck, &ck->tensors[0]), OSH_OK);
    assert_int_equal(stored[0], 'a'); // the stored tensor "a" can still be read by its index
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, "v", 1, shape), OSH_E_FORMAT);
    osh_error_clear(f->cx);
    assert_int_equal(osh_checkpoint_add_virtual(f->cx, ck, "v", &like, make_nines, &nine),
                     OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f->cx), "v is made twice"));
    osh_error_clear(f->cx);
    osh_entry huge = {.dtype = OSH_F32, .ndim = 2, .shape = {INT64_C(1) << 31, INT64_C(1) << 31}};
    assert_int_equal(osh_checkpoint_add_virtual(f->cx, ck, "w", &huge, make_nines, &nine),
                     OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f->cx), "w is too large"));
    osh_checkpoint_close(f->cx, ck);
}

/* Tests checksums: two reads of a tensor must agree. A file with a new date and equal bytes must be
 * accepted. A changed file must be refused. */
static void test_sums(void **state)
{
    fixture *f = *state;
    osh_ctx *cx = f->cx;
    osh_stamp stamp;
    char *diff = NULL;
    uint64_t sum = 0;
    uint8_t to[6];
    put_sharded(f);
    osh_checkpoint *ck = open_dir(f);
    const osh_ckpt_tensor *c = osh_checkpoint_find(ck, "c"), *d = osh_checkpoint_find(ck, "d");
    assert_int_equal(osh_checkpoint_watch(cx, ck), OSH_OK);
    assert_false(osh_checkpoint_seen(ck, c - ck->tensors, &sum));
    assert_int_equal(osh_checkpoint_read(cx, to, ck, c), OSH_OK);
    assert_true(osh_checkpoint_seen(ck, c - ck->tensors, &sum));
    assert_true(sum == XXH3_64bits("cdefgh", 6));
    put_shard(f, "m-2.safetensors", "ca"); // the new file has the same bytes as the old file
    assert_int_equal(osh_checkpoint_reread(cx, &diff, &stamp, ck, c->shard), OSH_OK);
    assert_null(diff);
    assert_int_equal(osh_checkpoint_read(cx, to, ck, c), OSH_OK);
    assert_int_equal(osh_checkpoint_saw(cx, ck, c - ck->tensors, sum + 1), OSH_E_IO);
    osh_error_clear(cx);
    put_shard(f, "m-2.safetensors", "cb"); // the new file has tensor b instead of tensor a; tensor
                                           // a was not read before
    assert_int_equal(osh_checkpoint_reread(cx, &diff, &stamp, ck, c->shard), OSH_OK);
    assert_non_null(strstr(diff, "m-2.safetensors: the header has checksum"));
    osh_free(cx, diff);
    /* records a wrong checksum (1) for tensor d of m-1.safetensors */
    assert_int_equal(osh_checkpoint_saw(cx, ck, d - ck->tensors, 1), OSH_OK);
    assert_int_equal(osh_checkpoint_reread(cx, &diff, &stamp, ck, d->shard), OSH_OK);
    assert_non_null(strstr(diff, "m-1.safetensors: d has checksum"));
    osh_free(cx, diff);
    put_shard(f, "m-1.safetensors", "dbx");
    assert_int_equal(osh_checkpoint_reread(cx, &diff, &stamp, ck, d->shard), OSH_OK);
    assert_non_null(strstr(diff, "bytes, had"));
    osh_free(cx, diff);
    assert_int_equal(osh_checkpoint_watch(cx, ck), OSH_OK);
    assert_false(osh_checkpoint_seen(ck, c - ck->tensors, &sum));
    osh_checkpoint_close(cx, ck);
}

static void test_torture(void **state)
{
    fixture *f = *state;
    put_sharded(f);
    for (int64_t k = 1;; k++) {
        osh_checkpoint *ck = NULL;
        char **names = NULL;
        size_t n = 0;
        osh_tensor *t = NULL;
        osh_stamp stamp;
        char *diff = NULL;
        osh_mem_fail_after(f->cx, k);
        osh_status rc = osh_checkpoint_open(f->cx, &ck, f->dir);
        if (!rc) rc = osh_checkpoint_watch(f->cx, ck);
        if (!rc) rc = osh_checkpoint_load(f->cx, &t, ck, "c", -1, NULL);
        if (!rc) rc = osh_checkpoint_reread(f->cx, &diff, &stamp, ck, 1);
        if (!rc) rc = osh_checkpoint_side_files(f->cx, &names, &n, ck);
        osh_mem_fail_after(f->cx, -1);
        osh_tensor_free(f->cx, t);
        osh_free(f->cx, diff);
        osh_strings_free(f->cx, names, n);
        osh_checkpoint_close(f->cx, ck);
        assert_int_equal(osh_mem_live(f->cx), 0);
        if (!rc) {
            assert_true(k > 20);
            break;
        }
        assert_int_equal(rc, OSH_E_NOMEM);
        osh_error_clear(f->cx);
    }
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown_dir)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_single),     CASE(test_sharded), CASE(test_both),  CASE(test_aside),
        CASE(test_load),       CASE(test_refused), CASE(test_refused_index),
        CASE(test_side_files), CASE(test_virtual), CASE(test_sums),
        CASE(test_side_files_shards),
        CASE(test_torture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
