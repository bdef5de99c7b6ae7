/* source_impl.h - the modules of a quantized source, and the table of storage methods
 * (sources.def). This header is only for src/quant. */
#ifndef OSH_QUANT_SOURCE_IMPL_H
#define OSH_QUANT_SOURCE_IMPL_H
#include "quant/adapter.h"
#include "quant/padding.h"
#include "quant/source.h"

typedef struct osh_source_module osh_source_module;

/* A row of sources.def: one way to store quantized weights. If `groups` is true in the row of the
 * checkpoint's quant_method, only this row is used. If not, all rows in which `groups` is false are
 * used together. The last four functions must not be NULL; the other functions may be NULL. */
typedef struct osh_source_type {
    const char *methods[4]; // values of quant_method in config.json
    /* Name of a file beside config.json that describes such a checkpoint without quant_method
     * (io/hf_quant.h); NULL: there is none. */
    const char *file;
    /* Suffixes of the names of stored tensors that are hidden; NULL ends the list. */
    const char *tails[14];
    /* true: `configure` sets the source's config, whose config groups describe the quantization
     * of each module; false: there are no config groups */
    bool groups;
    // Reads q, the quantization_config. Fails if q is not supported.
    osh_status (*configure)(osh_ctx *cx, osh_source *s, const cJSON *q);
    // Is called before the modules are searched. Sets *state to private data of this row.
    osh_status (*begin)(osh_ctx *cx, void **state, const osh_source *s);
    // Frees private data that is needed only to find modules.
    void (*found)(osh_ctx *cx, void **state);
    // frees `state`, which is not NULL
    void (*close)(osh_ctx *cx, void *state);
    /* True if tensor e belongs to a quantized module. The module's name is the first *n bytes of
     * the tensor's name. The function must return true for every kind of tensor that only quantized
     * modules have, so that a module with missing tensors causes an error. */
    bool (*claims)(const osh_source *s, const osh_entry *e, size_t *n);
    // Finds and checks the tensors of a module for which `claims` returned true.
    osh_status (*find)(osh_ctx *cx, osh_source_module *q);
    osh_status (*make_rows)(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                            int64_t n);
    /* Returns the bytes of scratch of make_rows, with the allocator's overhead. */
    size_t (*bytes)(const osh_source_module *q);
} osh_source_type;

struct osh_source_module {
    char *name;                  // own: name of the module, or of the tensor of all experts
    const osh_source_type *type; // row of sources.def
    void **state;                // view: private data of the row, set by `begin`
    /* Quantization scheme, view of the source's config or of `own`; NULL: the row's make_rows
     * decodes without a scheme. */
    const osh_q_scheme *scheme;
    const osh_format *format; // storage format; NULL: the row's make_rows decodes without a format
    osh_q_scheme own;            // scheme of the module if there is no config group for it
    /* wide: true if the weight is decoded in F32, then rounded.
     * powers: true if scales are stored as exponents + 127. */
    bool wide, powers;
    osh_source *source;          // view
    /* The weight is [O, I]. With several experts, their rows follow each other, and O is the number
     * of rows of all experts. */
    int64_t O, I;
    int64_t experts; // number of experts, if the tensor has 3 dimensions; 0: the weight is a matrix
    bool bare;                   // true: the dense tensor is called `name`; false: `name`.weight
    osh_dtype dtype;             // dtype of the dense weight
    osh_format_tensor leaves[OSH_FORMAT_MAX_TENSORS]; // expected stored tensors
    /* parts[i] is the stored tensor of leaves[i]; e is NULL if decoding does not need this
     * tensor. */
    osh_ckpt_tensor parts[OSH_FORMAT_MAX_TENSORS];
    int n_leaves;
    osh_tensor *in_scale, *in_zero, *out_scale, *out_zero; // own
};

struct osh_source {
    osh_checkpoint *ck;      // own
    /* Quantization config; NULL: the source is dense, or its method has no config groups. */
    osh_q_config *config;    // own
    const char *method;      // view: quant_method of the checkpoint's config
    const osh_source_type *type; // row of sources.def for the method
    void **states;           // own: private data of each row of sources.def
    osh_source_module *mods; // own [n]: the quantized modules
    int n;
    osh_map *by_name;        // own: maps the name of a module to its index in `mods`
    osh_adapter *adapter;    // own: adapter that is merged into the checkpoint; NULL: none
    struct osh_padding *padding; // own [n_padded]: the padded tensors; NULL: none
    int64_t n_padded;
};

