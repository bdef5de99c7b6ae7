/* source_impl.h - the modules of a quantized source, and the table of ways to store them
 * (sources.def). Only for src/quant. */
#ifndef OSH_QUANT_SOURCE_IMPL_H
#define OSH_QUANT_SOURCE_IMPL_H
#include "quant/source.h"

typedef struct osh_source_module osh_source_module;

/* A way to store weights. If the config has the method of a row with groups, only this row is used.
 * If not, all other rows are used together, whatever the method. Hooks may be NULL, except the last
 * four. */
typedef struct osh_source_type {
    const char *methods[4]; // names of the method: quant_method in config.json
    const char *tails[14];  // at most 13, then NULL: ends of the names of hidden tensors
    // configure sets the source's config; its groups say how modules are quantized
    bool groups;
    // Reads q, the quantization_config; it may refuse it.
    osh_status (*configure)(osh_ctx *cx, osh_source *s, const cJSON *q);
    // Called before modules are searched.
    osh_status (*begin)(osh_ctx *cx, void **state, const osh_source *s);
    // Frees data that is needed only to find modules.
    void (*found)(osh_ctx *cx, void **state);
    void (*close)(osh_ctx *cx, void *state);                             // `state` is not NULL
    /* True if the tensor belongs to a module, whose name is the first *n bytes of the tensor's. A
     * row must claim every tensor that only a quantized module has, so that a module whose other
     * tensors are missing is found and refused. */
    bool (*claims)(const osh_source *s, const osh_st_entry *e, size_t *n);
    // Finds and checks the tensors of a claimed module.
    osh_status (*find)(osh_ctx *cx, osh_source_module *q);
    osh_status (*make_rows)(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                            int64_t n);
    size_t (*bytes)(const osh_source_module *q); // returns the gross bytes that make_rows needs
} osh_source_type;

struct osh_source_module {
    char *name;                  // own: name of the module, or of the tensor of all experts
    const osh_source_type *type; // row of the table of ways
    void **state;                // view: state of the row in the source
    const osh_q_scheme *scheme;  // view: in the config, or `own` below; NULL: the row itself
                                 // decodes
    const osh_format *format;    // NULL: the row itself decodes
    osh_q_scheme own;            // scheme of codes that no config group describes
    bool wide, powers;           // wide: decoded in F32, then rounded; powers: scales are exponents
                                 // + 127
    osh_source *source;          // view
    int64_t O, I;                // O is the sum over experts; the rows of an expert are contiguous
    int64_t experts;             // number of experts of a 3-dimensional tensor; 0: the weight is a
                                 // matrix
    bool bare;                   // the tensor has the module's name, without .weight
    osh_dtype dtype;             // dtype of the dense weight
    osh_format_tensor leaves[OSH_FORMAT_MAX_TENSORS]; // stored tensors
    osh_ckpt_tensor parts[OSH_FORMAT_MAX_TENSORS];    // e NULL: the weight does not need this
                                                      // tensor
    int n_leaves;
    osh_tensor *in_scale, *in_zero, *out_scale, *out_zero; // own
};

struct osh_source {
    osh_checkpoint *ck;      // own
    osh_q_config *config;    // own; NULL: the source is dense, or its method has no groups
    const char *method;      // view: quant_method of the checkpoint's config
    const osh_source_type *type; // the row that has the method
    void **states;           // own: state of each row
    osh_source_module *mods; // own: array of n modules
    int n;
    osh_map *by_name;        // own: name of a module -> index in `mods`
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
/* source_rows.c. The functions make_rows and bytes of modules with a scheme and a format. */
osh_status osh_source_rows_make(osh_ctx *cx, char *to, const osh_source_module *q, int64_t first,
                                int64_t n);
size_t osh_source_rows_bytes(const osh_source_module *q);
#endif
