/* adapter_impl.h - the changed weights of an adapter. This header is only for src/quant. */
#ifndef OSH_ADAPTER_IMPL_H
#define OSH_ADAPTER_IMPL_H
#include "quant/adapter.h"

typedef struct osh_lora { // a changed weight of R rows and C columns
    char *name;           // own: name of the tensor
    const osh_adapter *adapter; // view
    osh_ckpt_tensor base; // the unchanged tensor
    osh_ckpt_make make;   // computes rows of the unchanged tensor; NULL: the tensor is stored
    void *user;           // argument of `make`
    const osh_entry *a, *b; // views: lora_A [r, I] and lora_B [O, r], r: rank; NULL: no update
    const osh_entry *whole; // view: tensor that replaces the unchanged one; NULL: none
    bool embedding;       // lora_embedding_A [r, R] and lora_embedding_B [C, r]
    bool turned;          // true: R = I and C = O, as in an embedding or a Conv1D
    float scaling;
} osh_lora;

struct osh_adapter {
    char *dir;              // own
    cJSON *config;          // own
    char *path;             // own: path of adapter_config.json
    osh_container *st;      // own
    osh_lora *weights;      // own, array of n
    int n;
    osh_map *by_name;       // own: maps the name of a tensor to its index in `weights`
    osh_checkpoint *ck;     // view; set by osh_adapter_merge
};

/* The osh_ckpt_make function of a changed weight; `user` is an osh_lora. */
osh_status osh_lora_rows(osh_ctx *cx, void *to, void *user, const osh_entry *e, int64_t first,
                         int64_t n);
size_t osh_lora_bytes(const osh_lora *w); // returns the bytes of scratch of osh_lora_rows
#endif
