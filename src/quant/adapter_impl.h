/* adapter_impl.h - declares osh_lora, a weight that an adapter changes. This header is only for
 * src/quant. */
#ifndef OSH_ADAPTER_IMPL_H
#define OSH_ADAPTER_IMPL_H
#include "quant/adapter.h"

typedef struct osh_lora { // one weight that the adapter changes, [R, C]
    char *name;           // own: name of the tensor
    const osh_adapter *adapter; // view
    osh_ckpt_tensor base; // the weight in the checkpoint, before the change
    /* Computes rows of the unchanged weight if it is virtual; NULL: it is stored. */
    osh_ckpt_make make;
    void *user;           // argument of `make`
    /* Views: lora_A [r, I] and lora_B [O, r] with rank r. NULL: the weight has no update. */
    const osh_entry *a, *b;
    /* view: tensor of the adapter that replaces the weight; NULL: there is none. */
    const osh_entry *whole;
    bool embedding;       // true: a and b are lora_embedding_A [r, V] and lora_embedding_B [D, r]
    bool turned; // true: the weight is [I, O], as in an embedding or a Conv1D; false: [O, I]
    float scaling;
} osh_lora;

struct osh_adapter {
    char *dir;              // own
    cJSON *config;          // own
    char *path;             // own: path of adapter_config.json
    osh_container *st;      // own
    osh_lora *weights;      // own [n]: the changed weights
    int n;
    osh_map *by_name;       // own: maps the name of a changed weight to its index in `weights`
    osh_checkpoint *ck;     // view; set by osh_adapter_merge
};

/* Computes rows of a changed weight; `user` is its osh_lora. This function has the type
 * osh_ckpt_make. */
osh_status osh_lora_rows(osh_ctx *cx, void *to, void *user, const osh_entry *e, int64_t first,
                         int64_t n);
size_t osh_lora_bytes(const osh_lora *w); // returns the number of bytes of scratch of osh_lora_rows
#endif
