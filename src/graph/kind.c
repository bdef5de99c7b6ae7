/* kind.c - finds the kind of a weight of an architecture without a template.
 *
 * Routers, position tables and the class Conv1D of GPT-2 also have a 2-D `weight`, but no loader
 * reads codes for them. If the family of the model is unknown, a weight counts as a Linear only if
 * it has all of these:
 *
 *   - a name with the number of a decoder block, such as model.layers.3. or transformer.h.3. (MTP
 *     blocks, for multi-token prediction, are after the last decoder block and do not count)
 *   - a last part that only names of Linears have, such as q_proj, w1 or dense_4h_to_h (gate and
 *     x_proj are not such names)
 *   - no part that names another kind, such as router or vision_tower
 *   - no bias, or a bias with one element per row (c_attn [D, 3D] with bias [3D] is a Conv1D)
 *
 * A weight also counts as a Linear if the catalogue of a known family has it (catalogue.c). The
 * test data in tests/golden/families has the names and classes of modules in transformers. */
#include "graph/kind.h"

#include <stdio.h>
#include <string.h>

#include "graph/heads.h"

typedef struct part { // the text between two dots of a name
    const char *s;
    size_t n;
} part;

static bool part_is(part p, const char *word)
{
    return p.n == strlen(word) && !memcmp(p.s, word, p.n);
}

static bool part_is_one_of(part p, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (part_is(p, words[i])) return true;
    return false;
}
#define IS_ONE_OF(p, words) part_is_one_of(p, words, sizeof(words) / sizeof *(words))

static bool part_has(part p, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= p.n; i++)
        if (!memcmp(p.s + i, word, n)) return true;
    return false;
}

static bool part_ends(part p, const char *tail)
{
    size_t n = strlen(tail);
    return p.n >= n && !memcmp(p.s + p.n - n, tail, n);
}

/* A part of a name is the text up to the next dot. Returns the part that begins at s. end: end of
 * the name. */
static part part_at(const char *s, const char *end)
{
    const char *dot = memchr(s, '.', (size_t)(end - s));
    return (part){s, (size_t)((dot ? dot : end) - s)};
}

static part last_part(const char *name, size_t n)
{
    size_t at = n;
    while (at > 0 && name[at - 1] != '.') at--;
    return (part){name + at, n - at};
}

/* ---- blocks ---- */

/* Returns the number of the decoder block that the name contains, or -1 if it contains none. */
static int64_t name_block(const char *name, size_t n)
{
    static const char *const lists[] = {"layers", "layer", "h", "blocks", "block"};
    const char *end = name + n;
    bool listed = false;
    for (const char *s = name; s < end;) {
        part p = part_at(s, end);
        int64_t number = 0;
        size_t digits = 0;
        while (digits < p.n && p.s[digits] >= '0' && p.s[digits] <= '9' && number < 1000000)
            number = 10 * number + (p.s[digits++] - '0');
        if (listed && p.n && digits == p.n) return number;
        listed = IS_ONE_OF(p, lists);
        s += p.n + 1;
    }
    return -1;
}

static bool any_part(const char *name, size_t n, bool (*is)(part))
{
    const char *end = name + n;
    for (const char *s = name; s < end;) {
        part p = part_at(s, end);
        if (is(p)) return true;
        s += p.n + 1;
    }
    return false;
}

static bool part_is_tower(part p)
{
    return part_has(p, "vision") || part_has(p, "visual") || part_has(p, "image") ||
           part_has(p, "video") || part_has(p, "audio") || part_has(p, "speech");
}

static bool part_is_mtp(part p) { return part_is(p, "mtp"); }
static bool part_is_t5_mlp(part p) { return part_is(p, "DenseReluDense"); }

bool osh_in_decoder_block(const char *name)
{
    size_t n = strlen(name);
    return name_block(name, n) >= 0 && !any_part(name, n, part_is_tower);
}

bool osh_in_tower(const char *name)
{
    return any_part(name, strlen(name), part_is_tower);
}

/* ---- kinds ---- */

static bool part_is_head(part p) { return part_has(p, "head") || part_is(p, "embed_out"); }

