/* made.c - recognizes files that this program has written, by the first bytes of a file. */
#include "base/made.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { HEAD_BYTES = 128 };

static bool head_begins(const char *head, const char *with)
{
    return !strncmp(head, with, strlen(with));
}

/* Recognizes a log, which begins with "     0.012 command oneshot ..." or "... begin   ". */
static bool is_log(const char *head)
{
    const char *s = head + strspn(head, " "), *dot = s + strspn(s, "0123456789");
    if (dot == s || *dot != '.' || strspn(dot + 1, "0123456789") != 3) return false;
    return head_begins(dot + 4, " command ") || head_begins(dot + 4, " begin   ");
}

static bool is_profile(const char *head) { return head_begins(head, "# oneshot profile."); }

/* Recognizes a .npy file of f32 numbers; the text of its header begins at byte 10. */
static bool is_npy(const char *head)
{
    static const char shape[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    if (memcmp(head, "\x93NUMPY\1", 7) || !head_begins(head + 10, shape)) return false;
    const char *s = head + 10 + strlen(shape);
    return head_begins(s + strspn(s, "0123456789"), ",), }");
}

static bool is_page(const char *head)
{
    return head_begins(head, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                             "<meta http-equiv=\"Content-Security-Policy\"");
}

static bool is_panel(const char *head) { return head_begins(head, "{\"oneshot_panel\": "); }

static const struct made {
    osh_path_use use;
    const char *noun;
    bool (*is)(const char *head); // first bytes of the file, at most HEAD_BYTES, then a NUL
    bool streams;                 // true if pipes, sockets and character devices are allowed
} made[] = {{OSH_PATH_LOG, "a log of oneshot", is_log, true},
            {OSH_PATH_PROFILE, "a profile of oneshot", is_profile, true},
            {OSH_PATH_NPY, "a list of f32 numbers as oneshot writes it", is_npy, false},
            {OSH_PATH_PAGE, "a page of oneshot", is_page, false},
            {OSH_PATH_PANEL, "a panel of oneshot eval", is_panel, false}};

osh_status osh_made_check(osh_ctx *cx, osh_path_use use, const char *shown, const char *path)
{
    char head[HEAD_BYTES + 1] = "";
    const struct made *m = made;
    struct stat st;
    while (m->use != use) m++;
    // there is no file, or opening the file will report the error
    if (stat(path, &st)) return OSH_OK;
    if (m->streams && (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
        return OSH_OK;
    if (!S_ISREG(st.st_mode))
        return osh_fail(cx, OSH_E_USAGE, "%s %s: there is %s, want a file name", shown, path,
                        S_ISDIR(st.st_mode) ? "a directory" : "a device, a pipe or a socket");
    if (!st.st_size) return OSH_OK;
    int fd = osh_fd_open(path, O_RDONLY); // own
    ssize_t n = fd < 0 ? -1 : pread(fd, head, HEAD_BYTES, 0);
    if (fd >= 0) close(fd);
    if (n >= 0 && m->is(head)) return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE,
                    "%s %s: the existing file is not %s and is kept: want another name", shown,
                    path, m->noun);
}
