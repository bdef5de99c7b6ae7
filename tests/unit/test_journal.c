/* test_journal.c - tests that records are read as they were written. If the file is cut or a byte
 * is changed, the journal must end with the last record before the damage. */
#include "base/file.h"
#include "io/journal.h"
#include "torture.h"

#include <stdlib.h>
#include <unistd.h>

static osh_ctx *cx;
static char path[] = "test_journal.XXXXXX";

static int setup(void **state)
{
    strcpy(path, "test_journal.XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    unlink(path);
    return osh_ctx_new(&cx, 1);
}

static int teardown(void **state)
{
    unlink(path);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
    return 0;
}

static osh_journal *open_it(int64_t want)
{
    osh_journal *j = NULL;
    bool busy = true;
    assert_ok(cx, osh_journal_open(cx, &j, path, &busy));
    assert_false(busy);
    assert_int_equal(osh_journal_count(j), want);
    return j;
}

/* Writes n records of 0, 1, 2, ... bytes. Sets ends[i] to the end of record i in the file. */
static void write_some(int n, int64_t *ends)
{
    osh_journal *j = open_it(0);
    char data[64];
    for (int i = 0; i < n; i++) {
        memset(data, 'a' + i, sizeof data);
        assert_ok(cx, osh_journal_append(cx, j, (uint32_t)(100 + i), data, (size_t)i));
        if (ends) ends[i] = (i ? ends[i - 1] : 8) + 24 + i;
    }
    assert_ok(cx, osh_journal_sync(cx, j));
    osh_journal_close(cx, j);
}

static void check_some(const osh_journal *j, int n)
{
    char data[64];
    for (int i = 0; i < n; i++) {
        const osh_journal_record *r = osh_journal_at(j, i);
        memset(data, 'a' + i, sizeof data);
        assert_int_equal(r->type, 100 + i);
        assert_int_equal(r->n, i);
        assert_memory_equal(r->data, data, (size_t)i);
    }
}

static void records_come_back(void **state)
{
    write_some(5, NULL);
    osh_journal *j = open_it(5);
    check_some(j, 5);
    assert_int_equal(osh_journal_damaged(j), 0);
    osh_journal_drop(cx, j);
    assert_ok(cx, osh_journal_append(cx, j, 7, "more", 4));
    osh_journal_close(cx, j);
    j = open_it(6);
    check_some(j, 5);
    assert_int_equal(osh_journal_at(j, 5)->type, 7);
    osh_journal_close(cx, j);
}

static void put_bytes(const char *p, size_t n)
{
    osh_file *f = NULL;
    assert_ok(cx, osh_file_create(cx, &f, path));
    assert_ok(cx, osh_file_pwrite(cx, f, p, n, 0));
    osh_file_close(cx, f);
}

static void ends_at_the_last_good_record(void **state)
{
    enum { N = 4 };
    int64_t ends[N];
    char *whole = NULL;
    size_t n = 0;
    write_some(N, ends);
    assert_ok(cx, osh_file_read_all(cx, &whole, &n, path, 0));
    assert_int_equal(n, ends[N - 1]);
    for (size_t cut = 0; cut <= n; cut++) { // the file is cut at every byte
        int good = 0;
        while (good < N && ends[good] <= (int64_t)cut) good++;
        put_bytes(whole, cut);
        osh_journal *j = open_it(good);
        check_some(j, good);
        osh_journal_close(cx, j);
    }
    for (size_t at = 0; at < n; at++) { // every byte is changed in turn, then a record is appended
        int good = 0;
        while (good < N && ends[good] <= (int64_t)at) good++;
        if (at < 8) good = 0;
        whole[at] ^= 4;
        put_bytes(whole, n);
        whole[at] ^= 4;
        osh_journal *j = open_it(good);
        check_some(j, good);
        assert_true(osh_journal_damaged(j) > 0);
        osh_journal_drop(cx, j);
        assert_ok(cx, osh_journal_append(cx, j, (uint32_t)(100 + good), "ddddd", (size_t)good));
        osh_journal_close(cx, j);
        j = open_it(good + 1);
        assert_int_equal(osh_journal_damaged(j), 0);
        osh_journal_close(cx, j);
    }
    osh_free(cx, whole);
}

/* A record depends on the record before it. So the second record of a file is not accepted as the
 * first record of another file. */
static void records_do_not_move(void **state)
{
    int64_t ends[3];
    char *whole = NULL;
    size_t n = 0;
    write_some(3, ends);
    assert_ok(cx, osh_file_read_all(cx, &whole, &n, path, 0));
    memmove(whole + ends[0], whole + ends[1], n - (size_t)ends[1]);
    put_bytes(whole, n - (size_t)(ends[1] - ends[0]));
    osh_journal_close(cx, open_it(1));
    osh_free(cx, whole);
}

static void goes_back_to_what_was_synced(void **state)
{
    write_some(3, NULL);
    osh_journal *j = open_it(3);
    assert_ok(cx, osh_journal_append(cx, j, 9, "lost", 4));
    assert_ok(cx, osh_journal_rewind(cx, j));
    assert_ok(cx, osh_journal_append(cx, j, 103, "ddd", 3));
    osh_journal_close(cx, j);
    j = open_it(4);
    check_some(j, 4);
    assert_ok(cx, osh_journal_clear(cx, j));
    assert_ok(cx, osh_journal_append(cx, j, 100, "", 0));
    osh_journal_close(cx, j);
    j = open_it(1);
    check_some(j, 1);
    osh_journal_close(cx, j);
}

static void one_process_at_a_time(void **state)
{
    osh_journal *a = open_it(0), *b = NULL;
    bool busy = false;
    assert_ok(cx, osh_journal_open(cx, &b, path, &busy));
    assert_true(busy);
    assert_null(b);
    osh_journal_close(cx, a);
    osh_journal_close(cx, open_it(0));
}

static void numbers_and_texts(void **state)
{
    osh_buf b;
    size_t n;
    osh_buf_init(&b, 0);
    assert_ok(cx, osh_put_u32(cx, &b, 0x01020304));
    assert_ok(cx, osh_put_u64(cx, &b, UINT64_MAX - 1));
    assert_ok(cx, osh_put_f64(cx, &b, -0.1));
    assert_ok(cx, osh_put_text(cx, &b, "text"));
    assert_memory_equal(b.data, "\4\3\2\1", 4);
    osh_reader r = {(const uint8_t *)b.data, b.len, false};
    assert_int_equal(osh_read_u32(&r), 0x01020304);
    assert_true(osh_read_u64(&r) == UINT64_MAX - 1);
    assert_true(osh_read_f64(&r) == -0.1);
    const char *text = osh_read_text(&r, &n);
    assert_int_equal(n, 4);
    assert_memory_equal(text, "text", 4);
    assert_false(r.bad);
    assert_int_equal(r.left, 0);
    assert_int_equal(osh_read_u32(&r), 0);
    assert_true(r.bad);
    for (size_t cut = 0; cut < b.len; cut++) {
        r = (osh_reader){(const uint8_t *)b.data, cut, false};
        osh_read_u32(&r), osh_read_u64(&r), osh_read_f64(&r), osh_read_text(&r, &n);
        assert_true(r.bad);
    }
    osh_buf_deinit(cx, &b);
}

static osh_status reopen(osh_ctx *c, void *user)
{
    osh_status rc = OSH_OK;
    osh_journal *j = NULL;
    bool busy;
    OSH_TRY(osh_journal_open(c, &j, path, &busy));
    OSH_TRY(osh_journal_append(c, j, 1, "x", 1));
done:
    osh_journal_close(c, j);
    return rc;
}

static void torture_journal(void **state)
{
    write_some(4, NULL);
    assert_true(torture(reopen, NULL) >= 4);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(records_come_back),     TEST(ends_at_the_last_good_record),
        TEST(records_do_not_move),   TEST(goes_back_to_what_was_synced),
        TEST(one_process_at_a_time), TEST(numbers_and_texts),
        TEST(torture_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
