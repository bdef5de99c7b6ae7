/* ckpt_experts.c - splits a tensor with all experts of a layer into one tensor for each expert. The
 * new tensors have the names by which loaders find the experts of a quantized model. Shapes: E
 * experts, F intermediate size, D hidden size.
 *
 *   experts.gate_up_proj [E, 2F, D]    rows of gate, then of up   experts.3.gate_proj.weight [F, D]
 *   experts.down_proj    [E, D, F]                                experts.3.up_proj.weight   [F, D]
 *   or both transposed:  [E, D, 2F], [E, F, D]                    experts.3.down_proj.weight [D, F]
 *
 * The shapes of the two tensors show which layout they have. If the matrix of an expert is
 * contiguous in the file, its entry is a range of the file. If the matrix is transposed, its
 * elements are gathered from the file when they are read (container_part.c). The tensors with all
 * experts are removed from the checkpoint's list of tensors.
 *
 * FP8 experts also have tensors of scales, whose names end in _scale_inv or _scale. These tensors
 * have the layout of the weights. They have one number for each block, each expert or each output.
 * With one number for each expert, the shape is [E] or [E, 1, 1], and the number is the scale of
 * both gate and up. Names of tensors with one number for each output end in _scale. Llama 4's
 * release by FBGEMM has such tensors, with the shapes [E, 1, 2F] and [E, D, 1].
 *
 * Granite calls the two tensors block_sparse_moe.input_linear.weight and output_linear.weight. In
 * gpt-oss the rows of gate and up alternate, and an expert has biases [2F] and [D]. vLLM's loader
 * of gpt-oss takes gate and up in one tensor, experts.3.gate_up_proj.weight [2F, D]. */
#include <string.h>

#include "base/name.h"
#include "io/checkpoint.h"

typedef struct stack { // the two tensors that contain all experts of a layer
    const osh_entry *up, *down; // views; up: the tensor of gate and up; down: the tensor of down
    int shard_up, shard_down;
    int64_t n, F, D;
    /* transposed: true if the shape of `up` is [E, D, 2F] and that of `down` is [E, F, D].
     * single: true if the tensors are scales with one number for each expert. */
    bool transposed, single;
    bool by_output;          // true if the tensors are scales with one number for each output
    const struct stack_kind *kind;
} stack;

typedef struct parting {
    osh_checkpoint *ck;       // view
    osh_ckpt_tensor *tensors; // own: the new list of tensors of the checkpoint
    int64_t n;
    osh_entry *parts;         // own, names own
    /* own [parts]: name in the file (a view) if the tensor is only renamed, else NULL. */
    const char **in_file;
    int64_t n_parts;
    bool split; // true: tensors with all experts are split; false: tensors are only renamed
} parting;

#define GRANITE ".block_sparse_moe."
static const struct stack_kind {
    /* up, down: ends of the names of both tensors. leaf: end of the names of the tensors of single
     * experts. */
    const char *up, *down, *leaf;
    bool scale;
    /* True for tensors that are split only if gate and up of an expert are one module
     * (osh_experts_are_joint). The part of each expert is contiguous and has one dimension less
     * than the tensor. For example, the biases [2F] of an expert are a part of [E, 2F]. */
    bool whole;
    const char *in; // module of the experts; replaces `up` or `down` in the names of single experts
} kinds[] = {
    {".experts.gate_up_proj", ".experts.down_proj", ".weight", false, false, ".experts"},
    {".experts.gate_up_proj_scale_inv", ".experts.down_proj_scale_inv", ".weight_scale_inv", true,
     false, ".experts"},
    {".experts.gate_up_proj_scale", ".experts.down_proj_scale", ".weight_scale", true, false,
     ".experts"},
    {".experts.gate_up_proj_bias", ".experts.down_proj_bias", ".bias", false, true, ".experts"},
    {".experts.gate_up_proj_blocks", ".experts.down_proj_blocks", "_blocks", false, true,
     ".experts"},
    {".experts.gate_up_proj_scales", ".experts.down_proj_scales", "_scales", false, true,
     ".experts"},
    {GRANITE "input_linear.weight", GRANITE "output_linear.weight", ".weight", false, false,
     GRANITE "experts"},
    {GRANITE "input_linear.weight_scale_inv", GRANITE "output_linear.weight_scale_inv",
     ".weight_scale_inv", true, false, GRANITE "experts"},
    {GRANITE "input_linear.weight_scale", GRANITE "output_linear.weight_scale", ".weight_scale",
     true, false, GRANITE "experts"},
};

