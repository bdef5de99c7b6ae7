/* test_base_profile.c - tests profiles: scopes and their times, memory over time, and quoting. The
 * YAML file must be valid at every moment. */
#include "base/file.h"
#include "base/profile.h"
#include "base/quote.h"
#include "text/yaml.h"
#include "torture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char path[] = "test_base_profile.yaml";

static osh_yaml *parse(osh_ctx *cx, char **text)
{
    osh_yaml *y = NULL;
    size_t n;
    assert_ok(cx, osh_file_read_all(cx, text, &n, path, 0));
    assert_ok(cx, osh_yaml_parse(cx, &y, *text, n, path));
    return y;
}

static double number(const osh_yaml *map, const char *key)
{
    const osh_yaml *v = osh_yaml_get(map, key);
    if (!v) fail_msg("no key %s", key);
    return v->kind == OSH_Y_INT ? (double)v->i : v->f;
}

static void records_and_summary(void **state)
{
    osh_ctx *cx;
    char *text;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx, osh_profile_start(cx, path));
    assert_true(osh_profile_running(cx));
    osh_scope a = osh_profile_begin(cx, "observe", "model.layers.0");
    osh_scope b = osh_profile_begin(cx, "load", "a \"b\"\\ \n\xff: #");
    osh_profile_flops(cx, 2e9);
    osh_profile_end(cx, b);
    osh_profile_checkpoint(cx, "mine");
    osh_scope c = osh_profile_time(cx, "pack", NULL);
    osh_profile_end(cx, c);
    osh_profile_end(cx, a);
    osh_profile_stop(cx);
    assert_false(osh_profile_running(cx));

    osh_yaml *y = parse(cx, &text);
    const osh_yaml *list = osh_yaml_get(y, "memory_usage");
    static const char *const steps[] = {"Start", "observe model.layers.0 Start",
                                        "load a \"b\"\\ \n\xef\xbf\xbd: # Start",
                                        "load a \"b\"\\ \n\xef\xbf\xbd: # End",
                                        "mine", "observe model.layers.0 End", "End"};
    static const char *const keys[] = {
        "timestamp",          "relative_time_secs", "cpu_memory_mb", "gpu_memory_mb",
        "disk_read_mb",       "disk_write_mb",      "rss_mb",        "live_mb",
        "cpu_memory_high_mb", "live_high_mb"};
    enum { N_KEYS = sizeof keys / sizeof *keys };
    assert_int_equal(list->n, 7); // the scope "pack" writes no records
    double last = -1;
    for (size_t i = 0; i < list->n; i++) {
        assert_string_equal(osh_yaml_get(list->items[i], "step")->text, steps[i]);
        assert_int_equal(list->items[i]->n, N_KEYS + 1);
        for (size_t k = 0; k < N_KEYS; k++) assert_true(number(list->items[i], keys[k]) >= 0);
        assert_true(number(list->items[i], "relative_time_secs") >= last);
        last = number(list->items[i], "relative_time_secs");
        assert_true(number(list->items[i], "cpu_memory_mb") > 0);
    }
    static const char *const sums[] = {"total_quantization_time_seconds", "peak_memory_mb",
                                       "peak_gpu_memory_mb", "total_disk_read_mb",
                                       "total_disk_write_mb", "peak_live_mb", "peak_rss_mb"};
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++) assert_true(number(y, sums[k]) >= 0);
    const osh_yaml *phases = osh_yaml_get(y, "phases");
    assert_int_equal(phases->n, 3);
    assert_string_equal(osh_yaml_get(phases->items[1], "phase")->text, "load");
    assert_true(number(phases->items[1], "gflop") > 1.99);
    const osh_yaml *stages = osh_yaml_get(y, "stages");
    assert_int_equal(stages->n, 1); // the scope "pack" belongs to no stage
    assert_string_equal(osh_yaml_get(stages->items[0], "stage")->text, "Calibration");
    osh_yaml_free(cx, y);
    osh_free(cx, text);
    osh_ctx_free(cx);
    unlink(path);
}

static void own_time_only(void **state)
{
    osh_ctx *cx;
    osh_profile_data d;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    // the profile is not started, so nothing happens
    assert_int_equal(osh_profile_begin(cx, "before", NULL), 0);
    osh_profile_end(cx, 0);
    assert_ok(cx, osh_profile_start(cx, NULL));
    osh_scope a = osh_profile_begin(cx, "outer", "x");
    osh_scope b = osh_profile_begin(cx, "inner", "x");
    usleep(30000);
    (void)b;
    osh_profile_end(cx, a); // the end of scope `a` also ends the inner scope
    a = osh_profile_begin(cx, "outer", "x");
    usleep(10000);
    assert_ok(cx, osh_profile_read(cx, &d)); // one scope is still open
    assert_int_equal(d.n_rows, 2);
    assert_string_equal(d.rows[0].phase, "outer");
    assert_int_equal(d.rows[0].n, 2);
    assert_true(d.rows[0].seconds >= 0.0095 && d.rows[1].seconds >= 0.029);
    /* The time of the inner scope must not also be counted for the outer scope. */
    assert_true(d.rows[0].seconds + d.rows[1].seconds <= d.seconds + 1e-6);
    osh_profile_data_deinit(cx, &d);
    osh_profile_end(cx, a);
    osh_profile_stop(cx);
    assert_ok(cx, osh_profile_start(cx, NULL)); // the profile is started again
    assert_ok(cx, osh_profile_read(cx, &d));
    assert_int_equal(d.n_rows, 0);
    osh_profile_data_deinit(cx, &d);
    assert_fails(cx, OSH_E_USAGE, osh_profile_start(cx, NULL), "running already");
    osh_ctx_free(cx); // freeing the context stops the profile
}