static bool part_is_router(part p)
{
    return part_has(p, "router") || part_ends(p, "expert_gate") || part_ends(p, "experts_gate");
}
static bool part_is_gate(part p) { return part_is(p, "gate"); }

static bool part_is_norm(part p)
{
    return part_has(p, "norm") || (p.n >= 2 && !memcmp(p.s, "ln", 2));
}

static bool part_is_positions(part p)
{
    return part_is(p, "wpe") || part_has(p, "relative_attention_bias") ||
           (part_has(p, "emb") && part_has(p, "pos"));
}

static bool part_is_embedding(part p)
{
    static const char *const words[] = {"wte", "tokens_embed", "embeddings", "embedding",
                                        "embed_in"};
    return IS_ONE_OF(p, words) ||
           (part_has(p, "embed") && !part_is(p, "embed_out") && !part_has(p, "proj"));
}

static bool part_is_conv1d(part p)
{
    static const char *const words[] = {"c_attn", "c_proj", "c_fc", "q_attn"};
    return IS_ONE_OF(p, words);
}

/* Returns the number of elements of the module's bias, or -1 if the module has no bias. */
static int64_t module_bias(const osh_kinds *k, const char *name, size_t n)
{
    char bias[512];
    if (n + sizeof ".bias" > sizeof bias) return -1;
    snprintf(bias, sizeof bias, "%.*s.bias", (int)n, name);
    const osh_ckpt_tensor *t = osh_checkpoint_find(k->ck, bias);
    return t && t->e->ndim == 1 ? t->e->shape[0] : -1;
}

/* True if a name that ends with the part p is always the name of a Linear. Such a part ends in
 * "_proj", or it is in the list `words`. */
static bool part_is_linear(part p)
{
    static const char *const words[] = {"kv_a_proj_with_mqa",
                                        "in_proj_qkvz",
                                        "in_proj_qkv",
                                        "in_proj_ba",
                                        "in_proj_z",
                                        "in_proj_a",
                                        "in_proj_b",
                                        "query_key_value",
                                        "dense",
                                        "dense_h_to_4h",
                                        "dense_4h_to_h",
                                        "query",
                                        "key",
                                        "value",
                                        "fc1",
                                        "fc2",
                                        "fc_in",
                                        "fc_out",
                                        "w1",
                                        "w2",
                                        "w3",
                                        "Wqkv",
                                        "wqkv",
                                        "wq",
                                        "wk",
                                        "wv",
                                        "wo",
                                        "qkv",
                                        "input_linear",
                                        "output_linear",
                                        "q_lin",
                                        "k_lin",
                                        "v_lin",
                                        "out_lin",
                                        "lin1",
                                        "lin2"};
    return IS_ONE_OF(p, words) || part_ends(p, "_proj");
}

/* Returns the reason why transformers or vLLM does not use the module as a Linear, although its
 * name is like that of a Linear. Returns NULL if no reason is known. */
static const char *special_kind(const osh_kinds *k, const char *name, size_t n, part leaf)
{
    if (part_is(leaf, "x_proj") || part_is(leaf, "dt_proj"))
        return "a part of a state-space scan, which reads its weight";
    if (k->doubt) return k->doubt;
    if (any_part(name, n, part_is_t5_mlp)) return "an MLP of T5, whose class reads the weight";
    return NULL;
}

static bool is_after_blocks(const osh_kinds *k, const char *name, size_t n)
{
    int64_t block = name_block(name, n);
    return any_part(name, n, part_is_mtp) || (k->n_layers >= 0 && block >= k->n_layers);
}

bool osh_after_blocks(const osh_kinds *k, const char *name)
{
    return is_after_blocks(k, name, strlen(name));
}

static osh_kind kind_in_block(const osh_kinds *k, const char *name, size_t n, part leaf, bool head,
                              const char **why)
{
    int64_t block = name_block(name, n);
    *why = NULL;
    if (block < 0)
        *why = head ? "a head" : "outside the decoder blocks";
    else if (any_part(name, n, part_is_tower)) *why = "in a tower for images or sound";
    else if (is_after_blocks(k, name, n))
        *why = "in a block after the model's last block";
    else if (part_ends(leaf, "gate")) *why = "a gate";
    else if (!part_is_linear(leaf) && !part_is_conv1d(leaf))
        *why = "not a name that only Linears have";
    else *why = special_kind(k, name, n, leaf);
    return *why ? OSH_KIND_DOUBT : OSH_KIND_LINEAR;
}

