/* ckpt_find.c - finds tensors of a checkpoint by name. */
#include <string.h>

#include "io/checkpoint.h"

const osh_ckpt_tensor *osh_checkpoint_find(const osh_checkpoint *ck, const char *name)
{
    int64_t i;
    return osh_map_get(ck->by_name, name, strlen(name), &i) ? &ck->tensors[i] : NULL;
}

bool osh_checkpoint_is_kept(const osh_checkpoint *ck, int64_t tensor)
{
    return ck->tensors[tensor].shard < 0 && ck->virtuals[-1 - ck->tensors[tensor].shard].kept;
}

const osh_ckpt_tensor *osh_checkpoint_find_copied(const osh_checkpoint *ck, const char *name)
{
    const osh_ckpt_tensor *t = osh_checkpoint_find(ck, name);
    if (!t || !osh_checkpoint_is_kept(ck, t - ck->tensors)) return t;
    int64_t stored = ck->virtuals[-1 - t->shard].stored;
    return stored < 0 ? NULL : &ck->tensors[stored];
}