static const osh_profile_row *row_of(const osh_profile_data *d, const char *phase)
{
    for (size_t i = 0; i < d->n_rows; i++)
        if (!strcmp(d->rows[i].phase, phase)) return &d->rows[i];
    fail_msg("no row %s", phase);
    return NULL;
}

/* Allocations count for their stage and for the outer stages, even if they are freed before the
 * next sample of memory is taken. */
static void live_bytes_of_stages(void **state)
{
    enum { BYTES = 3 << 20 };
    osh_ctx *cx;
    osh_profile_data d;
    char *p = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx, osh_profile_start(cx, NULL));
    osh_scope around = osh_profile_begin(cx, "observe", "x");
    osh_profile_end(cx, osh_profile_begin(cx, "load", "x"));
    osh_scope inner = osh_profile_begin(cx, "solve", "x");
    p = osh_alloc(cx, BYTES);
    assert_non_null(p);
    osh_free(cx, p);
    osh_profile_end(cx, inner);
    osh_profile_end(cx, osh_profile_begin(cx, "copy", "x"));
    osh_profile_end(cx, around);
    osh_profile_end(cx, osh_profile_begin(cx, "seal", "x"));
    assert_ok(cx, osh_profile_read(cx, &d));
    assert_true(d.live_peak >= BYTES && d.live_peak < BYTES + BYTES / 2);
    assert_int_equal(row_of(&d, "solve")->live_bytes, d.live_peak);
    assert_int_equal(row_of(&d, "observe")->live_bytes, d.live_peak);
    static const char *const others[] = {"load", "copy", "seal"};
    for (size_t i = 0; i < 3; i++) assert_true(row_of(&d, others[i])->live_bytes < BYTES / 2);
    assert_true(row_of(&d, "seal")->peak_bytes > 0 &&
                row_of(&d, "seal")->peak_bytes <= d.peak_bytes);
    int64_t most = -1;
    for (size_t i = 0; i < d.n_points; i++)
        most = d.points[i].live > most ? d.points[i].live : most;
    assert_int_equal(most, d.live_peak);
    osh_profile_data_deinit(cx, &d);
    osh_ctx_free(cx);
}

/* The memory of the process has a peak between two records of the profile. The profile's samples of
 * memory must contain this peak. */
static void short_peak_is_seen(void **state)
{
    enum { BYTES = 8 << 20 };
    osh_ctx *cx;
    osh_profile_data d;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_mem_sampled_peak(cx), -1);
    assert_ok(cx, osh_profile_start(cx, NULL));
    int64_t before = osh_mem_anon();
    char *p;
    /* Tries again with a longer wait if the sampler thread got no processor time. */
    for (useconds_t wait = 100000; wait < 30000000; wait *= 2) {
        /* Uses mmap, because a sanitizer keeps blocks of malloc. */
        p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        memset(p, 1, BYTES);
        usleep(wait);
        munmap(p, BYTES);
        usleep(wait / 2);
        if (osh_mem_sampled_peak(cx) - before > BYTES / 10 * 9) break;
    }
    assert_true(osh_mem_sampled_peak(cx) - before > BYTES / 10 * 9);
    assert_ok(cx, osh_profile_read(cx, &d));
    assert_true(d.n_points >= 3 && d.n_points <= 1000);
    /* The last sample was taken after the peak, when the used memory was low again. */
    assert_true(d.points[d.n_points - 1].bytes - before < BYTES / 2);
    assert_true(d.peak_bytes - before > BYTES / 10 * 9);
    osh_profile_data_deinit(cx, &d);
    for (int i = 0; i < 5; i++) { // a peak within one sampling interval is found too
        assert_true(osh_mem_sampled_peak(cx) > 0);
        p = mmap(NULL, (size_t)(i + 2) * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
        memset(p, 1, (size_t)(i + 2) * BYTES);
        osh_mem_sampled_peak(cx);
        munmap(p, (size_t)(i + 2) * BYTES);
    }
    assert_ok(cx, osh_profile_read(cx, &d));
    int64_t most = 0;
    for (size_t i = 0; i < d.n_points; i++)
        most = d.points[i].bytes > most ? d.points[i].bytes : most;
    assert_int_equal(most, d.peak_bytes);
    osh_profile_data_deinit(cx, &d);
    osh_ctx_free(cx);
}