/* This file reads three flags of a model type.
 * split_experts: transformers and vLLM find the codes of single experts by name.
 * split_for_vllm: only vLLM 0.32 finds the codes by name (RoutedExperts.load_weights); the experts
 * are split only if the output is for vLLM.
 * joint_experts: gate and up of an expert are one module. */

bool osh_experts_are_joint(const osh_checkpoint *ck)
{
    return osh_hf_config_has_flag(ck->config, "joint_experts");
}

/* Names for the codes of an expert whose gate and up are one module (joint_experts).
 * in_file: end of the name in the file, after the name of the expert.
 * module: name of the module that has the codes. */
static const struct code_name { const char *in_file, *module; } code_names[] = {
    {"w13_weight_packed", "gate_up_proj"}, {"w2_weight_packed", "down_proj"}};
enum { N_CODE_NAMES = sizeof code_names / sizeof *code_names };

/* Returns the row of code_names whose in_file is the last part of the tensor's name. Returns NULL
 * if there is none, or if the experts of the model are not joint. */
static const struct code_name *code_name_of(const osh_checkpoint *ck, const osh_entry *e)
{
    size_t n = osh_experts_are_joint(ck) ? osh_expert_prefix(e->name) : 0;
    const char *dot = n ? strrchr(e->name, '.') : NULL;
    for (int i = 0; dot && i < N_CODE_NAMES; i++)
        if (!strcmp(dot + 1, code_names[i].in_file)) return &code_names[i];
    return NULL;
}

char *osh_checkpoint_name_of(osh_ctx *cx, const osh_checkpoint *ck, const char *module,
                             const char *leaf)
{
    const char *dot = strrchr(module, '.');
    bool codes = osh_experts_are_joint(ck) && osh_expert_prefix(module) &&
                 !strcmp(leaf, "weight_packed");
    for (int i = 0; codes && dot && i < N_CODE_NAMES; i++)
        if (!strcmp(dot + 1, code_names[i].module))
            return osh_sprintf(cx, "%.*s.%s", (int)(dot - module), module, code_names[i].in_file);
    return osh_sprintf(cx, "%s.%s", module, leaf);
}

bool osh_checkpoint_is_part(const osh_checkpoint *ck, const osh_entry *e)
{
    return ck->parts && e >= ck->parts && e < ck->parts + ck->n_parts;
}

const char *osh_checkpoint_name_in_file(const osh_checkpoint *ck, int64_t tensor)
{
    const osh_entry *e = ck->tensors[tensor].e;
    bool part = osh_checkpoint_is_part(ck, e);
    return part && ck->in_file[e - ck->parts] ? ck->in_file[e - ck->parts] : e->name;
}

bool osh_checkpoint_parts_for_vllm(const osh_checkpoint *ck)
{
    return osh_hf_config_has_flag(ck->config, "split_for_vllm");
}

/* Replaces the suffix `from` of `name` by the suffix `to`. Sets *other to the tensor with this new
 * name, or to NULL if the checkpoint has no such tensor. */
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
    s->single = kind->scale && up->e->ndim && down->e->ndim && n[0] == a[0] && n[1] == b[0] &&
                n[0] == n[1];
    if (s->single) {
        s->n = n[0];
        return s->n > 0;
    }
    if (kind->whole) {
        s->n = a[0];
        return up->e->ndim == down->e->ndim && up->e->ndim > 1 && a[0] == b[0] && n[0] > 0 &&
               n[1] > 0;
    }
    if (up->e->ndim != 3 || down->e->ndim != 3 || a[0] != b[0] || a[0] < 1) return false;
    s->n = a[0];
    s->by_output = kind->scale && !strcmp(kind->leaf, ".weight_scale") &&
                   (a[1] == 1 || a[2] == 1) && (b[1] == 1 || b[2] == 1);
    if (s->by_output) {
        s->F = a[1] * a[2] / 2, s->D = b[1] * b[2];
        return s->D > 0 && s->F > 0 && 2 * s->F == a[1] * a[2];
    }
    s->transposed = !(a[1] == 2 * b[2] && a[2] == b[1]);
    s->F = b[s->transposed ? 1 : 2], s->D = b[s->transposed ? 2 : 1];
    return s->F > 0 && s->D > 0 && (!s->transposed || (a[1] == s->D && a[2] == 2 * s->F));
}

