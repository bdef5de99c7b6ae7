/* source_impl.h - declares the modules of a quantized source, and the table of storage methods
 * (sources.def). This header is only for src/quant. */
#ifndef OSH_QUANT_SOURCE_IMPL_H
#define OSH_QUANT_SOURCE_IMPL_H
#include "quant/adapter.h"
#include "quant/padding.h"
#include "quant/source.h"

typedef struct osh_source_module osh_source_module;

/* A row of sources.def: one way to store quantized weights.
 * The quant_method of the checkpoint selects a row. If `groups` is true in that row, only that row
 * is used. If not, all rows in which `groups` is false are used together.
 * The last four functions must not be NULL; the other functions may be NULL. */
typedef struct osh_source_type {
    const char *methods[4]; // the values of quant_method that select this row
    /* Name of a file beside config.json that describes the quantization if config.json has no
     * quant_method (io/hf_quant.h). NULL: there is no such file. */
    const char *file;
    /* Last parts of the names of stored tensors that callers do not see. NULL ends the list. */
    const char *tails[14];
    /* True: the config has config groups, which describe the quantization of each module, and
     * `configure` reads them. False: there are no config groups. */
    bool groups;
    // Reads q, the quantization_config. Fails if this program does not support q.
    osh_status (*configure)(osh_ctx *cx, osh_source *s, const cJSON *q);
    // Is called before the modules are searched. Sets *state to data that only this row uses.
    osh_status (*begin)(osh_ctx *cx, void **state, const osh_source *s);
    // Frees the part of `state` that is needed only to find modules.
    void (*found)(osh_ctx *cx, void **state);
    // Frees `state`, which is not NULL.
    void (*close)(osh_ctx *cx, void *state);
    /* True if tensor e belongs to a quantized module. Sets *n: the first *n bytes of the tensor's
     * name are the name of the module. A module must be found even if some of its tensors are
     * missing, because the missing tensors are reported as an error. So the function must return
     * true for every kind of tensor that only quantized modules have. */
    bool (*claims)(const osh_source *s, const osh_entry *e, size_t *n);
    // Finds and checks the stored tensors of module q, for which `claims` returned true.
    osh_status (*find)(osh_ctx *cx, osh_source_module *q);
    osh_status (*make_rows)(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                            int64_t n);
    /* Returns the bytes that the scratch of make_rows needs, with the allocator's overhead. */
    size_t (*bytes)(const osh_source_module *q);
} osh_source_type;

struct osh_source_module {
    char *name; // own: name of the module, or of the tensor that contains all experts
    const osh_source_type *type; // row of sources.def that reads the module
    void **state; // view: data of the row of sources.def, set by its function `begin`
    /* Quantization scheme: view of the source's config, or of `own`. NULL: the row of sources.def
     * decodes without a scheme. */
    const osh_q_scheme *scheme;
    /* Storage format. NULL: the row of sources.def decodes without a format. */
    const osh_format *format;
    osh_q_scheme own;            // scheme of the module if no config group describes it
    /* wide: the weight is decoded in F32 and then rounded.
     * powers: scales are stored as exponents + 127. */
    bool wide, powers;
    osh_source *source;          // view
    /* The weight is [O, I]. If it contains several experts, their rows follow each other, and O is
     * the number of rows of all experts. */
    int64_t O, I;
    int64_t experts; // Number of experts if the dense tensor has 3 dimensions; 0: it is a matrix.
    bool bare;                   // true: the dense tensor is `name`; false: it is `name`.weight
    osh_dtype dtype;             // dtype of the dense weight
    /* The stored tensors that the module should have. */
    osh_format_tensor leaves[OSH_FORMAT_MAX_TENSORS];
    /* parts[i] is the stored tensor for leaves[i]. Its member e is NULL if decoding does not need
     * the tensor. */
    osh_ckpt_tensor parts[OSH_FORMAT_MAX_TENSORS];
    int n_leaves;
    osh_tensor *in_scale, *in_zero, *out_scale, *out_zero; // own
};

struct osh_source {
    osh_checkpoint *ck;      // own
    /* Quantization config. NULL: the source is dense, or it has no config groups. */
    osh_q_config *config;    // own
    const char *method;      // view: quant_method of the checkpoint's config
    const osh_source_type *type; // row of sources.def that quant_method selects
    void **states;           // own: for each row of sources.def, data that only the row uses
    osh_source_module *mods; // own [n]: the quantized modules
    int n;
    osh_map *by_name;        // own: maps the name of a quantized module to its index in `mods`
    /* own: LoRA adapter that is merged into the checkpoint; NULL: there is none. */
    osh_adapter *adapter;
    /* Own [n_padded]: tensors to which zeros are added; NULL: there are none. */
    struct osh_padding *padding;
    int64_t n_padded;
};

