/* live.c - prints the live line of a terminal: as many fields of a job's progress as fit the width.
 * The first field is the remaining time.
 *
 *   4m12s left  50% [#####.....]  3/28  model.layers.2  observe  12/128  310 tok/s
 *   512 of 2048 MiB  err 1.8e-03     (all on one line)
 *
 * On a narrow terminal fields are left out in this order: error, memory, rate, phase, bar, step,
 * percent, time. Before that, a long name loses its first parts up to a dot, and the bar gets
 * shorter. */
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
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col > 0 ? w.ws_col : 80;
}

bool osh_live_in_front(void)
{
    pid_t front = tcgetpgrp(STDERR_FILENO);
    // true if the process is in the foreground, or has no controlling terminal (front < 0)
    return front < 0 || front == getpgrp();
}

double osh_progress_fraction(const osh_progress *p)
{
    double f = p->fraction > 0     ? p->fraction
               : p->work_total > 0 ? p->work_done / p->work_total
                                   : -1;
    return f < 1 ? f : 1;
}

void osh_show_rate(char *to, size_t room, const osh_progress *p)
{
    double t = p->tokens_per_s, mb = p->bytes_per_s / 1e6;
    *to = 0;
    if (t >= 100000) snprintf(to, room, "%.0fk tok/s", t / 1000);
    else if (t > 0) snprintf(to, room, "%.*f tok/s", t < 10, t);
    else if (mb > 0) snprintf(to, room, "%.*f MB/s", mb < 1000, mb);
}

enum {
    TIME,
    PERCENT,
    BAR,
    STEP,
    NAME,
    PHASE,
    RATE,
    MEMORY,
    ERROR,
    N_PIECES,
    PIECE = 512,
    FAIR_NAME = 22,  // length to which a name is shortened before `error` and `memory` are left out
    LEAST_NAME = 12, // length to which a name is shortened before the other fields are left out
    LEAST_BAR = 8,   // shortest bar: columns between the brackets
    MOST_BAR = 20
};

/* Prints a bar of n columns between brackets. */
static void draw_bar(char to[PIECE], int n, double part)
{
    memset(to, '.', (size_t)n + 2), to[n + 2] = 0;
    memset(to + 1, '#', (size_t)(part * n + 0.5));
    to[0] = '[', to[n + 1] = ']';
}

static void fill_phase(char to[PIECE], const osh_progress *p)
{
    char total[32];
    int width = snprintf(total, sizeof total, "%lld", (long long)p->total);
    const char *phase = p->phase ? p->phase : "";
    if (p->total > 0)
        snprintf(to, PIECE, "%.60s %*lld/%s", phase, width, (long long)p->done, total);
    else snprintf(to, PIECE, "%.60s", phase);
}

static void fill_pieces(char piece[N_PIECES][PIECE], const osh_live *live)
{
    const osh_progress *p = live->p;
    char t[64];
    bool over = p->finished && p->work_total > 0 && p->work_done >= p->work_total;
    double part = over ? 1 : osh_progress_fraction(p);
    for (int k = 0; k < N_PIECES; k++) piece[k][0] = 0;
    osh_show_time(t, sizeof t, over ? live->elapsed : live->left);
    if (over) snprintf(piece[TIME], PIECE, "took %s", t);
    else if (live->left >= 0) snprintf(piece[TIME], PIECE, "%s left", t);
    if (part >= 0) {
        /* The percentage is rounded down, so 100 % appears only at the end. */
        snprintf(piece[PERCENT], PIECE, "%d%%", (int)(part * 100));
        draw_bar(piece[BAR], LEAST_BAR, part);
    }
    snprintf(piece[STEP], PIECE, "%lld/%lld", (long long)p->step, (long long)p->n_steps);
    osh_show(piece[NAME], PIECE, p->name ? p->name : "", NULL);
    fill_phase(piece[PHASE], p);
    osh_show_rate(piece[RATE], PIECE, p);
    osh_show_bytes(piece[MEMORY], PIECE, live->peak, p->budget_bytes);
    if (p->loss > 0) snprintf(piece[ERROR], PIECE, "loss %.2f of rtn", p->loss);
    else if (p->error >= 0) snprintf(piece[ERROR], PIECE, "err %.1e", p->error);
}

