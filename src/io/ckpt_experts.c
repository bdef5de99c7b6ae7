/* ckpt_experts.c - splits tensors with all experts of a layer into tensors of single experts, with
 * the names by which loaders find the experts of a quantized model (E experts, F intermediate size,
 * D hidden size).
 *
 *   experts.gate_up_proj [E, 2F, D]    rows of gate, then of up   experts.3.gate_proj.weight [F, D]
 *   experts.down_proj    [E, D, F]                                experts.3.up_proj.weight   [F, D]
 *   or both transposed:  [E, D, 2F], [E, F, D]                    experts.3.down_proj.weight [D, F]
 *
 * The shapes of the two tensors show which layout they have. The scales of FP8 experts have the
 * layout of their weights, and names that end in _scale_inv or _scale. These scales have one number
 * for each block, or one number for each expert ([E], [E, 1, 1]), which is then the scale of both
 * gate and up. Scales whose names end in _scale may also have one number for each output, in either
 * layout ([E, 1, 2F] and [E, D, 1] in Llama 4's release by FBGEMM). If the matrix of an expert is
 * contiguous in the file, its entry is a range of the file. If it is transposed, its elements are
 * gathered from the file when it is read (st_part.c). The tensor with all experts is removed from
 * the checkpoint's list of tensors. */
#include <string.h>

#include "base/name.h"
#include "io/checkpoint.h"

/* Families whose quantized models have experts with these names in transformers and vLLM. For Qwen,
 * GLM and DeepSeek conversion_mapping.py of transformers defines the names; for Llama 4
 * quantizers/base.py splits the experts. For the mixture-of-experts models of Qwen3-VL only vLLM
 * uses the names. */
static const char *const families[] = {
    "deepseek_v2", "deepseek_v3",      "glm4_moe",  "llama4",     "llama4_text",       "qwen2_moe",
    "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next", "qwen3_vl_moe_text",
};

typedef struct stack { // the two tensors that contain all experts of a layer
    const osh_entry *up, *down; // views; up: the tensor of gate and up; down: the tensor of down
    int shard_up, shard_down;
    int64_t n, F, D;
    bool transposed, single; // transposed: true if the layout is [E, D, 2F], [E, F, D]; single:
                             // true if the tensors are scales with one number for each expert
    bool by_output;          // true if the tensors are scales with one number for each output
    const struct stack_kind *kind;
} stack;

typedef struct parting {
    osh_checkpoint *ck;       // view
    osh_ckpt_tensor *tensors; // own: the new list of tensors of the checkpoint
    int64_t n;
    osh_entry *parts; // own, names own
    int64_t n_parts;
} parting;

static const struct stack_kind {
    const char *up, *down, *leaf; // up, down: ends of the names of the two tensors; leaf: end of
                                  // the names of the tensors of single experts
} kinds[] = {
    {".experts.gate_up_proj", ".experts.down_proj", "weight"},
    {".experts.gate_up_proj_scale_inv", ".experts.down_proj_scale_inv", "weight_scale_inv"},
    {".experts.gate_up_proj_scale", ".experts.down_proj_scale", "weight_scale"},
};

static bool family_is_known(const osh_hf_config *c)
{
    const cJSON *type =
        cJSON_IsObject(c->model) ? cJSON_GetObjectItemCaseSensitive(c->model, "model_type") : NULL;
    for (size_t i = 0; cJSON_IsString(type) && i < sizeof families / sizeof *families; i++)
        if (!strcmp(type->valuestring, families[i])) return true;
    return false;
}

/* Sets *other to the tensor whose name is `name` with its suffix `from` replaced by the suffix
 * `to`, or to NULL if the checkpoint has no such tensor. */
static osh_status stack_find_other(osh_ctx *cx, const osh_ckpt_tensor **other,
                                   const osh_checkpoint *ck, const char *name, const char *from,
                                   const char *to)
{
    char *text = osh_sprintf(cx, "%.*s%s", (int)(strlen(name) - strlen(from)), name, to); // own
    if (!text) return OSH_E_NOMEM;
    *other = osh_checkpoint_find(ck, text);
    osh_free(cx, text);
    return OSH_OK;
}

