/* disk_log.h - defines the format of a log of calls that change a disk. record.c writes the log,
 * and lose_power.c reads it. */
#ifndef DISK_LOG_H
#define DISK_LOG_H
#include <stdint.h>

typedef enum {
    DISK_OPEN = 1, // a file is opened; path: path of the file; at: 1 if the file is new; size: 0 if
                   // the file was truncated, else -1
    DISK_WRITE,    // a write; at: offset; data: the written bytes
    DISK_CUT,      // a truncation; size: the new size
    DISK_GROW,     // a call of fallocate, which may grow the file; size: the file's smallest size
                   // after the call
    DISK_SYNC,     // a sync; a power loss then keeps the bytes and size of a file, or the names in
                   // a directory
    DISK_MKDIR,    // a new directory; path: path of the directory
    DISK_RENAME,   // a rename; path: the old path; data: the new path
    DISK_UNLINK    // a removal of a file or directory; path: its path
} disk_kind;

/* Header of a call in the log. After it come n_path bytes of path and n_data bytes of data. Paths
 * are relative to the recorded directory. */
typedef struct disk_call {
    uint32_t kind, n_path;
    uint64_t inode;
    int64_t at, size;
    uint64_t n_data;
} disk_call;
#endif
