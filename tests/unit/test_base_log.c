/* test_base_log.c - tests the output to stderr and to the log file: levels, lines, JSON, and the
 * progress line of a terminal, which is updated in place. */
#include "base/file.h"
#include "torture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static osh_ctx *cx;
/* from: descriptor of the file that receives stderr and is read by the test. */
static int real_stderr, from;

static void stderr_redirect(bool terminal)
{
    int to, ends[2];
    if (terminal) {
        struct winsize w = {.ws_row = 24, .ws_col = 40};
        from = posix_openpt(O_RDWR | O_NOCTTY);
        if (from < 0 || grantpt(from) || unlockpt(from)) skip();
        to = open(ptsname(from), O_RDWR | O_NOCTTY);
        if (to < 0) skip();
        ioctl(to, TIOCSWINSZ, &w);
    } else {
        assert_int_equal(pipe(ends), 0);
        from = ends[0], to = ends[1];
    }
    fcntl(from, F_SETFL, O_NONBLOCK);
    real_stderr = dup(STDERR_FILENO);
    dup2(to, STDERR_FILENO);
    close(to);
}

/* Reads the output that was written since the last call. */
static void output_take(char *to, size_t room)
{
    size_t n = 0;
    ssize_t k;
    while (n < room - 1 && (k = read(from, to + n, room - 1 - n)) > 0) n += (size_t)k;
    to[n] = 0;
}

static void stderr_restore(void)
{
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(from);
}

static void levels(void **state)
{
    char warn[100], quiet[100];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_AUTO);
    osh_log(cx, OSH_LOG_INFO, "read %d shards", 2);
    osh_log(cx, OSH_LOG_WARN, "slow");
    osh_log(cx, OSH_LOG_DEBUG, "unseen");
    output_take(warn, sizeof warn);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_AUTO);
    osh_log(cx, OSH_LOG_WARN, "unseen");
    output_take(quiet, sizeof quiet);
    stderr_restore();
    osh_ctx_free(cx);
    assert_string_equal(warn, "read 2 shards\nwarning: slow\n");
    assert_string_equal(quiet, "");
}

static osh_progress at(int64_t step, int64_t done, bool finished)
{
    return (osh_progress){.step = step,
                          .n_steps = 28,
                          .name = "model.layers.2",
                          .phase = "observe",
                          .done = done,
                          .total = 128,
                          .work_done = (double)(step * 128 + done),
                          .work_total = 28 * 128 + 128,
                          .error = finished ? 1.8e-3 : -1,
                          .finished = finished};
}

static void one_line_for_each_subgraph(void **state)
{
    char line[400];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_AUTO); // stderr is a pipe here, not a terminal, so
                                                        // a line is printed for each subgraph
    for (int i = 0; i < 128; i++) {
        osh_progress p = at(3, i, false);
        osh_progress_show(cx, &p);
    }
    usleep(2000);
    osh_progress p = at(3, 128, true);
    osh_progress_show(cx, &p);
    output_take(line, sizeof line);
    stderr_restore();
    osh_ctx_free(cx);
    static const char head[] = "[ 3/28] model.layers.2   observe 128/128   err 1.8e-03   peak ";
    assert_memory_equal(line, head, sizeof head - 1);
    assert_non_null(strstr(line, " MiB   eta "));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1); // the progress message is one
                                                                   // line
}

static void last_line_says_how_long(void **state)
{
    char line[400];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_LINE);
    osh_progress p = at(28, 128, true);
    osh_progress_show(cx, &p);
    output_take(line, sizeof line);
    stderr_restore();
    osh_ctx_free(cx);
    assert_non_null(strstr(line, "took 0s\n"));
}

static void json_lines(void **state)
{
    char line[2000];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_JSON);
    osh_log(cx, OSH_LOG_WARN, "a \"quoted\\\" line\nand \x01");
    osh_progress p = at(3, 128, true);
    osh_progress_show(cx, &p);
    p = at(4, 0, false);
    p.name = NULL;
    // the calls follow each other too fast, so they print nothing
    for (int i = 0; i < 50; i++) osh_progress_show(cx, &p);
    output_take(line, sizeof line);
    stderr_restore();
    osh_ctx_free(cx);
    static const char head[] =
        "{\"event\":\"log\",\"level\":\"warning\","
        "\"text\":\"a \\\"quoted\\\\\\\" line\\u000aand \\u0001\"}\n"
        "{\"event\":\"progress\",\"step\":3,\"n_steps\":28,\"name\":\"model.layers.2\","
        "\"phase\":\"observe\",\"done\":128,\"total\":128,\"error\":1.800000e-03";
    assert_memory_equal(line, head, sizeof head - 1);
    assert_non_null(strstr(line, ",\"finished\":true}\n"));
    assert_null(strstr(line, "\"step\":4"));
}