/* All experts of a layer can be in two tensors. If t is one of the two, sets *s to both tensors. If
 * not, sets s->up to NULL. */
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
        if (k->whole && !osh_experts_are_joint(ck)) continue;
        OSH_TRY(stack_find_other(cx, &other, ck, t->e->name, up ? k->up : k->down,
                                 up ? k->down : k->up));
        if (!other || stack_read(s, k, up ? t : other, up ? other : t)) goto done;
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: %s and %s are not experts of one size: want [E, 2F, D] and [E, D, F], or "
                 "both transposed",
                 ck->dir, t->e->name, other->e->name);
    }
done:
    if (rc || !other) *s = (stack){0};
    return rc;
}

/* Makes the entry of expert e. The tensor `of` contains all experts, and its first dimension is
 * their number. The entry has the other dimensions. */
static void part_take_whole(osh_entry *part, const osh_entry *of, int64_t e)
{
    int64_t bytes = (of->end - of->begin) / of->shape[0];
    *part = (osh_entry){.dtype = of->dtype,
                        .ndim = of->ndim - 1,
                        .begin = of->begin + e * bytes,
                        .end = of->begin + (e + 1) * bytes};
    for (int d = 1; d < of->ndim; d++) part->shape[d - 1] = of->shape[d];
}

/* Makes the entry of a matrix with the given shape. The matrix is a part of expert e in the tensor
 * `of`. It begins at row `first` of the expert's matrix, or at column `first` if the layout is
 * transposed. */
static void part_take_rows(osh_entry *part, const stack *s, const osh_entry *of, int64_t e,
                           const int64_t *shape, int64_t first)
{
    int64_t rows = shape[0], columns = shape[1];
    int64_t size = (int64_t)osh_dtype_bytes(of->dtype),
            width = s->single ? size : of->shape[2] * size;
    int64_t at = of->begin + e * (s->single ? 1 : of->shape[1]) * width;
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
}

/* Appends a tensor of expert e to p->tensors. `leaf` is the last part of the name of the tensor's
 * module. `first`: first row or column, as in part_take_rows. */
static osh_status expert_add_part(osh_ctx *cx, parting *p, const stack *s, int64_t e,
                                  const char *leaf, int64_t first)
{
    osh_status rc = OSH_OK;
    bool down = !strcmp(leaf, "down_proj"), both = !strcmp(leaf, "gate_up_proj");
    const char *tail = down ? s->kind->down : s->kind->up;
    const osh_entry *of = down ? s->down : s->up;
    const int64_t shape[] = {down ? s->D : both ? 2 * s->F : s->F,
                             s->by_output ? 1 : down ? s->F : s->D};
    size_t stem = strlen(of->name) - strlen(tail);
    osh_entry *part = &p->parts[p->n_parts];
    if (s->kind->whole) part_take_whole(part, of, e);
    else part_take_rows(part, s, of, e, shape, first);
    part->name = osh_sprintf(cx, "%.*s%s.%lld.%s%s", (int)stem, of->name, s->kind->in,
                             (long long)e, leaf, s->kind->leaf);
    if (!part->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a tensor");
    // n_parts counts the entry now, so that the caller frees its name if a later step fails
    p->n_parts++;
    p->tensors[p->n++] = (osh_ckpt_tensor){part, down ? s->shard_down : s->shard_up};
done:
    return rc;
}

/* Appends to p->tensors a tensor with the codes of an expert whose gate and up are one module. The
 * end of the tensor's name becomes gate_up_proj.weight_packed or down_proj.weight_packed. */
static osh_status expert_rename(osh_ctx *cx, parting *p, const osh_ckpt_tensor *t,
                                const struct code_name *c)
{
    osh_status rc = OSH_OK;
    osh_entry *part = &p->parts[p->n_parts];
    *part = *t->e;
    part->name = osh_sprintf(cx, "%.*s%s.weight_packed",
                             (int)(strlen(t->e->name) - strlen(c->in_file)), t->e->name, c->module);
    if (!part->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a tensor");
    p->in_file[p->n_parts++] = t->e->name;
    p->tensors[p->n++] = (osh_ckpt_tensor){part, t->shard};
done:
    return rc;
}

static osh_status experts_part_all(osh_ctx *cx, parting *p)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = p->ck;
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_ckpt_tensor *t = &ck->tensors[i];
        const struct code_name *c = code_name_of(ck, t->e);
        stack s = {0};
        if (p->split) OSH_TRY(stack_find(cx, &s, ck, t));
        if (c) OSH_TRY(expert_rename(cx, p, t, c));
        else if (!s.up) p->tensors[p->n++] = *t;
        for (int64_t e = 0; s.up && e < s.n; e++) {
            if (t->e == s.down) {
                OSH_TRY(expert_add_part(cx, p, &s, e, "down_proj", 0));
                continue;
            }
            if (osh_experts_are_joint(ck)) {
                OSH_TRY(expert_add_part(cx, p, &s, e, "gate_up_proj", 0));
                continue;
            }
            OSH_TRY(expert_add_part(cx, p, &s, e, "gate_proj", 0));
            OSH_TRY(expert_add_part(cx, p, &s, e, "up_proj", s.F));
        }
    }
done:
    return rc;
}