static bool stack_read(stack *s, const struct stack_kind *kind, const osh_ckpt_tensor *up,
                       const osh_ckpt_tensor *down)
{
    const int64_t *a = up->e->shape, *b = down->e->shape;
    int64_t n[2] = {0, 0};
    osh_shape_numel(&n[0], up->e->ndim, a), osh_shape_numel(&n[1], down->e->ndim, b);
    *s = (stack){.up = up->e, .down = down->e, .shard_up = up->shard, .shard_down = down->shard,
                 .kind = kind};
    s->single = kind != kinds && up->e->ndim && down->e->ndim && n[0] == a[0] && n[1] == b[0] &&
                n[0] == n[1];
    if (s->single) {
        s->n = n[0];
        return s->n > 0;
    }
    if (up->e->ndim != 3 || down->e->ndim != 3 || a[0] != b[0] || a[0] < 1) return false;
    s->n = a[0];
    s->by_output = kind == &kinds[2] && (a[1] == 1 || a[2] == 1) && (b[1] == 1 || b[2] == 1);
    if (s->by_output) {
        s->F = a[1] * a[2] / 2, s->D = b[1] * b[2];
        return s->D > 0 && s->F > 0 && 2 * s->F == a[1] * a[2];
    }
    s->transposed = !(a[1] == 2 * b[2] && a[2] == b[1]);
    s->F = b[s->transposed ? 1 : 2], s->D = b[s->transposed ? 2 : 1];
    return s->F > 0 && s->D > 0 && (!s->transposed || (a[1] == s->D && a[2] == 2 * s->F));
}

/* If t is one of the two tensors with all experts of a layer, sets *s to both. If not, sets s->up
 * to NULL. */
static osh_status stack_find(osh_ctx *cx, stack *s, const osh_checkpoint *ck,
                             const osh_ckpt_tensor *t)
{
    osh_status rc = OSH_OK;
    size_t n = strlen(t->e->name);
    const osh_ckpt_tensor *other = NULL;
    *s = (stack){0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct stack_kind *k = &kinds[i];
        bool up = osh_ends_with(t->e->name, n, k->up);
        if (!up && !osh_ends_with(t->e->name, n, k->down)) continue;
        OSH_TRY(stack_find_other(cx, &other, ck, t->e->name, up ? k->up : k->down,
                                 up ? k->down : k->up));
        if (!other || stack_read(s, k, up ? t : other, up ? other : t)) goto done;
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: %s and %s are no experts of one size: want [E, 2F, D] and [E, D, F], or both "
                 "transposed",
                 ck->dir, t->e->name, other->e->name);
    }
done:
    if (rc || !other) *s = (stack){0};
    return rc;
}

/* Appends a tensor of expert e to the list. `leaf` is the last part of its module's name. The first
 * row of the tensor is row `first` of the expert's matrix, or column `first` if the matrix is
 * transposed. */