/* Returns the offset of the last part of a name that is too long (n bytes). The name is shown as
 * ".." and this last part, in at most `room` columns. The part begins with a dot if a dot is near
 * enough to the end of the name. A name with a slash is not cut at dots: it is no module's name,
 * and its dots may belong to a version. */
static int name_cut(const char *name, int n, int room)
{
    int keep = room > 2 ? room - 2 : 0, from = n - keep;
    const char *dot = strchr(name, '/') ? NULL : strchr(name + from, '.');
    if (dot) return (int)(dot - name);
    /* A cut inside a UTF-8 character moves on to the start of the next character. */
    while (((unsigned char)name[from] & 0xc0) == 0x80) from++;
    return from;
}

/* Returns the number of columns of a name that is shortened to at most `room` columns. */
static int name_columns(const char *name, int room)
{
    int n = (int)strlen(name);
    return n <= room ? n : 2 + n - name_cut(name, n, room);
}

/* Shortens a name to at most `room` bytes. */
static void shorten_name(char *name, int room)
{
    int n = (int)strlen(name);
    if (n <= room) return;
    int from = name_cut(name, n, room), dots = room < 2 ? room : 2;
    memmove(name + dots, name + from, (size_t)(n - from) + 1);
    memset(name, '.', (size_t)dots);
}

/* Returns the text that is printed before field k of the line. */
static const char *piece_gap(char piece[N_PIECES][PIECE], int k)
{
    for (int i = 0; i < k; i++)
        if (piece[i][0]) return k == BAR && piece[PERCENT][0] ? " " : "  ";
    return "";
}

/* Returns an upper bound of the number of columns of the line: its number of bytes. */
static int line_columns(char piece[N_PIECES][PIECE])
{
    int columns = 0;
    for (int k = 0; k < N_PIECES; k++)
        if (piece[k][0]) columns += (int)(strlen(piece_gap(piece, k)) + strlen(piece[k]));
    return columns;
}

/* Makes the live line fit into `most` columns: shortens the name and leaves out fields. The bar
 * fills the columns that are left. */
static void line_fit(char piece[N_PIECES][PIECE], int most, double part)
{
    /* the fields of the line in the order in which they are left out */
    static const int goes[] = {ERROR, MEMORY, RATE, PHASE, BAR, STEP, PERCENT, TIME};
    int name = (int)strlen(piece[NAME]);
    for (size_t k = 0; k < sizeof goes / sizeof *goes; k++) {
        bool fair = goes[k] == ERROR || goes[k] == MEMORY;
        int spare = name - name_columns(piece[NAME], fair ? FAIR_NAME : LEAST_NAME);
        if (line_columns(piece) - spare > most) piece[goes[k]][0] = 0;
    }
    int over = line_columns(piece) - most;
    if (over > 0) shorten_name(piece[NAME], name > over ? name - over : 0);
    int more = most - line_columns(piece);
    if (piece[BAR][0] && more > 0)
        draw_bar(piece[BAR], LEAST_BAR + more < MOST_BAR ? LEAST_BAR + more : MOST_BAR, part);
}

int osh_live_print(char *to, size_t room, const osh_live *live, int width, bool colour)
{
    char piece[N_PIECES][PIECE];
    size_t n = 0;
    const osh_progress *p = live->p;
    double part = osh_progress_fraction(p);

    fill_pieces(piece, live);
    if (p->finished && p->work_total > 0 && p->work_done >= p->work_total) part = 1;
    // 20 bytes are reserved for the codes of colours
    if (width > (int)room - 20) width = (int)room - 20;
    line_fit(piece, width - 1, part);
    to[0] = 0;
    for (int k = 0; k < N_PIECES; k++) {
        bool tint = colour && (k == BAR || k == TIME);
        if (!piece[k][0]) continue;
        const char *on = !tint ? "" : k == BAR ? "\033[32m" : "\033[1m";
        n += (size_t)snprintf(to + n, room - n, "%s%s%s%s", piece_gap(piece, k), on, piece[k],
                              tint ? "\033[0m" : "");
    }
    return line_columns(piece);
}
