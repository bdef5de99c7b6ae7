/* live.c - prints the live line of a terminal: as much of a job's progress as fits the width, the
 * remaining time first.
 *
 *   4m12s left [#####.....]  3/28 model.layers.2  observe 12/128  3100 tok/s  512 of 2048 MiB
 *   err 1.8e-03     (all on one line)
 *
 * On a narrow terminal fields are left out in this order: error, bar, rate, memory, phase, step,
 * time. The beginning of a long name is cut. */
#include "base/live.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/quote.h"

void osh_show_time(char *to, size_t room, double seconds)
{
    long long s = (long long)(seconds + 0.5);
    if (s < 60) snprintf(to, room, "%llds", s);
    else if (s < 3600) snprintf(to, room, "%lldm%02llds", s / 60, s % 60);
    else snprintf(to, room, "%lldh%02lldm", s / 3600, s / 60 % 60);
}

void osh_show_bytes(char *to, size_t room, int64_t n, int64_t budget)
{
    bool large = (n > budget ? n : budget) >= (int64_t)10000 << 20;
    double unit = large ? 1 << 30 : 1 << 20;
    if (budget > 0)
        snprintf(to, room, "%.*f of %.*f %s", large, (double)n / unit, large, (double)budget / unit,
                 large ? "GiB" : "MiB");
    else snprintf(to, room, "%.*f %s", large, (double)n / unit, large ? "GiB" : "MiB");
}

int osh_live_width(void)
{
    struct winsize w;
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col > 1 ? w.ws_col : 80;
}

bool osh_live_in_front(void)
{
    pid_t front = tcgetpgrp(STDERR_FILENO);
    return front < 0 || front == getpgrp(); // true if the process is in the foreground, or has no
                                            // controlling terminal (front < 0)
}

enum {
    TIME,
    BAR,
    STEP,
    NAME,
    PHASE,
    RATE,
    MEMORY,
    ERROR,
    N_PIECES,
    PIECE = 512,
    LEAST_NAME = 16,
    BAR_COLUMNS = 20
};

static void fill_pieces(char piece[N_PIECES][PIECE], const osh_live *live)
{
    const osh_progress *p = live->p;
    char t[64];
    bool over = p->finished && p->work_total > 0 && p->work_done >= p->work_total;
    for (int k = 0; k < N_PIECES; k++) piece[k][0] = 0;
    osh_show_time(t, sizeof t, over ? live->elapsed : live->left);
    if (over) snprintf(piece[TIME], PIECE, "took %s", t);
    else if (live->left >= 0) snprintf(piece[TIME], PIECE, "%s left", t);
    double all = live->elapsed + live->left, part = over ? 1
                                                    : live->left >= 0 && all > 0
                                                        ? live->elapsed / all
                                                        : 0;
    int n = (int)(part * BAR_COLUMNS + 0.5);
    memset(piece[BAR], '.', BAR_COLUMNS + 2), piece[BAR][BAR_COLUMNS + 2] = 0;
    memset(piece[BAR] + 1, '#', (size_t)n);
    piece[BAR][0] = '[', piece[BAR][BAR_COLUMNS + 1] = ']';
    snprintf(piece[STEP], PIECE, "%lld/%lld", (long long)p->step, (long long)p->n_steps);
    osh_show(piece[NAME], PIECE, p->name ? p->name : "", NULL);
    if (p->total > 0)
        snprintf(piece[PHASE], PIECE, "%.60s %lld/%lld", p->phase ? p->phase : "",
                 (long long)p->done, (long long)p->total);
    else if (p->phase) snprintf(piece[PHASE], PIECE, "%.60s", p->phase);
    if (p->tokens_per_s > 0) snprintf(piece[RATE], PIECE, "%.0f tok/s", p->tokens_per_s);
    osh_show_bytes(piece[MEMORY], PIECE, live->peak, p->budget_bytes);
    if (p->loss > 0) snprintf(piece[ERROR], PIECE, "loss %.2f of rtn", p->loss);
    else if (p->error >= 0) snprintf(piece[ERROR], PIECE, "err %.1e", p->error);
}

/* Shortens a name to its last `room` bytes, cutting between characters. */
static void shorten_name(char *name, int room)
{
    int n = (int)strlen(name), from;
    if (n <= room) return;
    from = n - (room > 2 ? room - 2 : 0);
    while (((unsigned char)name[from] & 0xc0) == 0x80) from++;
    memmove(name + 2, name + from, (size_t)(n - from) + 1);
    name[0] = name[1] = '.';
}

int osh_live_print(char *to, size_t room, const osh_live *live, int width, bool colour)
{
    /* Fields of the line in the order in which they are left out. */
    static const int goes[] = {ERROR, BAR, RATE, MEMORY, PHASE, STEP, TIME};
    char piece[N_PIECES][PIECE];
    int columns = -2, name = 0, spare = 0;
    size_t n = 0;

    fill_pieces(piece, live);
    name = (int)strlen(piece[NAME]);
    if (width > (int)room - 20) width = (int)room - 20; // 20 bytes are reserved for the codes of
                                                        // colours
    for (int k = 0; k < N_PIECES; k++) columns += piece[k][0] ? (int)strlen(piece[k]) + 2 : 0;
    if (name > LEAST_NAME) spare = name - LEAST_NAME; // number of bytes that the name can lose
    for (int k = 0; columns - spare > width - 1 && k < (int)(sizeof goes / sizeof *goes); k++) {
        if (!piece[goes[k]][0]) continue;
        columns -= (int)strlen(piece[goes[k]]) + 2;
        piece[goes[k]][0] = 0;
    }
    if (columns > width - 1) shorten_name(piece[NAME], name - (columns - (width - 1)));
    columns = 0, to[0] = 0;
    for (int k = 0; k < N_PIECES; k++) {
        bool tint = colour && (k == BAR || k == TIME);
        if (!piece[k][0]) continue;
        const char *before = columns ? "  " : "";
        const char *on = !tint ? "" : k == BAR ? "\033[32m" : "\033[1m";
        int got =
            snprintf(to + n, room - n, "%s%s%s%s", before, on, piece[k], tint ? "\033[0m" : "");
        columns += (int)(strlen(before) + strlen(piece[k]));
        n += (size_t)got;
    }
    return columns;
}