/* Adds a module to s->mods. Its name is the first n bytes of `name`. Sets *out to a view of the
 * module. */
osh_status osh_source_module_new(osh_ctx *cx, osh_source_module **out, osh_source *s,
                                 const char *name, size_t n);
/* Sets *t to the tensor <module><sep><leaf>, or to NULL if the checkpoint does not have it. */
osh_status osh_source_find_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *sep, const char *leaf);
/* True if the checkpoint has the tensor <module>.weight with the dtype dt. <module> is the first n
 * bytes of `name`. */
bool osh_source_weight_is(const osh_source *s, const char *name, size_t n, osh_dtype dt);
/* Finds the tensor <module>.<leaf>. Fails if the checkpoint does not have it. `why`: the config key
 * that needs the tensor, for the message. */
osh_status osh_source_need_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *leaf, const char *why);
/* Stores t in q->parts[leaf], as the stored tensor for q->leaves[leaf]. Fails if the two differ in
 * the number of elements. The caller checks dtype and shape. */
osh_status osh_source_bind_leaf(osh_ctx *cx, osh_source_module *q, int leaf,
                                const osh_ckpt_tensor *t);
/* Works like osh_source_bind_leaf, but also checks the dtype and the shape of t. */
osh_status osh_source_bind_checked(osh_ctx *cx, osh_source_module *q, int leaf,
                                   const osh_ckpt_tensor *t);
/* True if AutoRound wrote the checkpoint in the layout of AutoAWQ. */
bool osh_source_packs_awq(const osh_source *s);
/* Fails if t is not a matrix [rows, columns], or if its dtype is not in the list `dtypes`.
 * OSH_DTYPE_NONE ends the list. */
osh_status osh_source_check_matrix(osh_ctx *cx, const osh_ckpt_tensor *t, int64_t rows,
                                   int64_t columns, const osh_dtype *dtypes);
/* Reads columns [first, first + n) of the stored matrix q->parts[part]. Writes each column as a row
 * of `to` [n, rows of the matrix] (container_part.c). */
osh_status osh_source_read_columns(osh_ctx *cx, void *to, const osh_source_module *q, int part,
                                   int64_t first, int64_t n);
/* Reads rows [first, first + n) of the stored matrix q->parts[part]. If q->parts[part] is a vector,
 * reads its elements [first, first + n). */
osh_status osh_source_read_rows(osh_ctx *cx, void *to, const osh_source_module *q, int part,
                                int64_t first, int64_t n);
/* Fails if one of the n scales that were read from q->parts[part] is not finite. */
osh_status osh_source_check_finite(osh_ctx *cx, const osh_source_module *q, int part,
                                   const float *scales, int64_t n);
/* The next two functions are the members `make_rows` and `bytes` of osh_source_type, for modules
 * with a scheme and a format (source_rows.c). */
osh_status osh_source_rows_make(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n);
size_t osh_source_rows_bytes(const osh_source_module *q);

/* How rows are decoded in pieces, with one allocation of memory (source_module.c). */
typedef struct osh_source_pieces {
    int64_t rows; // largest number of rows of a piece
    size_t bytes; // number of bytes of the allocation that contains the arrays in `room`
    void *room;   // view: scratch, an argument of `open` and `piece`
    /* Sets the arrays in `room` to parts of `block`, the allocation. Also reads the data that are
     * needed for all pieces, such as tables. */
    osh_status (*open)(osh_ctx *cx, void *room, const osh_source_module *q, char *block);
    /* Decodes rows [first, first + n), at most one piece, to `to`. */
    osh_status (*piece)(osh_ctx *cx, char *to, void *room, const osh_source_module *q,
                        int64_t first, int64_t n);
} osh_source_pieces;
/* Decodes rows [first, first + n) of module q to `to`, piece by piece. Checks for an interrupt
 * before each piece. */
osh_status osh_source_decode(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                             int64_t n, const osh_source_pieces *p);
/* Returns the number of bytes that osh_source_decode allocates, including the buffer of a direct
 * read (O_DIRECT). block_bytes: osh_source_pieces.bytes. */
size_t osh_source_decode_bytes(size_t block_bytes);
/* Returns the part of `block` that begins at offset *at and has n_bytes bytes. Then adds n_bytes
 * to *at. If `block` is NULL, returns NULL and only adds n_bytes, so that the caller can compute
 * the size of the block. */
void *osh_source_slice(char *block, size_t *at, size_t n_bytes);
#endif
