/* file_impl.h - between file.c and file_lock.c. */
#ifndef OSH_FILE_IMPL_H
#define OSH_FILE_IMPL_H
#include "base/file.h"

struct osh_file {
    int fd;
    int direct; // the same file past the page cache; -1: none
    char *path; // own
    bool locked; // in the list of locked files
    osh_file *next_locked;
};

osh_status osh_file_new(osh_ctx *cx, osh_file **out, const char *path); // own: of no open file yet
osh_status osh_file_fail(osh_ctx *cx, const char *what, const char *path); // "cannot <what> <path>: <errno's text>"
void osh_file_unlock(osh_file *f); // and closes its fd
#endif
