/* adapter.h - merges a LoRA adapter of PEFT into a checkpoint: the changed weights become virtual
 * tensors, which are computed when they are read. */
#ifndef OSH_ADAPTER_H
#define OSH_ADAPTER_H
#include "io/checkpoint.h"

typedef struct osh_adapter osh_adapter;
/* Opens the directory of an adapter (adapter_config.json, adapter_model.safetensors) and checks its
 * config. Fails with OSH_E_UNSUPPORTED if the config sets a variant of LoRA, such as DoRA. */
osh_status osh_adapter_open(osh_ctx *cx, osh_adapter **out, const char *dir);
/* Frees the adapter. Accepts NULL. */
void osh_adapter_close(osh_ctx *cx, osh_adapter *a);
/* Replaces the weights that the adapter changes by virtual tensors. `a` and `ck` must live as long
 * as these tensors are read. */
osh_status osh_adapter_merge(osh_ctx *cx, osh_adapter *a, osh_checkpoint *ck);
/* Returns how many bytes of scratch any changed weight needs at most while it is read, with the
 * allocator's overhead. The result does not include the scratch for reading the unchanged
 * weight. */
size_t osh_adapter_scratch(const osh_adapter *a);
/* Returns the number of tensors that the adapter changes. */
int osh_adapter_n_weights(const osh_adapter *a);
#endif
