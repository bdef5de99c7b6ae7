/* standalone_driver.c - runs LLVMFuzzerTestOneInput without libFuzzer.
 *
 * The arguments are files and directories of files. Each file gives several inputs: the whole file,
 * its first bytes in many lengths, and pseudo-random mutations of it. The inputs are the same on
 * every machine. */
#include "base/rng.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MUTATIONS = 200, CUTS = 64, MAX_BYTES = 1 << 20 };
static long n_runs;

/* Runs the target on a copy of exactly n bytes on the heap, so that AddressSanitizer detects a read
 * past the end. */
static void run_one(const uint8_t *data, size_t n)
{
    uint8_t *p = malloc(n ? n : 1);
    if (!p) abort();
    if (n) memcpy(p, data, n);
    LLVMFuzzerTestOneInput(p, n);
    free(p);
    n_runs++;
}

static size_t input_mutate(uint8_t *p, size_t n, size_t room, uint64_t seed, uint64_t m)
{
    static const uint8_t nasty[] = {0x00, 0xff, 0x7f, 0x80, '"', '\\', '{',  '}',
                                    '[',  ']',  ':',  ',',  '-', '9',  '\n', '\t'};
    uint64_t i = 0, n_edits = 1 + osh_rng_u64(seed, m, i++) % 4;

    for (uint64_t e = 0; e < n_edits && n > 0; e++) {
        uint64_t kind = osh_rng_u64(seed, m, i++) % 5, r = osh_rng_u64(seed, m, i++);
        size_t at = (size_t)(osh_rng_u64(seed, m, i++) % n);
        if (kind == 0) p[at] ^= (uint8_t)(1u << (r % 8));
        if (kind == 1) p[at] = nasty[r % sizeof nasty];
        if (kind == 2) memmove(p + at, p + at + 1, n - at - 1), n--;
        if (kind == 3 && n < room)
            memmove(p + at + 1, p + at, n - at), p[at] = nasty[r % sizeof nasty], n++;
        if (kind == 4) { // the mutation copies a part of the input to another position
            size_t from = (size_t)(r % n), len = (size_t)((r >> 32) % 32);
            if (len > n - from) len = n - from;
            if (len > n - at) len = n - at;
            memmove(p + at, p + from, len);
        }
    }
    return n;
}

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(MAX_BYTES), *copy = malloc(MAX_BYTES + 16);
    if (!f || !data || !copy) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    size_t n = fread(data, 1, MAX_BYTES, f);
    fclose(f);
    run_one(data, n);
    for (size_t c = 0; c < CUTS; c++) {
        size_t cut = n <= CUTS ? c : n * c / CUTS;
        if (cut < n) run_one(data, cut);
    }
    for (uint64_t m = 0; m < MUTATIONS; m++) {
        memcpy(copy, data, n);
        run_one(copy, input_mutate(copy, n, n + 8, n * 2654435761u, m));
    }
    free(data);
    free(copy);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st)) {
        fprintf(stderr, "no corpus at %s\n", path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        run_file(path);
        return;
    }
    char **names = NULL;
    size_t n = 0;
    DIR *d = opendir(path);
    if (!d) exit(1);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        names = realloc(names, (n + 1) * sizeof *names);
        if (!names || asprintf(&names[n++], "%s/%s", path, e->d_name) < 0) abort();
    }
    closedir(d);
    if (n) qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        run_file(names[i]);
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    run_one(NULL, 0);
    for (int i = 1; i < argc; i++) run_path(argv[i]);
    printf("%ld inputs\n", n_runs);
    return n_runs > 1 ? 0 : 1; // fails if there were no input files
}
