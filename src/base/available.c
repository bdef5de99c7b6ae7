/* available.c - reads from /proc and from the cgroup (version 2) how much memory is available. */
#include "base/available.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the whole number at the beginning of a file, or -1 if there is none. */
static int64_t number_read(const char *path)
{
    char text[64];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    char *end = text;
    long long v = strtoll(text, &end, 10);
    return end == text ? -1 : (int64_t)v;
}

static int64_t machine_available(void)
{
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "MemAvailable:", 13)) kib = strtoll(line + 13, NULL, 10);
    if (f) fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

int64_t osh_mem_machine(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}

int64_t osh_mem_available(void)
{
    int64_t left = machine_available(), most = number_read("/sys/fs/cgroup/memory.max"),
            used = number_read("/sys/fs/cgroup/memory.current");
    if (most < 0 || used < 0) return left;
    int64_t here = most > used ? most - used : 0;
    return left < 0 || here < left ? here : left;
}