static osh_status expert_add_part(osh_ctx *cx, parting *p, const stack *s, int64_t e,
                                  const char *leaf, int64_t first)
{
    osh_status rc = OSH_OK;
    bool down = !strcmp(leaf, "down_proj");
    const char *tail = down ? s->kind->down : s->kind->up;
    const osh_entry *of = down ? s->down : s->up;
    int64_t size = (int64_t)osh_dtype_bytes(of->dtype),
            width = s->single ? size : of->shape[2] * size;
    int64_t rows = down ? s->D : s->F, columns = s->by_output ? 1 : down ? s->F : s->D;
    int64_t at = of->begin + e * (s->single ? 1 : of->shape[1]) * width;
    size_t stem = strlen(of->name) - strlen(tail);
    osh_entry *part = &p->parts[p->n_parts];
    *part = (osh_entry){.dtype = of->dtype, .ndim = 2, .shape = {rows, columns}};
    if (s->single)
        part->ndim = 1, part->shape[0] = 1, part->begin = at, part->end = at + size;
    else if (s->by_output)
        part->begin = at + first * size, part->end = part->begin + rows * size;
    else if (s->transposed)
        part->at = at + first * size, part->row = size, part->column = width,
        part->end = rows * columns * size;
    else
        part->begin = at + first * width, part->end = part->begin + rows * width;
    part->name = osh_sprintf(cx, "%.*s.experts.%lld.%s.%s", (int)stem, of->name, (long long)e, leaf,
                             s->kind->leaf);
    if (!part->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a tensor");
    // n_parts is increased now, so that the caller frees the name if a later step fails
    p->n_parts++;
    p->tensors[p->n++] = (osh_ckpt_tensor){part, down ? s->shard_down : s->shard_up};
done:
    return rc;
}

static osh_status experts_part_all(osh_ctx *cx, parting *p)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = p->ck;
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_ckpt_tensor *t = &ck->tensors[i];
        stack s;
        OSH_TRY(stack_find(cx, &s, ck, t));
        if (!s.up) p->tensors[p->n++] = *t;
        for (int64_t e = 0; s.up && e < s.n; e++) {
            if (t->e == s.down) {
                OSH_TRY(expert_add_part(cx, p, &s, e, "down_proj", 0));
                continue;
            }
            OSH_TRY(expert_add_part(cx, p, &s, e, "gate_proj", 0));
            OSH_TRY(expert_add_part(cx, p, &s, e, "up_proj", s.F));
        }
    }
done:
    return rc;
}

static osh_status experts_count_parts(osh_ctx *cx, int64_t *n, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    *n = 0;
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        stack s;
        OSH_TRY(stack_find(cx, &s, ck, &ck->tensors[i]));
        if (s.up) *n += s.n * (ck->tensors[i].e == s.up ? 2 : 1);
    }
done:
    return rc;
}

/* Makes a map from the name of each tensor to its index in the new list. The caller owns *out. */
static osh_status experts_name_all(osh_ctx *cx, osh_map **out, const parting *p)
{
    osh_status rc = OSH_OK;
    osh_map *m = NULL; // own
    OSH_TRY(osh_map_new_views(cx, &m, (size_t)p->n));
    for (int64_t i = 0; i < p->n; i++) {
        const char *name = p->tensors[i].e->name;
        if (osh_map_get(m, name, strlen(name), &(int64_t){0}))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is there by itself and in one tensor with others",
                     p->ck->dir, name);
        OSH_TRY(osh_map_put(cx, m, name, strlen(name), i));
    }
    *out = m, m = NULL; // give
done:
    osh_map_free(cx, m);
    return rc;
}

static void experts_free_parts(osh_ctx *cx, osh_entry *parts, int64_t n)
{
    for (int64_t i = 0; i < n; i++) osh_free(cx, parts[i].name);
    osh_free(cx, parts);
}

osh_status osh_checkpoint_part_experts(osh_ctx *cx, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    parting p = {.ck = ck};
    osh_map *names = NULL; // own
    int64_t n;
    if (!family_is_known(ck->config)) goto done;
    OSH_TRY(experts_count_parts(cx, &n, ck));
    if (!n) goto done;
    OSH_NEW(cx, p.parts, n);
    OSH_NEW(cx, p.tensors, ck->n_tensors + n);
    OSH_TRY(experts_part_all(cx, &p));
    OSH_TRY(experts_name_all(cx, &names, &p));
    osh_map_free(cx, ck->by_name);
    osh_free(cx, ck->tensors);
    ck->by_name = names, ck->tensors = p.tensors, ck->n_tensors = p.n; // give
    ck->parts = p.parts, ck->n_parts = p.n_parts;
    return OSH_OK;
done:
    experts_free_parts(cx, p.parts, p.n_parts);
    osh_free(cx, p.tensors);
    return rc;
}

void osh_checkpoint_free_parts(osh_ctx *cx, osh_checkpoint *ck)
{
    experts_free_parts(cx, ck->parts, ck->n_parts);
    ck->parts = NULL, ck->n_parts = 0;
}
