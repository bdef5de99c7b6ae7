/* container_impl.h - declares the members of an osh_container, for the files that read a format. */
#ifndef OSH_CONTAINER_IMPL_H
#define OSH_CONTAINER_IMPL_H
#include "io/container.h"

struct osh_container {
    char *path;           // own
    osh_stamp stamp;      // stamp of the file before its header was read
    int64_t header_bytes; // number of bytes before the data
    uint64_t header_sum;  // XXH3 checksum of the bytes before the data
    osh_entry *entries;   // own: entries of all tensors, sorted by offset in the file
    int64_t n;
    bool direct; // true if tensors are read without the page cache
    char *names; // own: the names of all tensors, each with a NUL
};
#endif
