/* watch.c - looks processes up in /proc, and waits for the readers of pipes. */
#include "ranks/watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STATE = 3, START = 22 }; // numbers of fields in /proc/PID/stat, counted from 1 (proc(5))

/* Returns the start time of the process `pid`, or 0 if it has ended. */
static uint64_t process_start(pid_t pid)
{
    char path[64], text[1024], *at, *next = NULL, state = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    /* The program's name in the text may have spaces. It ends at the last ')'. */
    if (!(at = strrchr(text, ')'))) return 0;
    for (int field = STATE; field <= START && (at = strchr(at, ' ')); field++, at++) {
        if (field == STATE) state = at[1];
        if (field == START) next = at + 1;
    }
    return next && state != 'Z' && state != 'X' ? strtoull(next, NULL, 10) : 0;
}

void osh_process_find(osh_process *to, pid_t pid)
{
    to->pid = pid;
    to->start = process_start(pid);
}

bool osh_process_runs(const osh_process *p)
{
    return p->start && process_start(p->pid) == p->start;
}

void osh_watch_drain(void)
{
    const struct timespec step = {.tv_nsec = 2000000}, last = {.tv_nsec = 50000000};
    bool any = false;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat st;
        if (fstat(fd, &st) || !S_ISFIFO(st.st_mode)) continue;
        any = true;
        for (int left = 0, n = 0; n < 500 && !ioctl(fd, FIONREAD, &left) && left; n++)
            nanosleep(&step, NULL);
    }
    /* The readers have the text now. They get time to pass it on before they notice that this
     * process has ended. */
    if (any) nanosleep(&last, NULL);
}
