/* safetensors.h - reads and lays out safetensors files. Every byte of a header is checked, and the
 * layout of a new file is computed before the file is written. An osh_container does not keep its file
 * open, so a checkpoint may have more shards than a process may have file descriptors. */
#ifndef OSH_SAFETENSORS_H
#define OSH_SAFETENSORS_H
#include "base/file.h"
#include "tensor/tensor.h"

typedef struct osh_entry { // an entry: describes one tensor of a file, or a part of a tensor
    char *name; // own
    osh_dtype dtype;
    int ndim;
    int64_t shape[OSH_MAX_DIMS];
    int64_t begin, end; // offsets in bytes from the start of the file
    /* If row is 0, the data of the entry are the contiguous range [begin, end) of the file. If not,
     * the entry is a part of a stored tensor, whose elements are not contiguous in the file. `at`
     * is the offset of its first element in the file, `row` and `column` are the bytes from one row
     * or column to the next, and `begin` is 0. */
    int64_t at, row, column;
} osh_entry;

typedef struct osh_container osh_container;
/* Opens a file and checks every offset and size. Overlaps and gaps are errors. */
osh_status osh_container_open(osh_ctx *cx, osh_container **out, const char *path);
/* All later reads of tensors bypass the page cache (osh_file_pread_direct) */
void osh_container_read_direct(osh_container *st);
void osh_container_close(osh_ctx *cx, osh_container *st);
int64_t osh_container_count(const osh_container *st);
/* Returns entry i, which describes one tensor (view: lives as long as st). Entries are sorted by
 * the offset of the tensor in the file. */
const osh_entry *osh_container_at(const osh_container *st, int64_t i);
/* Reads a whole tensor. */
osh_status osh_container_read(osh_ctx *cx, void *to, const osh_container *st, const osh_entry *e);
osh_status osh_container_read_part(osh_ctx *cx, void *to, const osh_container *st,
                                   const osh_entry *e, int64_t offset, size_t n_bytes);
/* Opens the file again for osh_container_read_blocks and checks that its size is unchanged. The caller
 * closes *f. After osh_container_read_direct these reads bypass the page cache. */
osh_status osh_container_reopen(osh_ctx *cx, osh_file **f, const osh_container *st);
/* Reads n_bytes of a tensor into aligned blocks. The first byte is stored at room + (its offset in
 * the file % OSH_BLOCK_BYTES). `room` must have osh_file_room(n_bytes) bytes. */
osh_status osh_container_read_blocks(osh_ctx *cx, void *room, osh_file *f, const osh_entry *e,
                                     int64_t offset, size_t n_bytes);
/* Reads bytes [offset, offset + n_bytes) of an entry whose elements are not contiguous in the file
 * (st_part.c). offset and n_bytes must be multiples of the size of an element. */
osh_status osh_container_gather(osh_ctx *cx, void *to, osh_file *f, const osh_entry *e,
                                int64_t offset, size_t n_bytes);
/* Reads columns [first, first + n) of the matrix e [R, C] to `to`, as a matrix [n, R]. */
osh_status osh_container_read_columns(osh_ctx *cx, void *to, const osh_container *st,
                                      const osh_entry *e, int64_t first, int64_t n);
/* Reads rows [first, first + n) of a tensor, or elements of a vector. */
osh_status osh_container_read_rows(osh_ctx *cx, void *to, const osh_container *st,
                                   const osh_entry *e, int64_t first, int64_t n);
const char *osh_container_path(const osh_container *st);
/* Returns the stamp that the file had before its header was read (view) */
const osh_stamp *osh_container_stamp(const osh_container *st);
/* Returns the number of bytes of the file before the data; sets *sum to the XXH3 of these bytes. */
int64_t osh_container_header(const osh_container *st, uint64_t *sum);

/* Computes the layout of a new file. The caller has set name, dtype and shape of each entry (one
 * for each tensor). Sorts the entries as the safetensors library does (by dtype, then by bytes of
 * the name) and sets begin and end. Sets *header, which the caller owns, to the 8-byte length, the
 * JSON and the padding. */
osh_status osh_safetensors_layout_array(osh_ctx *cx, char **header, size_t *header_bytes,
                                        osh_entry *entries, int64_t n);
/* Computes a layout like osh_safetensors_layout_array, but sorts a list of pointers to the entries instead of the
 * entries. */
osh_status osh_safetensors_layout(osh_ctx *cx, char **header, size_t *header_bytes,
                                  osh_entry **list, int64_t n);
/* Sets *name to a view of a name that two entries have, or to NULL if all names are different. */
osh_status osh_entry_twice(osh_ctx *cx, const char **name, osh_entry *entries, int64_t n);
#endif
