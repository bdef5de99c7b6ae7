/* rotate.c - implements SpinQuantModifier and QuIPModifier. SpinQuantModifier: Liu et al.,
 * "SpinQuant: LLM Quantization with Learned Rotations" (arXiv 2405.16406), as in
 * llmcompressor/modifiers/transform/spinquant/base.py, without learning. src/rewrite/rotations.c
 * decides which weights are rotated. */
#include "modifiers/rotate.h"

#include <string.h>
#include <strings.h>

#include "modifiers/recipe_quant.h"

static const struct {
    const char *name;
    unsigned bit;
} rotations[] = {{"R1", OSH_ROTATE_R1}, {"R2", OSH_ROTATE_R2}, {"R3", OSH_ROTATE_R3},
                 {"R4", OSH_ROTATE_R4}, {"v", OSH_ROTATE_V},   {"u", OSH_ROTATE_U}};
enum { N_ROTATIONS = sizeof rotations / sizeof *rotations };

osh_rotation_kind osh_rotate_kind(const osh_rotate *a)
{
    return !strcmp(a->type, "hadamard")          ? OSH_ROTATION_HADAMARD
           : !strcmp(a->type, "random-hadamard") ? OSH_ROTATION_RANDOM_HADAMARD
                                                 : OSH_ROTATION_RANDOM_MATRIX;
}

static const osh_field spinquant_fields[] = {
    {.name = "transform_type", .type = OSH_F_STR, .offset = offsetof(osh_rotate, type),
     .dflt = "hadamard", .values = "hadamard|random-hadamard|random-matrix",
     .doc = "kind of matrices"},
    {.name = "seed", .type = OSH_F_INT, .offset = offsetof(osh_rotate, seed), .dflt = "0", .min = 0,
     .max = 4294967295, .doc = "seed of random matrices"},
    {.name = "center_embeddings", .type = OSH_F_BOOL, .offset = offsetof(osh_rotate, centre),
     .dflt = "false",
     .doc = "subtracts the mean of each embedding, which changes the model's outputs"},
    {0},
};

/* Reads the names of rotations (one name, or a list) into a->which. `may`: OSH_ROTATE_* bits of the
 * rotations that the modifier supports. */
static osh_status rotations_read(osh_ctx *cx, osh_rotate *a, const osh_yaml *v, unsigned may,
                                 const char *what)
{
    osh_status rc = OSH_OK;
    a->which = 0;
    for (size_t i = 0; i < (v->kind == OSH_Y_SEQ ? v->n : 1); i++) {
        const osh_yaml *one = v->kind == OSH_Y_SEQ ? v->items[i] : v;
        unsigned bit = 0;
        for (int k = 0; k < N_ROTATIONS && one->text; k++)
            if (!strcasecmp(rotations[k].name, one->text)) bit = rotations[k].bit & may;
        if (!bit)
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: rotations: '%s': want some of %s", what, one->line,
                     one->column, one->text ? one->text : "",
                     may & OSH_ROTATE_R1 ? "R1, R2, R3, R4" : "v, u");
        a->which |= bit;
    }
done:
    return rc;
}

static osh_status block_read(osh_ctx *cx, osh_rotate *a, const osh_yaml *v, const char *what)
{
    osh_status rc = OSH_OK;
    if (v->kind == OSH_Y_NULL) goto done;
    if (v->kind != OSH_Y_INT || v->i < 1)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s:%d:%d: transform_block_size: '%s': want a whole number above 0, or null", what,
                 v->line, v->column, v->text ? v->text : "");
    a->block = v->i;
done:
    return rc;
}

/* Reads a key that SpinQuantModifier and QuIPModifier both have. Fails if its value is not
 * supported. */
static osh_status rotate_key(osh_ctx *cx, osh_rotate *a, const char *key, const osh_yaml *v,
                             bool *known, const char *what)
{
    osh_status rc = OSH_OK;
    *known = true;
    if (!strcmp(key, "transform_block_size")) {
        OSH_TRY(block_read(cx, a, v, what));
    // the value true is an error, because LLM Compressor does not support it either
    } else if (!strcmp(key, "randomize") || !strcmp(key, "learnable")) {
        if (v->kind != OSH_Y_BOOL || v->b)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s:%d:%d: %s: want false, the only value that LLM Compressor supports", what,
                     v->line, v->column, key);
    } else if (!strcmp(key, "precision")) {
        const char *text = v->text ? v->text : "";
        if (!strncmp(text, "torch.", 6)) text += 6;
        if (v->kind == OSH_Y_NULL) text = "float64";
        if (strcmp(text, "float64") && strcmp(text, "float32"))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s:%d:%d: precision: '%s': want float64 or float32",
                     what, v->line, v->column, text);
        // `precision` is the dtype of stored matrices; products are always computed in f64
        a->f32 = !strcmp(text, "float32");
    } else if (!strcmp(key, "mappings") || !strcmp(key, "norm_mappings") ||
               !strcmp(key, "transform_config")) {
        if (v->kind != OSH_Y_NULL)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s:%d:%d: %s: want null: the model's graph determines the rotations",
                     what, v->line, v->column, key);
    } else {
        *known = false;
    }