static void none_is_silent(void **state)
{
    char line[100];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_NONE);
    osh_progress p = at(3, 128, true);
    osh_progress_show(cx, &p);
    osh_log(cx, OSH_LOG_ERROR, "but errors are not");
    output_take(line, sizeof line);
    stderr_restore();
    osh_ctx_free(cx);
    assert_string_equal(line, "error: but errors are not\n");
}

static void live_line_of_a_terminal(void **state)
{
    char first[400], many[4000], message[1000], end[1000];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(true);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_AUTO);
    osh_progress p = at(3, 1, false);
    osh_progress_show(cx, &p);
    output_take(first, sizeof first);
    for (int i = 0; i < 500; i++) osh_progress_show(cx, &p);
    output_take(many, sizeof many);
    osh_log(cx, OSH_LOG_INFO, "hello");
    output_take(message, sizeof message);
    p = at(28, 128, true);
    osh_progress_show(cx, &p);
    output_take(end, sizeof end);
    osh_ctx_free(cx);
    stderr_restore();
    static const char head[] = "\r\033[K10% [#..........]  3/28  model.layers.2";
    assert_memory_equal(first, head, sizeof head - 1);
    assert_null(strchr(first, '\n'));
    assert_true(strlen(first) <= 4 + 39); // the line is cut to the 40 columns of the terminal
    /* 500 calls take far less than a second, so few lines are shown. */
    assert_true(strlen(many) < 10 * strlen(first));
    assert_memory_equal(message, "\r\033[Khello\r\n10% [#.", 18);
    assert_non_null(strstr(end, "\n"));
}

static void set_width(int columns)
{
    struct winsize w = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ioctl(from, TIOCSWINSZ, &w);
}

/* After the terminal is made narrower, the progress line takes several rows. The next output must
 * erase all of these rows. */
static void a_terminal_is_made_narrower(void **state)
{
    char wide[400], narrow[400], message[400];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(true);
    set_width(100);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_AUTO);
    osh_progress p = at(3, 1, true);
    osh_progress_show(cx, &p);
    output_take(wide, sizeof wide);
    set_width(25);
    osh_progress_show(cx, &p);
    output_take(narrow, sizeof narrow);
    set_width(10);
    osh_log(cx, OSH_LOG_INFO, "hello");
    output_take(message, sizeof message);
    osh_ctx_free(cx);
    char erased[100];
    output_take(erased, sizeof erased);
    stderr_restore();
    char up[40];
    snprintf(up, sizeof up, "\r\033[%zuA\033[J", (strlen(wide) - 4 - 1) / 25);
    assert_true(strlen(wide) > 4 + 50);
    assert_memory_equal(narrow, up, strlen(up));
    assert_true(strlen(narrow) - strlen(up) <= 24);
    assert_memory_equal(message, "\r\033[", 3);
    assert_non_null(strstr(message, "A\033[Jhello\r\n"));
    assert_memory_equal(erased, "\r\033[", 3); // no part of the progress line remains at the end
}

/* Progress with `small` set is reported very often, so only the JSON output shows it. */
static void small_ones(void **state)
{
    char lines[4000], json[4000];
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_LINE);
    osh_progress p = at(3, 1, true);
    p.small = true;
    for (int i = 0; i < 5; i++) osh_progress_show(cx, &p);
    output_take(lines, sizeof lines);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_JSON);
    for (int i = 0; i < 5; i++) osh_progress_show(cx, &p);
    output_take(json, sizeof json);
    stderr_restore();
    osh_ctx_free(cx);
    assert_string_equal(lines, "");
    int n = 0;
    for (char *c = json; (c = strchr(c, '\n')); c++) n++;
    assert_int_equal(n, 5);
}