/* Adds a module to s->mods. The module's name is the first n bytes of `name`. Sets *out to a view
 * of the module. */
osh_status osh_source_module_new(osh_ctx *cx, osh_source_module **out, osh_source *s,
                                 const char *name, size_t n);
/* Sets *t to the tensor <module><sep><leaf>, or to NULL if there is none. */
osh_status osh_source_find_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *sep, const char *leaf);
/* True if the tensor <the first n bytes of name>.weight has the dtype dt. */
bool osh_source_weight_is(const osh_source *s, const char *name, size_t n, osh_dtype dt);
/* Finds the tensor <module>.<leaf>. Fails if it is missing. `why`: the config key that needs the
 * tensor, for the message. */
osh_status osh_source_need_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *leaf, const char *why);
/* Stores t in q->parts[leaf], as the stored tensor of q->leaves[leaf]. Fails if the numbers of
 * elements differ. The caller checks dtype and shape. */
osh_status osh_source_bind_leaf(osh_ctx *cx, osh_source_module *q, int leaf,
                                const osh_ckpt_tensor *t);
/* Like osh_source_bind_leaf, but also checks the dtype and the shape of `t`. */
osh_status osh_source_bind_checked(osh_ctx *cx, osh_source_module *q, int leaf,
                                   const osh_ckpt_tensor *t);
/* True if AutoRound wrote the checkpoint with the tensors of AutoAWQ. */
bool osh_source_packs_awq(const osh_source *s);
/* Fails unless t is a matrix [rows, columns] of a dtype in the list `dtypes`, which ends with
 * OSH_DTYPE_NONE. */
osh_status osh_source_check_matrix(osh_ctx *cx, const osh_ckpt_tensor *t, int64_t rows,
                                   int64_t columns, const osh_dtype *dtypes);
/* Reads n columns of the stored matrix q->parts[part], from column `first` on. Writes each column
 * as a row of `to` [n, rows of the matrix] (container_part.c). */
osh_status osh_source_read_columns(osh_ctx *cx, void *to, const osh_source_module *q, int part,
                                   int64_t first, int64_t n);
/* Reads rows [first, first + n) of the stored matrix q->parts[part], or elements of a vector. */
osh_status osh_source_read_rows(osh_ctx *cx, void *to, const osh_source_module *q, int part,
                                int64_t first, int64_t n);
/* Fails if one of the n scales that were read from q->parts[part] is not finite. */
osh_status osh_source_check_finite(osh_ctx *cx, const osh_source_module *q, int part,
                                   const float *scales, int64_t n);
/* Functions for the members `make_rows` and `bytes`, for modules with a scheme and a format
 * (source_rows.c). */
osh_status osh_source_rows_make(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n);
size_t osh_source_rows_bytes(const osh_source_module *q);

/* Rows that are decoded in pieces, with one block of memory (source_module.c). */
typedef struct osh_source_pieces {
    int64_t rows; // number of rows of a piece
    size_t bytes; // bytes of the block
    void *room;   // view: first argument of both functions, divides the block
    /* Divides the block into arrays, and reads the data that the decoding of every piece needs. */
    osh_status (*open)(osh_ctx *cx, void *room, const osh_source_module *q, char *block);
    /* Writes rows [first, first + n) to `to`. */
    osh_status (*piece)(osh_ctx *cx, char *to, void *room, const osh_source_module *q,
                        int64_t first, int64_t n);
} osh_source_pieces;
/* Decodes rows [first, first + n). Checks for an interrupt before each piece. */
osh_status osh_source_decode(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                             int64_t n, const osh_source_pieces *p);
/* Returns the bytes of osh_source_decode, with a buffer for direct reads. */
size_t osh_source_decode_bytes(size_t block_bytes);
/* Returns the address of the next n_bytes of the block, and adds n_bytes to *at. If `block` is
 * NULL, returns NULL and adds n_bytes to *at, so that the caller can compute the size of the
 * block. */
void *osh_source_slice(char *block, size_t *at, size_t n_bytes);
#endif
