/* file_impl.h - declares struct osh_file and the functions that file.c and file_lock.c share. */
#ifndef OSH_FILE_IMPL_H
#define OSH_FILE_IMPL_H
#include "base/file.h"

struct osh_file {
    int fd;
    int direct;  // descriptor that bypasses the page cache; -1: none
    char *path;  // own
    bool locked; // true if the file is in the list of locked files
    osh_file *next_locked;
};

/* Makes an osh_file with the path and without a descriptor. */
osh_status osh_file_new(osh_ctx *cx, osh_file **out, const char *path);
/* Fails with "cannot <what> <path>: <errno's text>" */
osh_status osh_file_fail(osh_ctx *cx, const char *what, const char *path);
void osh_file_unlock(osh_file *f); // unlocks f and closes its fd
#endif
