/* fuzz_safetensors.c - reads any bytes as a safetensors file.
 *
 * If the bytes are refused, there must be a message. If they are accepted, every tensor must be
 * inside the file and readable. A tensor that is written with a new layout and read again must be
 * the same. */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/safetensors.h"

/* Makes a file in memory with n bytes, and writes its path to `path`. Returns its descriptor. */
static int file_of(char *path, size_t room, const void *p, size_t n)
{
    int fd = memfd_create("fuzz", 0);
    CHECK(fd >= 0);
    CHECK(write(fd, p, n) == (ssize_t)n);
    snprintf(path, room, "/proc/self/fd/%d", fd);
    return fd;
}

static void check_again(osh_ctx *cx, const osh_container *st)
{
    int64_t n = osh_container_count(st);
    osh_entry *e = calloc((size_t)n + 1, sizeof *e);
    char *header = NULL, path[64];
    size_t n_header = 0;
    osh_container *again = NULL;

    CHECK(e);
    for (int64_t i = 0; i < n; i++) e[i] = *osh_container_at(st, i);
    CHECK(osh_safetensors_layout_array(cx, &header, &n_header, e, n) == OSH_OK);
    int fd = file_of(path, sizeof path, header, n_header);
    CHECK(ftruncate(fd, n ? (off_t)e[n - 1].end : (off_t)n_header) == 0);
    if (osh_container_open(cx, &again, path)) {
        fprintf(stderr, "%s\n", osh_error_text(cx));
        abort();
    }
    CHECK(osh_container_count(again) == n);
    osh_container_close(cx, again);
    osh_free(cx, header);
    close(fd);
    free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    osh_container *st = NULL;
    char path[64];
    int fd = file_of(path, sizeof path, data, n);

    osh_status rc = osh_container_open(cx, &st, path);
    if (rc) {
        CHECK(!st && *osh_error_text(cx));
    } else {
        int64_t at = -1;
        for (int64_t i = 0; i < osh_container_count(st); i++) {
            const osh_entry *e = osh_container_at(st, i);
            CHECK(e->begin >= 8 && e->begin <= e->end && (uint64_t)e->end <= n);
            CHECK(at < 0 || e->begin == at);
            at = e->end;
            uint8_t *to = malloc((size_t)(e->end - e->begin) + 1);
            CHECK(to && osh_container_read(cx, to, st, e) == OSH_OK);
            CHECK(!memcmp(to, data + e->begin, (size_t)(e->end - e->begin)));
            free(to);
        }
        CHECK(at < 0 || (uint64_t)at == n);
        check_again(cx, st);
    }
    osh_container_close(cx, st);
    fuzz_ctx_free(cx);
    close(fd);
    return 0;
}
