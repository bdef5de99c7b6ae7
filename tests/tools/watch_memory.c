/* watch_memory.c - runs a program and writes its peak memory and its read and written bytes:
 *
 *   watch_memory FILE PROGRAM ARGUMENT...     writes to FILE: peak rchar wchar, in bytes
 *
 * The peak is the largest RssAnon + RssShmem in /proc/PID/status, read every millisecond. rchar and
 * wchar are read from /proc/PID/io when the program has ended. The exit status is that of the
 * program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long number_after(int pid, const char *file, const char *key)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const char *at = strstr(text, key);
    return at ? atoll(at + strlen(key)) : -1;
}

int main(int argc, char **argv)
{
    long long peak = 0, rchar = 0, wchar = 0;
    siginfo_t info = {0};
    int status = 0;
    if (argc < 3) return 2;
    pid_t pid = fork();
    if (pid < 0) return 2;
    if (!pid) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    while (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && !info.si_pid) {
        long long anon = number_after(pid, "status", "RssAnon:"),
                  shm = number_after(pid, "status", "RssShmem:");
        if (anon >= 0 && anon + shm > peak) peak = anon + shm;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    // The process is a zombie now, so its files in /proc still exist.
    rchar = number_after(pid, "io", "rchar: "), wchar = number_after(pid, "io", "wchar: ");
    waitpid(pid, &status, 0);
    FILE *f = fopen(argv[1], "w");
    if (!f) return 2;
    fprintf(f, "%lld %lld %lld\n", peak * 1024, rchar, wchar);
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
