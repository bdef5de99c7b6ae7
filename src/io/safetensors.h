/* safetensors.h - reads and lays out safetensors files. Every byte of a header is checked, and the
 * layout of a new file is computed before the file is written. An osh_st holds no open file, so a
 * checkpoint may have more shards than a process may have descriptors. */
#ifndef OSH_SAFETENSORS_H
#define OSH_SAFETENSORS_H
#include "base/file.h"
#include "tensor/tensor.h"

typedef struct osh_st_entry {
    char *name; // own
    osh_dtype dtype;
    int ndim;
    int64_t shape[OSH_MAX_DIMS];
    int64_t begin, end; // bytes from the start of the file
    /* For a part of a tensor whose elements are not contiguous in the file. at: offset of the
     * part's first element in the file; row, column: bytes from one row or column to the next.
     * begin is then 0. If row is 0, the entry is the contiguous range [begin, end). */
    int64_t at, row, column;
} osh_st_entry;

typedef struct osh_st osh_st;
/* Opens a file and checks every offset and size. Overlaps and gaps are errors. */
osh_status osh_st_open(osh_ctx *cx, osh_st **out, const char *path);
void osh_st_read_direct(osh_st *st); // lets later reads of tensors bypass the page cache
                                     // (osh_file_pread_direct)
void osh_st_close(osh_ctx *cx, osh_st *st);
int64_t osh_st_count(const osh_st *st);
/* Returns entry i in file order. View: lives as long as st. */
const osh_st_entry *osh_st_at(const osh_st *st, int64_t i);
/* Reads a whole tensor. */
osh_status osh_st_read(osh_ctx *cx, void *to, const osh_st *st, const osh_st_entry *e);
osh_status osh_st_read_part(osh_ctx *cx, void *to, const osh_st *st, const osh_st_entry *e,
                            int64_t offset, size_t n_bytes);
/* Opens the file again for osh_st_read_blocks and checks that its size is unchanged. *f: own. After
 * osh_st_read_direct these reads bypass the page cache. */
osh_status osh_st_reopen(osh_ctx *cx, osh_file **f, const osh_st *st);
/* Reads n_bytes of a tensor into aligned blocks. The bytes begin at room + (their offset in the
 * file % OSH_BLOCK_BYTES). `room` has osh_file_room(n_bytes) bytes. */
osh_status osh_st_read_blocks(osh_ctx *cx, void *room, osh_file *f, const osh_st_entry *e,
                              int64_t offset, size_t n_bytes);
/* Reads bytes [offset, offset + n_bytes) of a part whose elements are not contiguous (st_part.c).
 * offset and n_bytes are multiples of the size of an element. */
osh_status osh_st_gather(osh_ctx *cx, void *to, osh_file *f, const osh_st_entry *e, int64_t offset,
                         size_t n_bytes);
const char *osh_st_path(const osh_st *st);
const osh_stamp *osh_st_stamp(const osh_st *st); // stamp of the file before its header was read
int64_t osh_st_header(const osh_st *st, uint64_t *sum); // returns the bytes of the file before the
                                                        // data; *sum: XXH3 of these bytes

/* Computes the layout of a new file. The entries have name, dtype and shape. Sorts the entries as
 * the safetensors library does (by dtype, then by bytes of the name) and sets begin and end.
 * *header (own): 8-byte length, JSON and padding. */
osh_status osh_st_layout(osh_ctx *cx, char **header, size_t *header_bytes, osh_st_entry *entries,
                         int64_t n);
/* Computes a layout like osh_st_layout, but sorts a list of pointers to the entries instead of the
 * entries. */
osh_status osh_st_layout_of(osh_ctx *cx, char **header, size_t *header_bytes, osh_st_entry **list,
                            int64_t n);
/* Sets *name to a name that two entries have (view), or to NULL. */
osh_status osh_st_twice(osh_ctx *cx, const char **name, osh_st_entry *entries, int64_t n);
#endif