osh_kind osh_kind_of(const osh_kinds *k, const char *name, size_t n, int64_t O, int64_t I,
                     const char **why)
{
    static const char transposed[] = "a Conv1D, stored transposed";
    part leaf = last_part(name, n);
    int64_t bias;
    if (osh_catalogue_has(k->ck->config, name, n)) return *why = NULL, OSH_KIND_LINEAR;
    if (part_is_norm(leaf)) return *why = "a norm", OSH_KIND_NORM;
    if (part_is_positions(leaf)) return *why = "a table of positions", OSH_KIND_POSITIONS;
    if (any_part(name, n, part_is_router)) return *why = "a router", OSH_KIND_ROUTER;
    // A gate is either a router or a Linear of an MLP. The weight of a router has only one row for
    // each expert, so it has fewer rows than columns.
    if (any_part(name, n, part_is_gate)) {
        if (O < I) return *why = "a router", OSH_KIND_ROUTER;
        return *why = "perhaps a router", OSH_KIND_DOUBT;
    }
    if (part_is_embedding(leaf)) return *why = "an embedding", OSH_KIND_EMBEDDING;
    if (part_is_conv1d(leaf) && osh_hf_config_has_conv1d(k->ck->config))
        return *why = transposed, OSH_KIND_CONV1D;
    bias = module_bias(k, name, n);
    if (bias >= 0 && bias != O) {
        if (bias == I) return *why = transposed, OSH_KIND_CONV1D;
        return *why = "a bias with another length than the weight has rows", OSH_KIND_DOUBT;
    }
    if (part_is_conv1d(leaf) && (bias < 0 || O == I))
        return *why = "perhaps a Conv1D, stored transposed", OSH_KIND_DOUBT;
    return kind_in_block(
        k, name, n, leaf,
        part_is_head(leaf) || osh_head_has_shape(k->ck->config, name, n, O, I), why);
}

const char *osh_kind_lasting_name(const char *name, size_t *n)
{
    static const char head[] = "lm_head";
    const char *end = name + strlen(name);
    part leaf = last_part(name, strlen(name));
    for (const char *s = name; s < end;) {
        part p = part_at(s, end);
        if (part_is_tower(p)) return *n = p.n, s;
        s += p.n + 1;
    }
    if (name_block(name, strlen(name)) >= 0) return NULL;
    *n = sizeof head - 1;
    if (part_is_head(leaf)) return head;
    /* The result is the end of the name: its last two parts. */
    const char *s = leaf.s > name ? last_part(name, (size_t)(leaf.s - 1 - name)).s : leaf.s;
    *n = (size_t)(end - s);
    return s;
}

/* ---- properties of a checkpoint ---- */

static const cJSON *json_member(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

void osh_kinds_init(osh_kinds *k, const osh_checkpoint *ck)
{
    static const char *const counts[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};
    const cJSON *text = json_member(ck->config->json, "text_config"),
                *c = text ? text : ck->config->json;
    const cJSON *both = json_member(c, "is_encoder_decoder");
    *k = (osh_kinds){.ck = ck, .n_layers = -1,
                     .doubt = cJSON_GetStringValue(json_member(ck->config->text_type, "doubt"))};
    for (size_t i = 0; i < sizeof counts / sizeof *counts && k->n_layers < 0; i++) {
        const cJSON *v = json_member(c, counts[i]);
        if (cJSON_IsNumber(v) && v->valuedouble >= 1 && v->valuedouble <= 1e6)
            k->n_layers = (int64_t)v->valuedouble;
    }
    // In an encoder-decoder model, num_hidden_layers counts only the encoder or only the decoder.
    // So the number of blocks is unknown.
    if (cJSON_IsTrue(both)) k->n_layers = -1;
}
