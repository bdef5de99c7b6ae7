/* catalogue.c - lists Linears of known model families that a general rule for names (kind.c) does
 * not recognize, such as Linears of vision towers and projectors. The source of the list is the
 * classes of transformers; scripts/compare_families.py compares it with LLM Compressor.
 *
 * The list excludes Linears that cannot be quantized: the tower of Gemma 3, because its class reads
 * the attribute `weight`, which packed Linears lack; and merging_layer of Mistral 3, and tower and
 * projector of Llama 4, because vLLM creates them without parameters for codes. */
#include "base/name.h"
#include "graph/kind.h"

#include <string.h>

typedef struct row {
    const char *family, *inside; // family: model_type; inside: text that the module's name contains
    const char *tails[8];        // suffixes: the name ends with one of them
} row;

#define CLIP {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj", \
              ".self_attn.out_proj", ".mlp.fc1", ".mlp.fc2"}
static const row rows[] = {
    {"llava", "vision_tower.", CLIP},
    {"llava", "multi_modal_projector.", {".linear_1", ".linear_2"}},
    {"mistral3", "vision_tower.",
     {".attention.q_proj", ".attention.k_proj", ".attention.v_proj", ".attention.o_proj",
      ".feed_forward.gate_proj", ".feed_forward.up_proj", ".feed_forward.down_proj"}},
    {"mistral3", "multi_modal_projector.", {".linear_1", ".linear_2"}},
    {"mllama", "vision_model.",
     {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.o_proj",
      ".mlp.fc1", ".mlp.fc2"}},
    {"mllama", "multi_modal_projector", {"multi_modal_projector"}},
    {"qwen2_5_vl", "visual.blocks.",
     {".attn.qkv", ".attn.proj", ".mlp.gate_proj", ".mlp.up_proj", ".mlp.down_proj"}},
    {"qwen2_5_vl", "visual.merger.", {".mlp.0", ".mlp.2"}},
    {"qwen3_vl", "visual.blocks.",
     {".attn.qkv", ".attn.proj", ".mlp.linear_fc1", ".mlp.linear_fc2"}},
    {"qwen3_vl", "visual.merger.", {".linear_fc1", ".linear_fc2"}},
    {"qwen3_vl", "visual.deepstack_merger_list.", {".linear_fc1", ".linear_fc2"}},
};

static bool name_is_inside(const char *name, size_t n, const char *part)
{
    const char *at = strstr(name, part);
    return at && (size_t)(at - name) + strlen(part) <= n;
}

bool osh_catalogue_has(const char *family, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        if (strcmp(r->family, family) != 0 || !name_is_inside(name, n, r->inside)) continue;
        for (size_t k = 0; k < sizeof r->tails / sizeof *r->tails && r->tails[k]; k++)
            if (osh_ends_with(name, n, r->tails[k])) return true;
    }
    return false;
}
