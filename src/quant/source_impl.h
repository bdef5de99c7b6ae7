/* source_impl.h - modules of a quantized source, between the files that find them and that decode them. Internal. */
#ifndef OSH_QUANT_SOURCE_IMPL_H
#define OSH_QUANT_SOURCE_IMPL_H
#include <pthread.h>

#include "quant/source.h"

typedef struct osh_source_module {
    char *name;                 // own: of the module; of experts in one tensor the tensor's
    const osh_q_scheme *scheme; // view: of the config, or own below; NULL: experts in MXFP4
    const osh_format *format;   // NULL: experts in MXFP4
    osh_q_scheme own;           // of codes that no config group describes
    osh_source *source;         // view
    int64_t O, I;               // of one expert in MXFP4; else of all of them, one behind the other
    int64_t experts;            // of a tensor of three dimensions; 0: a matrix
    bool bare;                  // the tensor has the module's name, without .weight
    osh_dtype dtype;            // of the dense weight
    osh_format_tensor leaves[OSH_FORMAT_MAX_TENSORS]; // as they are stored
    osh_ckpt_tensor parts[OSH_FORMAT_MAX_TENSORS];    // e NULL: not needed for the weight
    int n_leaves;
    osh_tensor *in_scale, *in_zero, *out_scale, *out_zero; // own
} osh_source_module;

struct osh_source {
    osh_checkpoint *ck;   // own
    osh_q_config *config; // own; NULL: dense, or not of compressed-tensors
    const char *method;   // view of the checkpoint's config: its quant_method
    int64_t block[2];     // weight_block_size of FP8; 0: none
    osh_source_module *mods; // own
    int n;
    osh_map *by_name;     // own: module -> mods
    pthread_mutex_t lock; // of the expert that was read last
    const osh_source_module *last;
    int64_t last_expert;
    uint8_t *blocks;      // own: its blocks and, behind them, its scales
};

osh_status osh_source_find_modules(osh_ctx *cx, osh_source *s); // source_find.c
/* source_rows.c: an osh_ckpt_make of a module, and the memory (gross) that a call takes */
osh_status osh_source_make(osh_ctx *cx, void *to, void *user, const osh_st_entry *e, int64_t first, int64_t n);
size_t osh_source_module_bytes(const osh_source_module *q);
bool osh_source_is_powers(const osh_st_entry *scale); // exponents + 127 of powers of two
#endif
