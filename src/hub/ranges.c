/* ranges.c - splits a file into parts that several threads fetch. */
#include "hub/ranges.h"

#include <stdlib.h>
#include <string.h>

void osh_ranges_init(osh_ranges *s, int64_t n_bytes, int64_t at)
{
    *s = (osh_ranges){.n_bytes = n_bytes, .n = 1, .parts = {{.at = at, .end = n_bytes}}};
}

/* Returns the smallest size of a part in bytes, so that no file has more than OSH_MOST_PARTS
 * parts. */
static int64_t ranges_least_part(int64_t n_bytes)
{
    int64_t least = (n_bytes + OSH_MOST_PARTS - 1) / OSH_MOST_PARTS;
    return least < OSH_LEAST_PART ? OSH_LEAST_PART : least;
}

int osh_ranges_take(osh_ranges *s)
{
    int largest = -1;
    int64_t most = 2 * ranges_least_part(s->n_bytes) - 1;
    for (int i = 0; i < s->n; i++) {
        osh_part *p = &s->parts[i];
        if (!p->busy && p->at < p->end) return p->busy = true, i;
        if (p->busy && p->end - p->at > most) largest = i, most = p->end - p->at;
    }
    if (largest < 0 || s->n == OSH_MOST_PARTS) return -1;
    osh_part *from = &s->parts[largest];
    int64_t middle = from->at + most / 2;
    s->parts[s->n] = (osh_part){.at = middle, .end = from->end, .busy = true};
    from->end = middle;
    return s->n++;
}

static int part_by_end(const void *a, const void *b)
{
    int64_t x = ((const osh_part *)a)->end, y = ((const osh_part *)b)->end;
    return (x > y) - (x < y);
}

int64_t osh_ranges_done(const osh_ranges *s)
{
    int64_t left = 0;
    for (int i = 0; i < s->n; i++) left += s->parts[i].end - s->parts[i].at;
    return s->n_bytes - left;
}

size_t osh_ranges_write(char to[OSH_RANGES_BYTES], const osh_ranges *s)
{
    int64_t words[OSH_RANGES_BYTES / 8] = {s->n_bytes, s->n};
    for (int i = 0; i < s->n; i++)
        words[2 + 2 * i] = s->parts[i].at, words[3 + 2 * i] = s->parts[i].end;
    memcpy(to, words, sizeof words);
    return sizeof words;
}

bool osh_ranges_read(osh_ranges *s, const char *from, size_t n, int64_t n_bytes)
{
    int64_t words[OSH_RANGES_BYTES / 8], start = 0;
    osh_part parts[OSH_MOST_PARTS];
    if (n != sizeof words) return false;
    memcpy(words, from, sizeof words);
    if (words[0] != n_bytes || words[1] < 1 || words[1] > OSH_MOST_PARTS) return false;
    int n_parts = (int)words[1];
    for (int i = 0; i < n_parts; i++)
        parts[i] = (osh_part){.at = words[2 + 2 * i], .end = words[3 + 2 * i]};
    qsort(parts, (size_t)n_parts, sizeof *parts, part_by_end);
    *s = (osh_ranges){.n_bytes = n_bytes};
    for (int i = 0; i < n_parts; i++) {
        if (parts[i].at < start || parts[i].at > parts[i].end) return false;
        // a part without missing bytes is left out, unless it is the last part
        bool whole = parts[i].at == parts[i].end && i < n_parts - 1;
        start = parts[i].end;
        if (!whole) s->parts[s->n++] = parts[i];
    }
    return start == n_bytes;
}
