/* container.h - reads files that contain tensors. A container kind is a file format. Each kind is a
 * row of the table in container.c. The functions of the row read the entries of a file and lay out
 * a new file. All other code uses entries and does not know the format. A new kind is one file and
 * one row of the table. An osh_container does not keep its file open, so a checkpoint may have more
 * shards than a process may have file descriptors. */
#ifndef OSH_CONTAINER_H
#define OSH_CONTAINER_H
#include "base/file.h"
#include "tensor/tensor.h"

typedef struct osh_entry { // an entry: describes one tensor of a file, or a part of a tensor
    char *name;            // own
    osh_dtype dtype;
    int ndim;
    int64_t shape[OSH_MAX_DIMS];
    int64_t begin, end; // offsets in bytes from the start of the file
    /* If row is 0, the data of the entry are the contiguous range [begin, end) of the file. If not,
     * the entry is a part of a stored tensor, and the elements of the part are not contiguous in
     * the file. Then `at` is the offset of the part's first element in the file, and `begin` is 0.
     * `row` is the number of bytes from one row to the next, and `column` from one column to the
     * next. */
    int64_t at, row, column;
} osh_entry;

typedef struct osh_container osh_container;

typedef struct osh_container_kind {
    const char *name;  // name of the format: "safetensors"
    const char *tail;  // last part of a file's name: ".safetensors"
    const char *index; // name of the JSON file that maps names of tensors to files
    /* Reads the header of c->path and sets the members of c that describe the file. Checks that
     * each byte of the file belongs to the header or to one tensor. */
    osh_status (*read)(osh_ctx *cx, osh_container *c);
    /* Computes the layout of a new file. The caller has set name, dtype and shape of each entry.
     * Sorts the list, and sets begin and end of each entry. Sets *header (own) to the bytes before
     * the data, and *header_bytes to their number. */
    osh_status (*layout)(osh_ctx *cx, char **header, size_t *header_bytes, osh_entry **list,
                         int64_t n);
} osh_container_kind;
/* Returns the kind whose `tail` is the end of the file name `name`, or NULL if there is none. */
const osh_container_kind *osh_container_kind_of(const char *name);
/* Returns the kind of all files that the program writes. */
const osh_container_kind *osh_container_written(void);
/* Returns the name (own) of file i (from 1) of a checkpoint with n files: "model.safetensors" or
 * "model-00001-of-00003.safetensors". Returns NULL if there is no memory. */
char *osh_container_file_name(osh_ctx *cx, const osh_container_kind *kind, int i, int n);
/* Returns true if osh_container_file_name gives this name for some i and n. */
bool osh_container_is_file_name(const osh_container_kind *kind, const char *name);

/* Opens a file and checks every offset and size. Overlaps and gaps are errors. The file's name
 * decides the kind; a name without a known tail means safetensors. */
osh_status osh_container_open(osh_ctx *cx, osh_container **out, const char *path);
/* Makes all later reads of tensors bypass the page cache (osh_file_pread_direct). */
void osh_container_read_direct(osh_container *st);
void osh_container_close(osh_ctx *cx, osh_container *st);
int64_t osh_container_count(const osh_container *st);
/* Returns entry i, which describes one tensor (view: lives as long as the container). Entries are
 * sorted by the offset of the tensor in the file. */
const osh_entry *osh_container_at(const osh_container *st, int64_t i);
/* Reads a whole tensor. */
osh_status osh_container_read(osh_ctx *cx, void *to, const osh_container *st, const osh_entry *e);
osh_status osh_container_read_part(osh_ctx *cx, void *to, const osh_container *st,
                                   const osh_entry *e, int64_t offset, size_t n_bytes);
/* Opens the file again for osh_container_read_blocks and checks that its size is unchanged. The
 * caller closes *f. After a call of osh_container_read_direct, reads of *f bypass the page
 * cache. */
osh_status osh_container_reopen(osh_ctx *cx, osh_file **f, const osh_container *st);
/* Reads n_bytes of a tensor into aligned blocks. `room` must have osh_file_room(n_bytes) bytes. The
 * first byte is stored at this index of `room`:
 *   (offset of the byte in the file) % OSH_BLOCK_BYTES */
osh_status osh_container_read_blocks(osh_ctx *cx, void *room, osh_file *f, const osh_entry *e,
                                     int64_t offset, size_t n_bytes);
/* Reads bytes [offset, offset + n_bytes) of an entry whose elements are not contiguous in the file
 * (container_part.c). offset and n_bytes must be multiples of the size of an element. */
osh_status osh_container_gather(osh_ctx *cx, void *to, osh_file *f, const osh_entry *e,
                                int64_t offset, size_t n_bytes);
/* Reads columns [first, first + n) of the matrix e. Writes each column as a row of `to` [n, rows of
 * e]. */
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

/* Sorts a list of pointers to entries by name. Returns a name that two entries have (view), or NULL
 * if all names are different. */
const char *osh_entries_twice(osh_entry **list, int64_t n);
/* Sets *name to a view of a name that two entries have, or to NULL if all names are different. Does
 * not change the order of the entries. */
osh_status osh_entry_twice(osh_ctx *cx, const char **name, osh_entry *entries, int64_t n);
#endif
