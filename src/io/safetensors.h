/* safetensors.h - one safetensors file: header checked in full, tensors read by pread, files laid out in advance.
 * An osh_st holds no open file, so a checkpoint may have more shards than a process may have descriptors. */
#ifndef OSH_SAFETENSORS_H
#define OSH_SAFETENSORS_H
#include "base/file.h"
#include "tensor/tensor.h"

typedef struct osh_st_entry {
    char *name; // own
    osh_dtype dtype;
    int ndim;
    int64_t shape[OSH_MAX_DIMS];
    int64_t begin, end; // bytes, from the start of the file
    int64_t at, row, column; // of a part of another tensor whose elements lie apart: where in the file the first one
                             // is, and bytes from one row, one column to the next; begin is 0. row 0: it is none
} osh_st_entry;

typedef struct osh_st osh_st;
/* Every offset, size, overlap and hole is checked here. */
osh_status osh_st_open(osh_ctx *cx, osh_st **out, const char *path);
void osh_st_read_direct(osh_st *st); // from here on past the page cache (osh_file_pread_direct)
void osh_st_close(osh_ctx *cx, osh_st *st);
int64_t osh_st_count(const osh_st *st);
const osh_st_entry *osh_st_at(const osh_st *st, int64_t i); // view: lives as long as st; in file order
osh_status osh_st_read(osh_ctx *cx, void *to, const osh_st *st, const osh_st_entry *e); // the whole tensor
osh_status osh_st_read_part(osh_ctx *cx, void *to, const osh_st *st, const osh_st_entry *e, int64_t offset,
                            size_t n_bytes);
/* The file once more, for osh_st_read_blocks: own; still the one whose header was read. No copy is made where
 * osh_st_read_direct was called. */
osh_status osh_st_reopen(osh_ctx *cx, osh_file **f, const osh_st *st);
/* As osh_st_read_part, into aligned blocks, of which room has osh_file_room(n_bytes): to room + position in the file %
 * OSH_BLOCK_BYTES. */
osh_status osh_st_read_blocks(osh_ctx *cx, void *room, osh_file *f, const osh_st_entry *e, int64_t offset,
                              size_t n_bytes);
/* Bytes [offset, offset + n_bytes), whole elements, of a part whose elements lie apart. st_part.c */
osh_status osh_st_gather(osh_ctx *cx, void *to, osh_file *f, const osh_st_entry *e, int64_t offset, size_t n_bytes);
const char *osh_st_path(const osh_st *st);
const osh_stamp *osh_st_stamp(const osh_st *st); // of the file, before its header was read
int64_t osh_st_header(const osh_st *st, uint64_t *sum); // bytes in front of the data, and their XXH3

/* Layout of a file to be written: entries (name, dtype, shape given) are sorted as the safetensors library sorts
 * (dtype, then name bytes), begin and end are filled in, and the complete header (8-byte length, JSON, padding) is
 * returned. own. */
osh_status osh_st_layout(osh_ctx *cx, char **header, size_t *header_bytes, osh_st_entry *entries, int64_t n);
/* The same of entries that stay where they are: the list is sorted. */
osh_status osh_st_layout_of(osh_ctx *cx, char **header, size_t *header_bytes, osh_st_entry **list, int64_t n);
/* name: view of one that two entries have, NULL: there is none. */
osh_status osh_st_twice(osh_ctx *cx, const char **name, osh_st_entry *entries, int64_t n);
const char *osh_st_twice_of(osh_st_entry **list, int64_t n); // sorts it
#endif
