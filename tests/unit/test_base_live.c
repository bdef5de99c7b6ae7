/* test_base_live.c - tests the progress line for terminals of several widths, and its colours. */
#include "base/live.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

static osh_progress progress(void)
{
    return (osh_progress){.step = 3, .n_steps = 28, .name = "model.layers.2", .phase = "observe",
                          .done = 12, .total = 128, .tokens_per_s = 3100, .error = 1.8e-3,
                          .fraction = 0.5, .budget_bytes = (int64_t)2048 << 20};
}

static int shown(char to[512], const osh_progress *p, double left, int width)
{
    const osh_live live = {.p = p, .left = left, .elapsed = 252, .peak = (int64_t)512 << 20};
    int columns = osh_live_print(to, 512, &live, width, false);
    assert_int_equal(columns, strlen(to));
    return columns;
}

static void pieces_that_fit(void **state)
{
    static const struct { int width; const char *text; } rows[] = {
        {200, "4m12s left  50% [##########..........]  3/28  model.layers.2  observe  12/128  3100 "
              "tok/s  512 of 2048 MiB  "
              "err 1.8e-03"},
        {112, "4m12s left  50% [######......]  3/28  model.layers.2  observe  12/128  3100 tok/s  "
              "512 of 2048 MiB  err 1.8e-03"},
        {100, "4m12s left  50% [#######......]  3/28  model.layers.2  observe  12/128  3100 tok/s  "
              "512 of 2048 MiB"},
        {80, "4m12s left  50% [#####.....]  3/28  model.layers.2  observe  12/128  3100 tok/s"},
        {77, "4m12s left  50% [#####.....]  3/28  ...layers.2  observe  12/128  3100 tok/s"},
        {60, "4m12s left  50% [##########.........]  3/28  model.layers.2"},
        {40, "4m12s left  50%  3/28  model.layers.2"},
        {20, "model.layers.2"},
        {12, "...layers.2"},
        {10, "...2"},
        {3, ".."},
        {2, "."},
        {1, ""},
    };
    char text[512];
    osh_progress p = progress();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shown(text, &p, 252, rows[i].width);
        assert_string_equal(text, rows[i].text);
    }
    for (int width = 1; width < 300; width++) assert_true(shown(text, &p, 252, width) <= width - 1);
}

static void long_names_lose_their_beginning(void **state)
{
    static const struct { int width; const char *text; } rows[] = {
        {80, "4m12s left  50% [######......]  12/31  ...17.self_attn.q_proj  solve  237 tok/s"},
        {70, "4m12s left  50% [########.......]  12/31  ...q_proj  solve  237 tok/s"},
        {50, "4m12s left  50% [#######......]  12/31  ...q_proj"},
    };
    char text[512];
    osh_progress p = progress();
    p.total = 0, p.tokens_per_s = 237, p.step = 12, p.n_steps = 31;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p.name = "model.layers.17.self_attn.q_proj", p.phase = "solve";
        shown(text, &p, 252, rows[i].width);
        assert_string_equal(text, rows[i].text);
    }
    p = progress();
    p.name = "model.language_model.layers.12.block_sparse_moe.experts.117.down_proj";
    shown(text, &p, 252, 80);
    assert_string_equal(
        text, "4m12s left  50% [####....]  3/28  ...117.down_proj  observe  12/128  3100 tok/s");
    p.name = "HuggingFaceTB/SmolLM2-1.7B-Instruct"; // the dot of a version number does not end a
                                                    // part of the name
    shown(text, &p, 252, 80);
    assert_string_equal(
        text, "4m12s left  50% [####....]  3/28  ..-1.7B-Instruct  observe  12/128  3100 tok/s");
    p.name = "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
             "\xa4\xc3\xa4";
    for (int width = 4; width < 60; width++) { // no width cuts a character of UTF-8
        shown(text, &p, 252, width);
        size_t halves = 0;
        for (char *c = text; *c; c++) halves += (*c & 0x80) != 0;
        assert_int_equal(halves % 2, 0);
    }
}

static void first_and_last(void **state)
{
    char text[512];
    osh_progress p = progress();
    p.error = -1, p.tokens_per_s = 0, p.budget_bytes = 0, p.total = 0, p.fraction = 0;
    shown(text, &p, -1, 100);
    assert_string_equal(text, "3/28  model.layers.2  observe  512 MiB"); // without work_total, no
                                                                         // percentage is shown
    p.work_total = 3, p.work_done = 2; // the percentage is work_done / work_total
    shown(text, &p, 1, 100);
    assert_string_equal(
        text, "1s left  66% [#############.......]  3/28  model.layers.2  observe  512 MiB");
    p.fraction = 0.999, p.bytes_per_s = 12.5e6;
    shown(text, &p, 1, 100);
    assert_string_equal(text, "1s left  99% [####################]  3/28  model.layers.2  observe  "
                              "12.5 MB/s  512 MiB");
    p.bytes_per_s = 0, p.finished = true, p.work_total = p.work_done = 1;
    shown(text, &p, -1, 100);
    assert_string_equal(
        text, "took 4m12s  100% [####################]  3/28  model.layers.2  observe  512 MiB");
    p.name = NULL, p.phase = NULL;
    shown(text, &p, -1, 30);
    assert_string_equal(text, "took 4m12s  100%  3/28");
}

static void colours(void **state)
{
    char text[512];
    osh_progress p = progress();
    const osh_live live = {.p = &p, .left = 252, .elapsed = 252};
    // osh_live_print returns the number of columns, not of bytes
    assert_int_equal(osh_live_print(text, sizeof text, &live, 60, true), 59);
    static const char head[] = "\033[1m4m12s left\033[0m  50% \033[32m[####";
    assert_memory_equal(text, head, sizeof head - 1);
    osh_live_print(text, sizeof text, &live, 300, true);
    assert_non_null(strstr(text, "\033[32m[##########..........]\033[0m"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_that_fit),
                                       cmocka_unit_test(long_names_lose_their_beginning),
                                       cmocka_unit_test(first_and_last), cmocka_unit_test(colours)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
