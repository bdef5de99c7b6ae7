/* knobs.c - sets the options of play.h from the environment variable OSH_PLAY, for scripts that run
 * oneshot_play. The variable has any of these words:
 *   order=N lazy=1 protect=0 truncate=1 solver=BYTES memory=BYTES shared=BYTES gpus=N:FIRST
 *   fail=CALL:N:ERROR counts=FILE
 * At its end, the program writes two numbers to FILE: how often the host waited for the GPU, and
 * how many kernels were launched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play/play.h"

static char counts[256]; // name of the file for the numbers of waits and launches

static void write_counts(void)
{
    static const char *const waits[] = {"cudaEventSynchronize", "cudaStreamSynchronize",
                                        "cudaDeviceSynchronize"};
    long n = 0;
    FILE *f = fopen(counts, "w");
    for (int i = 0; i < 3; i++) n += osh_play_calls(waits[i]);
    if (!f || fprintf(f, "%ld %ld\n", n, osh_play_launches()) < 0 || fclose(f))
        fprintf(stderr, "OSH_PLAY: cannot write %s\n", counts);
}

static void set(const char *knob, const char *value)
{
    char name[64];
    int n, first, error;
    if (!strcmp(knob, "order")) osh_play_order((unsigned)atoi(value));
    else if (!strcmp(knob, "lazy")) osh_play_lazy(atoi(value) != 0);
    else if (!strcmp(knob, "protect")) osh_play_protect(atoi(value) != 0);
    else if (!strcmp(knob, "truncate")) osh_play_truncate(atoi(value) != 0);
    else if (!strcmp(knob, "solver")) osh_play_solver_each = (size_t)atoll(value);
    else if (!strcmp(knob, "memory")) osh_play_memory((size_t)atoll(value));
    else if (!strcmp(knob, "shared")) osh_play_shared((size_t)atoll(value));
    else if (!strcmp(knob, "gpus") && sscanf(value, "%d:%d", &n, &first) == 2)
        osh_play_gpus(n, first);
    else if (!strcmp(knob, "fail") && sscanf(value, "%63[^:]:%d:%d", name, &n, &error) == 3)
        osh_play_fail(name, n, error);
    else if (!strcmp(knob, "counts"))
        snprintf(counts, sizeof counts, "%s", value), atexit(write_counts);
    else fprintf(stderr, "OSH_PLAY: unknown knob %s=%s\n", knob, value), exit(3);
}

__attribute__((constructor(65535))) static void knobs(void)
{
    const char *text = getenv("OSH_PLAY");
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *item = strtok_r(copy, " ", &save); item; item = strtok_r(NULL, " ", &save)) {
        char *value = strchr(item, '=');
        if (value) *value++ = 0;
        set(item, value ? value : "");
    }
}