static osh_status experts_count_parts(osh_ctx *cx, int64_t *n, const parting *p)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = p->ck;
    *n = 0;
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        stack s = {0};
        if (p->split) OSH_TRY(stack_find(cx, &s, ck, &ck->tensors[i]));
        *n += code_name_of(ck, ck->tensors[i].e) != NULL;
        /* An upper bound: if gate and up are one module, their tensor needs only one entry for each
         * expert. */
        if (s.up) *n += s.n * (ck->tensors[i].e == s.up ? 2 : 1);
    }
done:
    return rc;
}

/* Makes a map from names to indices in the new list. The map has the name of each tensor. If a
 * tensor is renamed, the map also has its name in the file. The caller owns *out. */
static osh_status experts_name_all(osh_ctx *cx, osh_map **out, const parting *p)
{
    osh_status rc = OSH_OK;
    osh_map *m = NULL; // own
    OSH_TRY(osh_map_new_views(cx, &m, (size_t)(p->n + p->n_parts)));
    for (int64_t i = 0; i < p->n; i++) {
        const char *name = p->tensors[i].e->name;
        if (osh_map_get(m, name, strlen(name), &(int64_t){0}))
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: %s is stored twice: alone, and in one tensor with others", p->ck->dir,
                     name);
        OSH_TRY(osh_map_put(cx, m, name, strlen(name), i));
        const osh_entry *e = p->tensors[i].e;
        bool part = e >= p->parts && e < p->parts + p->n_parts;
        const char *in_file = part ? p->in_file[e - p->parts] : NULL;
        if (in_file) OSH_TRY(osh_map_put(cx, m, in_file, strlen(in_file), i));
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

static osh_status checkpoint_part(osh_ctx *cx, osh_checkpoint *ck, bool split)
{
    osh_status rc = OSH_OK;
    parting p = {.ck = ck, .split = split};
    osh_map *names = NULL; // own
    int64_t n;
    OSH_TRY(experts_count_parts(cx, &n, &p));
    if (!n) goto done;
    OSH_NEW(cx, p.parts, n);
    OSH_NEW(cx, p.in_file, n);
    OSH_NEW(cx, p.tensors, ck->n_tensors + n);
    OSH_TRY(experts_part_all(cx, &p));
    OSH_TRY(experts_name_all(cx, &names, &p));
    osh_map_free(cx, ck->by_name);
    osh_free(cx, ck->tensors);
    ck->by_name = names, ck->tensors = p.tensors, ck->n_tensors = p.n; // give
    ck->parts = p.parts, ck->n_parts = p.n_parts, ck->in_file = p.in_file;
    return OSH_OK;
done:
    experts_free_parts(cx, p.parts, p.n_parts);
    osh_free(cx, p.in_file);
    osh_free(cx, p.tensors);
    return rc;
}

osh_status osh_checkpoint_part_experts(osh_ctx *cx, osh_checkpoint *ck)
{
    bool split = osh_hf_config_has_flag(ck->config, "split_experts");
    return split || osh_experts_are_joint(ck) ? checkpoint_part(cx, ck, split) : OSH_OK;
}

osh_status osh_checkpoint_part_for_vllm(osh_ctx *cx, osh_checkpoint *ck)
{
    return osh_checkpoint_parts_for_vllm(ck) && !ck->n_parts ? checkpoint_part(cx, ck, true)
                                                              : OSH_OK;
}

void osh_checkpoint_free_parts(osh_ctx *cx, osh_checkpoint *ck)
{
    experts_free_parts(cx, ck->parts, ck->n_parts);
    osh_free(cx, ck->in_file);
    ck->parts = NULL, ck->n_parts = 0, ck->in_file = NULL;
}
