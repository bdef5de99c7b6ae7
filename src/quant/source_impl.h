/* source_impl.h - the modules of a quantized source, and the ways to store them (sources.def).
 * Internal. */
#ifndef OSH_QUANT_SOURCE_IMPL_H
#define OSH_QUANT_SOURCE_IMPL_H
#include "quant/source.h"

typedef struct osh_source_module osh_source_module;

/* A way to store weights. A row with groups is used alone, if the config has its method. All other
 * rows are used together, whichever of their methods the config has. Hooks may be NULL, except the
 * last four. */
typedef struct osh_source_type {
    const char *methods[4]; // quant_method in config.json
    const char *tails[14];  // at most 13, then NULL: ends of the names of hidden tensors
    // configure sets the source's config; its groups say how modules are quantized
    bool groups;
    // q: quantization_config, which it may refuse
    osh_status (*configure)(osh_ctx *cx, osh_source *s, const cJSON *q);
    // called before modules are found
    osh_status (*begin)(osh_ctx *cx, void **state, const osh_source *s);
    // frees data that only finding needs
    void (*found)(osh_ctx *cx, void **state);
    void (*close)(osh_ctx *cx, void *state);                             // state is not NULL
    /* True if the tensor belongs to a module, whose name is its first n bytes. A row must claim
     * every tensor that only a quantized module has, so that a module is found and refused if its
     * other tensors are missing. */
    bool (*claims)(const osh_source *s, const osh_st_entry *e, size_t *n);
    // finds and checks the tensors of a claimed module
    osh_status (*find)(osh_ctx *cx, osh_source_module *q);
    osh_status (*make_rows)(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                            int64_t n);
    size_t (*bytes)(const osh_source_module *q); // bytes (gross) that make_rows takes
} osh_source_type;

struct osh_source_module {
    char *name;                  // own: name of the module, or of the tensor of all experts
    const osh_source_type *type; // row of the table
    void **state;                // view: state of the row, in the source
    const osh_q_scheme *scheme;  // view: in config, or own below; NULL: the row decodes by itself
    const osh_format *format;    // NULL: the row decodes by itself
    osh_q_scheme own;            // scheme of codes that no config group describes
    bool wide, powers;           // decoded in F32, then rounded; scales are exponents + 127
    osh_source *source;          // view
    int64_t O, I;                // O is the sum over experts, whose rows are contiguous
    int64_t experts;             // number of experts of a 3-dimensional tensor; 0: a matrix
    bool bare;                   // the tensor has the module's name, without .weight
    osh_dtype dtype;             // dtype of the dense weight
    osh_format_tensor leaves[OSH_FORMAT_MAX_TENSORS]; // stored tensors
    osh_ckpt_tensor parts[OSH_FORMAT_MAX_TENSORS];    // e NULL: not needed for the weight
    int n_leaves;
    osh_tensor *in_scale, *in_zero, *out_scale, *out_zero; // own
};

struct osh_source {
    osh_checkpoint *ck;      // own
    osh_q_config *config;    // own; NULL: dense, or a method without groups
    const char *method;      // view of the checkpoint's config: its quant_method
    const osh_source_type *type; // the row that has the method
    void **states;           // own: one per row
    osh_source_module *mods; // own
    int n;
    osh_map *by_name;        // own: module -> mods
};

/* source_module.c: adds a module to s->mods. Its name is the first n bytes of name. */
osh_status osh_source_module_new(osh_ctx *cx, osh_source_module **out, osh_source *s,
                                 const char *name, size_t n);
/* Finds the tensor <module><sep><leaf>; *t is NULL if there is none. */
osh_status osh_source_find_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *sep, const char *leaf);
/* Finds the tensor <module>.<leaf>. Fails if it is missing; why says what needs it. */
osh_status osh_source_need_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q,
                                const char *leaf, const char *why);
/* Uses a stored tensor as a leaf of the module. Fails if it has another number of elements. The
 * caller checks dtype and shape. */
osh_status osh_source_bind_leaf(osh_ctx *cx, osh_source_module *q, int leaf,
                                const osh_ckpt_tensor *t);
/* Uses a stored tensor as a leaf, and checks its dtype and its shape. */
osh_status osh_source_bind_checked(osh_ctx *cx, osh_source_module *q, int leaf,
                                   const osh_ckpt_tensor *t);
/* source_rows.c: make_rows and bytes of modules with a scheme and a format. */
osh_status osh_source_rows_make(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n);
size_t osh_source_rows_bytes(const osh_source_module *q);
#endif
