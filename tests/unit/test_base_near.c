/* test_base_near.c - finds the known name that is nearest to a mistyped name, or none. */
#include "base/near.h"
#include "torture.h"

#include <stdio.h>

static const char *const names[] = {
    "model",          "output",      "group_size",    "num_calibration_samples",
    "max_seq_length", "host_memory", "device_memory", "log_level",
    "log_file",       "W4A16",       "W8A8"};

static const char *hint_of(osh_near *n, const char *word)
{
    osh_near_init(n, word);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) osh_near_see(n, names[i]);
    return osh_near_hint(n, "--");
}

static void finds_what_was_meant(void **state)
{
    static const char *const rows[][2] = {
        {"modle", "model"},            // two letters are swapped
        {"ouput", "output"},           // a letter is missing
        {"outtput", "output"},         // a letter is doubled
        {"Output", "output"},          // upper case
        {"group-sise", "group_size"},  // a letter is wrong, and the separator is a dash
        {"host-mem", "host_memory"},   // the word is the beginning of a name
        {"samples", "num_calibration_samples"}, // the word is a part of a name
        {"max_seq_len", "max_seq_length"},
        {"w4a61", "W4A16"},
        {"log", "log_level"},          // two names are equally near; the first is returned
        {"memory", "host_memory"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_near n;
        char want[64];
        snprintf(want, sizeof want, "; did you mean --%s?", rows[i][1]);
        assert_string_equal(hint_of(&n, rows[i][0]), want);
    }
}

static void says_nothing_of_far_and_equal_names(void **state)
{
    static const char *const far[] = {"",   "fast", "xyz",             "colour", "w",
                                      "lo", "W8A8", "qqqqqqqqqqqqqqq"}; // W8A8 itself is a name, so
                                                                        // it is not suggested
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        osh_near n;
        assert_string_equal(hint_of(&n, far[i]), "");
    }
}

static void takes_long_words(void **state)
{
    char word[5000], name[300];
    osh_near n;
    memset(word, 'a', sizeof word - 1), word[sizeof word - 1] = 0;
    memset(name, 'a', sizeof name - 1), name[sizeof name - 1] = 0;
    osh_near_init(&n, word);
    osh_near_see(&n, name);
    osh_near_see(&n, "a");
    assert_string_equal(osh_near_hint(&n, ""), "");
    name[121] = 0, word[120] = 0;
    osh_near_init(&n, word);
    osh_near_see(&n, name);
    char want[200];
    snprintf(want, sizeof want, "; did you mean %s?", name);
    assert_string_equal(osh_near_hint(&n, ""), want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_was_meant),
                                       cmocka_unit_test(says_nothing_of_far_and_equal_names),
                                       cmocka_unit_test(takes_long_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
