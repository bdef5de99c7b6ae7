/* heads.c - finds the output head by its name, which is in the record of the model_type. Also
 * describes a missing head. */
#include "graph/heads.h"

#include <string.h>

#include "base/name.h"
#include "graph/kind.h"

static const char usual[] = "lm_head";

static const char *head_name(const osh_hf_config *c)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(c->type, "head"));
    return name ? name : usual;
}

/* If a tensor is the weight of a module, or belongs to a compressed weight, returns the length of
 * the module's name in the name of the tensor. Otherwise returns 0. */
static size_t tensor_module_length(const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    return dot && !strncmp(dot, ".weight", strlen(".weight")) ? (size_t)(dot - tensor) : 0;
}

/* True if the last part of the name (n bytes) is `tail`. Dots separate the parts. */
static bool is_called(const char *name, size_t n, const char *tail)
{
    size_t len = strlen(tail);
    return osh_ends_with(name, n, tail) && (n == len || name[n - len - 1] == '.');
}

static bool is_table(const char *name, size_t n)
{
    static const char *const names[] = {"embed_tokens",   "wte",          "word_embeddings",
                                        "embed_in",       "tokens_embed", "shared",
                                        "tok_embeddings", "embeddings",   "embedding",
                                        "word_embedding"};
    if (osh_in_decoder_block(name) || osh_in_tower(name)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_called(name, n, names[i])) return true;
    return false;
}

/* True if the module can be the model's head. A head is outside of decoder blocks, of towers (for
 * images or sound) and of MTP blocks (multi-token prediction). */
static bool is_outside_blocks(const char *name)
{
    if (osh_in_decoder_block(name) || osh_in_tower(name)) return false;
    return strncmp(name, "mtp.", strlen("mtp.")) && !strstr(name, ".mtp.");
}

bool osh_head_has_shape(const osh_hf_config *c, const char *name, size_t n, int64_t O, int64_t I)
{
    const cJSON *vocab = osh_hf_config_member(c, "vocab_size");
    return cJSON_IsNumber(vocab) && vocab->valuedouble == (double)O && O > 1 && O != I &&
           is_outside_blocks(name) && !is_table(name, n) && !strstr(name, "emb");
}

bool osh_head_is(const osh_hf_config *c, const osh_entry *tensor)
{
    const char *name = tensor->name;
    size_t n = tensor_module_length(name);
    if (!n || !is_outside_blocks(name)) return false;
    return is_called(name, n, head_name(c)) || is_called(name, n, usual) ||
           (tensor->ndim == 2 &&
            osh_head_has_shape(c, name, n, tensor->shape[0], tensor->shape[1]));
}

bool osh_head_is_table(const char *tensor)
{
    size_t n = tensor_module_length(tensor);
    return n && is_table(tensor, n);
}

bool osh_head_missing(osh_missing_head *out, const osh_checkpoint *ck)
{
    const osh_hf_config *c = ck->config;
    const char *arch = c->architecture ? c->architecture : "";
    bool coded = false; // true if the embedding table at out->embedding is quantized
    *out = (osh_missing_head){.name = head_name(c), .embedding = -1,
                              .tied = c->tie_word_embeddings};
    out->renamed = out->name != usual || !(osh_ends_with(arch, strlen(arch), "ForCausalLM") ||
                                           osh_ends_with(arch, strlen(arch), "LMHeadModel"));
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const char *name = ck->tensors[i].e->name;
        size_t n = tensor_module_length(name);
        if (!n) continue;
        if (is_called(name, n, out->name) || is_called(name, n, usual) ||
            is_called(name, n, "embed_out") || osh_head_is(c, ck->tensors[i].e))
            return false;
        if ((out->embedding < 0 || (coded && !name[n + strlen(".weight")])) && is_table(name, n))
            out->embedding = i, coded = name[n + strlen(".weight")] != 0;
    }
    return out->embedding >= 0;
}
