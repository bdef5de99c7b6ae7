/* source_impl.h - modules of a quantized source, and the ways to store them (sources.def). Internal. */
#ifndef OSH_QUANT_SOURCE_IMPL_H
#define OSH_QUANT_SOURCE_IMPL_H
#include "quant/source.h"

typedef struct osh_source_module osh_source_module;

/* A way to store weights. A row with groups is asked alone, where the config has its method; all others are asked of
 * each tensor, whichever of their methods the config has. Hooks may be NULL, but for the last four. */
typedef struct osh_source_type {
    const char *methods[4]; // quant_method in config.json
    const char *tails[14];  // 13 at most, then NULL: behind a module in the names of tensors that are not shown
    bool groups;            // configure sets the source's config, whose groups say which modules are quantized and how
    osh_status (*configure)(osh_ctx *cx, osh_source *s, const cJSON *q); // q: quantization_config; refuses it too
    osh_status (*begin)(osh_ctx *cx, void **state, const osh_source *s); // before modules are found
    void (*found)(osh_ctx *cx, void **state);                            // all are: frees what only finding takes
    void (*close)(osh_ctx *cx, void *state);                             // not NULL
    /* True if the tensor is one of those of a module, whose name is its first n bytes. Claim every tensor that only a
     * quantized module has: a module whose other tensors are missing is then found, and refused. */
    bool (*claims)(const osh_source *s, const osh_st_entry *e, size_t *n);
    osh_status (*find)(osh_ctx *cx, osh_source_module *q); // finds and checks the tensors of a claimed module
    osh_status (*make_rows)(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first, int64_t n);
    size_t (*bytes)(const osh_source_module *q); // memory (gross) that make_rows takes
} osh_source_type;

struct osh_source_module {
    char *name;                  // own: of the module; of experts in one tensor the tensor's
    const osh_source_type *type; // its row
    void **state;                // view: of the row, in the source
    const osh_q_scheme *scheme;  // view: of the config, or own below; NULL: the row decodes by itself
    const osh_format *format;    // NULL: the same
    osh_q_scheme own;            // of codes that no config group describes
    bool wide, powers;           // decoded in F32 and then rounded; the scales are exponents + 127 of powers of two
    osh_source *source;          // view
    int64_t O, I;                // of all experts, one behind the other
    int64_t experts;             // of a tensor of three dimensions; 0: a matrix
    bool bare;                   // the tensor has the module's name, without .weight
    osh_dtype dtype;             // of the dense weight
    osh_format_tensor leaves[OSH_FORMAT_MAX_TENSORS]; // as they are stored
    osh_ckpt_tensor parts[OSH_FORMAT_MAX_TENSORS];    // e NULL: not needed for the weight
    int n_leaves;
    osh_tensor *in_scale, *in_zero, *out_scale, *out_zero; // own
};

struct osh_source {
    osh_checkpoint *ck;      // own
    osh_q_config *config;    // own; NULL: dense, or of a method without groups
    const char *method;      // view of the checkpoint's config: its quant_method
    const osh_source_type *type; // the row that has the method
    void **states;           // own: one of each row
    osh_source_module *mods; // own
    int n;
    osh_map *by_name;        // own: module -> mods
};

/* source_module.c: the next of s->mods, with the first n bytes of name */
osh_status osh_source_module_new(osh_ctx *cx, osh_source_module **out, osh_source *s, const char *name, size_t n);
/* *t: <module><sep><leaf>; NULL: there is none */
osh_status osh_source_find_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q, const char *sep,
                                const char *leaf);
/* The same; a tensor that is missing is an error that names it. why: what wants it. */
osh_status osh_source_need_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q, const char *leaf,
                                const char *why);
/* A stored tensor takes the place of a leaf. It has as many elements; the caller checks its dtype and its shape. */
osh_status osh_source_bind_leaf(osh_ctx *cx, osh_source_module *q, int leaf, const osh_ckpt_tensor *t);
/* The same of a tensor that must have dtype and shape of the leaf. */
osh_status osh_source_bind_checked(osh_ctx *cx, osh_source_module *q, int leaf, const osh_ckpt_tensor *t);
/* source_rows.c: make_rows and bytes of modules with a scheme and a format */
osh_status osh_source_rows_make(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first, int64_t n);
size_t osh_source_rows_bytes(const osh_source_module *q);
#endif