done:
    return rc;
}

static osh_status spinquant_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                                bool *known, const char *what)
{
    osh_rotate *a = m->args;
    *known = true;
    if (strcmp(key, "rotations")) return rotate_key(cx, a, key, v, known, what);
    return rotations_read(cx, a, v, OSH_ROTATE_R1 | OSH_ROTATE_R2 | OSH_ROTATE_R3 | OSH_ROTATE_R4,
                          what);
}

static osh_status spinquant_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    osh_rotate *a = m->args;
    if (!a->which) a->which = OSH_ROTATE_R1 | OSH_ROTATE_R2;
    if ((a->which & (OSH_ROTATE_R3 | OSH_ROTATE_R4)) && !strcmp(a->type, "random-matrix"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: %s by a random-matrix: vLLM divides by a square root and compressed-tensors "
                 "does not: want hadamard or random-hadamard",
                 m->type->name, a->which & OSH_ROTATE_R4 ? "R4" : "R3");
done:
    return rc;
}

static osh_status quip_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                           bool *known, const char *what)
{
    osh_rotate *a = m->args;
    *known = true;
    if (!strcmp(key, "rotations"))
        return rotations_read(cx, a, v, OSH_ROTATE_V | OSH_ROTATE_U, what);
    bool targets = !strcmp(key, "targets");
    if (!targets && strcmp(key, "ignore")) return rotate_key(cx, a, key, v, known, what);
    osh_strs *to = targets ? &a->targets : &a->ignore;
    osh_strs_deinit(cx, to); // the list in the recipe replaces the default list
    return osh_recipe_strs(cx, to, v, key, what);
}

static osh_status quip_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    osh_rotate *a = m->args;
    if (!a->which) a->which = OSH_ROTATE_V;
    if (!strcmp(a->type, "random-matrix"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: a random-matrix: vLLM divides by a square root and compressed-tensors does "
                 "not: want hadamard or random-hadamard",
                 m->type->name);
done:
    return rc;
}

static const osh_field quip_fields[] = {
    {.name = "transform_type", .type = OSH_F_STR, .offset = offsetof(osh_rotate, type),
     .dflt = "random-hadamard", .values = "hadamard|random-hadamard|random-matrix",
     .doc = "kind of matrices"},
    {.name = "seed", .type = OSH_F_INT, .offset = offsetof(osh_rotate, seed), .dflt = "0", .min = 0,
     .max = 4294967295, .doc = "seed of random matrices"},
    {.name = "targets", .type = OSH_F_STRS, .offset = offsetof(osh_rotate, targets),
     .dflt = "Linear", .doc = "Linears to rotate"},
    {.name = "ignore", .type = OSH_F_STRS, .offset = offsetof(osh_rotate, ignore),
     .dflt = "lm_head", .doc = "Linears to leave unrotated"},
    {0},
};

static const osh_rewriter rotation = {.alone = true};
const osh_rotate *osh_rotate_of(const osh_modifier *m)
{
    return m->type->rewriter == &rotation ? m->args : NULL;
}

const osh_modifier_type osh_modifier_spinquant = {
    .name = "SpinQuantModifier", .fields = spinquant_fields, .bytes = sizeof(osh_rotate),
    .key = spinquant_key, .keys = "rotations, transform_block_size, precision",
    .resolve = spinquant_resolve, .rewriter = &rotation,
};
/* Tseng et al., "QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice
 * Codebooks" (arXiv 2402.04396), as in llmcompressor/modifiers/transform/quip/base.py. LLM
 * Compressor uses only the matrices of QuIP#, not the codebooks. */
const osh_modifier_type osh_modifier_quip = {
    .name = "QuIPModifier", .fields = quip_fields, .bytes = sizeof(osh_rotate), .key = quip_key,
    .keys = "rotations, transform_block_size, precision", .resolve = quip_resolve,
    .rewriter = &rotation,
};