static void check_records(osh_ctx *cx, const char *text, size_t n)
{
    osh_yaml *y = NULL;
    assert_ok(cx, osh_yaml_parse(cx, &y, text, n, path));
    const osh_yaml *list = y->kind == OSH_Y_MAP ? osh_yaml_get(y, "memory_usage") : NULL;
    for (size_t i = 0; list && list->kind == OSH_Y_SEQ && i < list->n; i++)
        assert_int_equal(list->items[i]->n, 11);
    osh_yaml_free(cx, y);
}

/* After a kill during write(2), the file may end at the end of any page. The text up to there must
 * be valid YAML. */
static void whole_at_each_page(void **state)
{
    enum { PAGE = 4096 };
    char *text = NULL, of[64] = "";
    size_t n = 0;
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx, osh_profile_start(cx, path));
    /* Writes records of many sizes, so that the ends of pages are at every position of a record. */
    for (int i = 0; i < 300; i++) {
        memset(of, 'x', (size_t)i % 61), of[i % 61] = 0;
        osh_profile_end(cx, osh_profile_begin(cx, "observe", of));
    }
    osh_profile_stop(cx);
    assert_ok(cx, osh_file_read_all(cx, &text, &n, path, 0));
    assert_true(n > 20 * PAGE);
    for (size_t at = PAGE; at < n; at += PAGE) {
        char last = text[at];
        text[at] = 0;
        check_records(cx, text, at);
        text[at] = last;
    }
    check_records(cx, text, n);
    osh_free(cx, text);
    osh_ctx_free(cx);
    unlink(path);
}

/* A child process writes records until it is killed. The file must be valid YAML after a kill at
 * any moment. */
static void valid_when_killed(void **state)
{
    for (int round = 0; round < 12; round++) {
        osh_ctx *cx;
        char *text;
        pid_t pid = fork();
        if (!pid) {
            if (osh_ctx_new(&cx, 1) || osh_profile_start(cx, path)) _exit(1);
            for (;;) osh_profile_end(cx, osh_profile_begin(cx, "observe", "model.layers.0"));
        }
        while (!osh_file_exists(path)) usleep(200);
        usleep(1700 * (useconds_t)round);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
        size_t n = 0;
        assert_ok(cx, osh_file_read_all(cx, &text, &n, path, 0));
        check_records(cx, text, n);
        osh_free(cx, text);
        osh_ctx_free(cx);
        unlink(path);
    }
}

static void cannot_create(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_fails(cx, OSH_E_IO, osh_profile_start(cx, "no/such/dir/p.yaml"),
                 "cannot create profile no/such/dir/p.yaml");
    assert_false(osh_profile_running(cx));
    osh_ctx_free(cx);
}

static osh_status read_back(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_profile_data d = {0};
    OSH_TRY(osh_profile_start(cx, NULL));
    osh_profile_end(cx, osh_profile_begin(cx, "observe", "model.layers.0"));
    osh_profile_checkpoint(cx, "here");
    OSH_TRY(osh_profile_read(cx, &d));
done:
    osh_profile_data_deinit(cx, &d);
    osh_profile_stop(cx);
    return rc;
}

static void no_memory(void **state)
{
    assert_true(torture(read_back, NULL) > 4);
}

static void quoting(void **state)
{
    char to[64];
    osh_quote(to, sizeof to, "a\"b\\c\td\x1b\x7f \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_string_equal(to,
                        "a\\\"b\\\\c\\u0009d\\u001b\\u007f \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    osh_quote(to, sizeof to, "\xff\xc0\x80\xed\xa0\x80\xe2\x82"); // these bytes are not UTF-8
    assert_int_equal(strlen(to), 8 * 3);
    for (int i = 0; i < 8; i++) assert_memory_equal(to + 3 * i, "\xef\xbf\xbd", 3);
    // the escape \u000a does not fit into 6 bytes
    assert_int_equal(osh_quote(to, 6, "abc\ndef"), 3);
    assert_string_equal(to, "abc");
    assert_int_equal(osh_quote(to, 4, "ab\xe2\x82\xac"), 2);
    assert_string_equal(to, "ab");
    const char *text = "a\"b\\c\x1b[31m", *rest;
    osh_show(to, sizeof to, text, &rest);
    assert_string_equal(to, "a\"b\\c\\u001b[31m");
    assert_true(*rest == 0);
    osh_show(to, 8, text, &rest);
    assert_string_equal(to, "a\"b\\c");
    assert_ptr_equal(rest, text + 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_and_summary),
        cmocka_unit_test(own_time_only),
        cmocka_unit_test(live_bytes_of_stages),
        cmocka_unit_test(short_peak_is_seen),
        cmocka_unit_test(whole_at_each_page),
        cmocka_unit_test(valid_when_killed),
        cmocka_unit_test(cannot_create),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(quoting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
