/* fuzz_journal.c - any bytes as a journal: what is read lies inside the file, one record more can be appended, and what
 * was read before comes back the same. The same bytes as payloads: all of them come back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/journal.h"

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static osh_journal *open_it(osh_ctx *cx, const char *path)
{
    osh_journal *j = NULL;
    bool busy = false;
    CHECK(osh_journal_open(cx, &j, path, &busy) == OSH_OK && !busy);
    return j;
}

/* Everything that a payload may be taken for. */
static void read_payload(const osh_journal_record *r)
{
    osh_reader in = {r->data, r->n, false};
    size_t n;
    while (!in.bad && in.left) {
        osh_read_u32(&in);
        const char *text = osh_read_text(&in, &n);
        CHECK(n <= r->n);
        for (size_t i = 0; i < n; i++) CHECK(text[i] == ((const volatile char *)text)[i]);
        osh_read_f64(&in);
        osh_read_u64(&in);
    }
}

static uint64_t sum_of(const osh_journal *j, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const osh_journal_record *r = osh_journal_at(j, i);
        for (uint32_t k = 0; k < r->n; k++) sum = sum * 31 + r->data[k];
    }
    return sum;
}

static void any_bytes(osh_ctx *cx, const char *path)
{
    osh_journal *j = open_it(cx, path);
    int64_t n = osh_journal_count(j);
    uint64_t sum = sum_of(j, n);
    for (int64_t i = 0; i < n; i++) read_payload(osh_journal_at(j, i));
    CHECK(osh_journal_append(cx, j, 5, "record", 6) == OSH_OK);
    osh_journal_close(cx, j);
    j = open_it(cx, path);
    CHECK(osh_journal_count(j) == n + 1 && osh_journal_damaged(j) == 0 && sum_of(j, n) == sum);
    const osh_journal_record *last = osh_journal_at(j, n);
    CHECK(last->type == 5 && last->n == 6 && !memcmp(last->data, "record", 6));
    osh_journal_close(cx, j);
}

static void any_payloads(osh_ctx *cx, const char *path, const uint8_t *data, size_t n)
{
    osh_journal *j = open_it(cx, path);
    size_t at = 0;
    CHECK(osh_journal_clear(cx, j) == OSH_OK);
    while (at < n) { // a byte says how long the next payload is
        size_t k = data[at] < n - at ? data[at] : n - at;
        CHECK(osh_journal_append(cx, j, data[at], data + at, k) == OSH_OK);
        at += k ? k : 1;
    }
    osh_journal_close(cx, j);
    j = open_it(cx, path);
    at = 0;
    for (int64_t i = 0; i < osh_journal_count(j); i++) {
        const osh_journal_record *r = osh_journal_at(j, i);
        CHECK(r->type == data[at] && !memcmp(r->data, data + at, r->n));
        read_payload(r);
        at += r->n ? r->n : 1;
    }
    CHECK(at == n);
    osh_journal_close(cx, j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = NULL;
    char path[64];
    int fd = memfd_create("fuzz", 0);
    CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(osh_ctx_new(&cx, 1) == OSH_OK);
    any_bytes(cx, path);
    any_payloads(cx, path, data, n);
    CHECK(osh_mem_live(cx) == 0);
    osh_ctx_free(cx);
    close(fd);
    return 0;
}