static void log_file(void **state)
{
    static const char path[] = "test_base_log.txt";
    char *p;
    size_t n;
    unlink(path);
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    osh_status rc = osh_log_file(cx, path);
    osh_log(cx, OSH_LOG_INFO, "in the file only");
    osh_log(cx, OSH_LOG_DEBUG, "nowhere");
    osh_progress q = at(3, 128, true);
    osh_progress_show(cx, &q);
    osh_status bad = osh_log_file(cx, "no/such/dir/log");
    char seen[100];
    output_take(seen, sizeof seen);
    stderr_restore();
    assert_int_equal(rc, OSH_OK);
    assert_string_equal(seen, "");
    assert_int_equal(bad, OSH_E_IO);
    assert_string_equal(osh_error_text(cx),
                        "cannot open log file no/such/dir/log: No such file or directory");
    assert_ok(cx, osh_file_read_all(cx, &p, &n, path, 0));
    assert_non_null(strstr(p, "info    in the file only\n"));
    assert_non_null(strstr(p, "progress [ 3/28] model.layers.2"));
    assert_null(strstr(p, "nowhere"));
    osh_free(cx, p);
    osh_ctx_free(cx);
    unlink(path);
}

static void count_calls(void *user, const osh_progress *p)
{
    *(int *)user += p->finished ? 100 : 1;
}

static void rate_budget_and_eta(void **state)
{
    char line[3000];
    int told = 0;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_LINE);
    osh_progress_tell(cx, count_calls, &told);
    osh_progress p = at(3, 64, true);
    p.tokens_per_s = 3100.4, p.budget_bytes = (int64_t)2048 << 20, p.eta_s = 252.3;
    osh_progress_show(cx, &p);
    p.budget_bytes = (int64_t)24 << 30;
    osh_progress_show(cx, &p);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_JSON);
    osh_progress_show(cx, &p);
    osh_progress_tell(cx, NULL, NULL);
    p.finished = false;
    osh_progress_show(cx, &p);
    p.finished = true, p.loss = 0.4249;
    osh_progress_show(cx, &p);
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_LINE);
    osh_progress_show(cx, &p);
    output_take(line, sizeof line);
    stderr_restore();
    osh_ctx_free(cx);
    assert_int_equal(told, 300);
    assert_non_null(strstr(line, "observe 64/128   3100 tok/s   err 1.8e-03   peak "));
    assert_non_null(strstr(line, " of 2048 MiB   eta 4m12s\n"));
    assert_non_null(strstr(line, " of 24.0 GiB   eta 4m12s\n"));
    assert_non_null(strstr(line, ",\"tokens_per_s\":3100.4,\"eta_s\":252.30,\"fraction\":0."));
    assert_non_null(strstr(line, ",\"error\":1.800000e-03,\"loss_of_rtn\":0.424900,"));
    assert_non_null(strstr(line, "3100 tok/s   loss 0.42 of rtn   peak "));
    assert_non_null(strstr(line, ",\"budget_bytes\":25769803776,\"elapsed_s\":"));
}

/* After a kill the log file has only whole lines, because each line is one write(2). A message of
 * many lines becomes one line. */
static void log_file_of_whole_lines(void **state)
{
    static const char path[] = "test_base_log2.txt";
    char *p, big[6000];
    size_t n;
    unlink(path);
    memset(big, 'x', sizeof big - 1), big[sizeof big - 1] = 0;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    stderr_redirect(false);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    osh_status rc = osh_log_file(cx, path);
    osh_log_line(cx, "failed", "two\nlines, %s", big);
    osh_log_line(cx, "done", "%s", "");
    bool open_before = osh_log_has_file(cx);
    osh_log_file(cx, NULL);
    bool open_after = osh_log_has_file(cx);
    osh_log_line(cx, "begin", "nowhere");
    osh_status again = osh_log_file(cx, path); // opens the existing log file again, to append
    osh_log_line(cx, "begin", "again");
    stderr_restore();
    assert_int_equal(rc | again, OSH_OK);
    assert_true(open_before && !open_after);
    assert_ok(cx, osh_file_read_all(cx, &p, &n, path, 0));
    int lines = 0;
    for (size_t i = 0; i < n; i++) lines += p[i] == '\n';
    assert_int_equal(lines, 3);
    assert_int_equal(p[n - 1], '\n');
    assert_non_null(strstr(p, " failed  two\\u000alines, xxx"));
    assert_non_null(strstr(p, " begin   again\n"));
    assert_null(strstr(p, "nowhere"));
    osh_free(cx, p);
    osh_ctx_free(cx);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),         cmocka_unit_test(one_line_for_each_subgraph),
        cmocka_unit_test(last_line_says_how_long), cmocka_unit_test(json_lines),
        cmocka_unit_test(none_is_silent), cmocka_unit_test(live_line_of_a_terminal),
        cmocka_unit_test(log_file),       cmocka_unit_test(rate_budget_and_eta),
        cmocka_unit_test(log_file_of_whole_lines), cmocka_unit_test(a_terminal_is_made_narrower),
        cmocka_unit_test(small_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
