/* make_model.c - writes a Llama checkpoint of any size with random BF16 weights, one shard per
 * layer. Also writes calibration samples of random ids:
 *
 *   make_model DIR hidden=4096 intermediate=8192 heads=32 kv=8 layers=8 vocab=32000 samples=8
 *              tokens=128 seed=1
 *
 * Weights are uniform in [-0.03, 0.03], norms are 1. Memory use does not grow with the model. More
 * arguments:
 *
 *   experts=128 topk=8   the model is a Qwen3-MoE, and `intermediate` is the width of an expert
 *   head_dim=128         size of a head of a Qwen3-MoE
 *   dense=1              the first layer has an MLP instead of experts
 *   ragged=1             samples have between tokens / 2 and `tokens` tokens
 *   outliers=N           each sample begins with id 0, and the embeddings of ids below N are large
 *                        in channels 0 and 1 (1.25 times as large in channel 1)
 *   f32=1                weights are F32 (not together with outliers)
 *   holes=1              all weights are 0 and the files use no disk space, for plans of large
 *                        models */
#include "base/file.h"
#include "base/num.h"
#include "base/rng.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct model {
    int64_t hidden, intermediate, heads, kv, layers, vocab, samples, tokens, seed, experts, topk,
        head_dim, dense;
    int64_t ragged, outliers, f32, holes;
} model;

enum { MAX_EXPERTS = 1024, MAX_TENSORS = 16 + 3 * MAX_EXPERTS, BLOCK = 1 << 20 };
typedef struct shard {
    char names[MAX_TENSORS][128], file[64];
    osh_entry e[MAX_TENSORS];
    int n;
} shard;

static void add(shard *s, const char *name, int64_t rows, int64_t cols)
{
    snprintf(s->names[s->n], sizeof s->names[0], "%s", name);
    s->e[s->n] = (osh_entry){
        .name = s->names[s->n], .dtype = OSH_BF16, .ndim = cols ? 2 : 1, .shape = {rows, cols}};
    s->n++;
}

typedef struct row { const char *leaf; int64_t rows, cols; } row;

static void add_rows(shard *s, int64_t layer, const char *module, const row *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[120];
        snprintf(name, sizeof name, "model.layers.%ld.%s%s.weight", (long)layer, module, r[i].leaf);
        add(s, name, r[i].rows, r[i].cols);
    }
}

static bool is_sparse(const model *m, int64_t layer) { return m->experts && layer >= m->dense; }

static void add_layer(shard *s, const model *m, int64_t layer)
{
    int64_t D = m->hidden, F = m->intermediate, Dh = m->head_dim ? m->head_dim : D / m->heads;
    int64_t H = Dh * m->heads, K = Dh * m->kv;
    const row attention[] = {
        {"q_proj", H, D}, {"k_proj", K, D}, {"v_proj", K, D}, {"o_proj", D, H}};
    const row norms[] = {{"input_layernorm", D, 0}, {"post_attention_layernorm", D, 0}};
    const row heads[] = {{"q_norm", Dh, 0}, {"k_norm", Dh, 0}},
              router[] = {{"gate", m->experts, D}};
    const row mlp[] = {{"gate_proj", F, D}, {"up_proj", F, D}, {"down_proj", D, F}};
    add_rows(s, layer, "self_attn.", attention, 4);
    if (m->experts) add_rows(s, layer, "self_attn.", heads, 2);
    if (is_sparse(m, layer)) add_rows(s, layer, "mlp.", router, 1);
    else add_rows(s, layer, "mlp.", mlp, 3);
    for (int64_t e = 0; is_sparse(m, layer) && e < m->experts; e++) {
        char module[32];
        snprintf(module, sizeof module, "mlp.experts.%ld.", (long)e);
        add_rows(s, layer, module, mlp, 3);
    }
    add_rows(s, layer, "", norms, 2);
}

static osh_status write_tensor(osh_ctx *cx, osh_file *f, const osh_entry *e, uint16_t *block,
                               uint64_t seed)
{
    osh_status rc = OSH_OK;
    uint64_t x = osh_rng_u64(seed, 7, (uint64_t)e->begin) | 1;
    for (int64_t at = e->begin; at < e->end; at += BLOCK) {
        int64_t n = e->end - at < BLOCK ? e->end - at : BLOCK;
        for (int64_t i = 0; i < n / 2; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            float w = e->ndim == 1 ? 1 : (float)(int16_t)(x >> 20) * (0.03f / 32768);
            if (e->dtype == OSH_BF16) block[i] = osh_bf16_of_f32(w);
            else memcpy(block + i++, &w, sizeof w);
        }
        OSH_TRY(osh_file_pwrite(cx, f, block, (size_t)n, at));
    }
done:
    return rc;
}

static osh_status write_outliers(osh_ctx *cx, osh_file *f, const osh_entry *e, int64_t n)
{
    osh_status rc = OSH_OK;
    const uint16_t big[2] = {osh_bf16_of_f32(8), osh_bf16_of_f32(10)};
    for (int64_t i = 0; i < n; i++)
        OSH_TRY(osh_file_pwrite(cx, f, big, sizeof big, e->begin + i * e->shape[1] * 2));
done:
    return rc;
}

static osh_status write_shard(osh_ctx *cx, const char *dir, shard *s, const model *m, uint64_t seed)
{
    osh_status rc = OSH_OK;
    char *header = NULL, *path = osh_path_join(cx, dir, s->file); // own
    osh_file *f = NULL;                                           // own
    uint16_t *block = osh_alloc(cx, BLOCK);                       // own
    size_t n = 0;
    for (int i = 0; m->f32 && i < s->n; i++) s->e[i].dtype = OSH_F32;
    if (!path || !block) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a shard");
    OSH_TRY(osh_safetensors_layout_array(cx, &header, &n, s->e, s->n));
    OSH_TRY(osh_file_create(cx, &f, path));
    OSH_TRY(osh_file_pwrite(cx, f, header, n, 0));
    if (m->holes) OSH_TRY(osh_file_pwrite(cx, f, "\0", 1, s->e[s->n - 1].end - 1));
    for (int i = 0; !m->holes && i < s->n; i++) {
        OSH_TRY(write_tensor(cx, f, &s->e[i], block, seed));
        if (strstr(s->e[i].name, "embed_tokens"))
            OSH_TRY(write_outliers(cx, f, &s->e[i], m->outliers));
    }
done:
    osh_file_close(cx, f);
    osh_free(cx, block);
    osh_free(cx, header);
    osh_free(cx, path);
    return rc;
}

static FILE *open_text(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fopen(path, "w");
}

static bool write_config(const char *dir, const model *m)
{
    FILE *f = open_text(dir, "config.json");
    if (!f) return false;
    fprintf(
        f,
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"torch_dtype\": \"%s\",\n"
        " \"hidden_size\": %ld, \"intermediate_size\": %ld, \"num_attention_heads\": %ld, "
        "\"num_key_value_heads\": %ld,\n \"num_hidden_layers\": %ld, \"vocab_size\": %ld, "
        "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5,\n \"rope_theta\": 10000.0, "
        "\"hidden_act\": "
        "\"silu\", \"tie_word_embeddings\": false, \"attention_bias\": false, \"mlp_bias\": false",
        m->experts ? "Qwen3MoeForCausalLM" : "LlamaForCausalLM", m->experts ? "qwen3_moe" : "llama",
        m->f32 ? "float32" : "bfloat16", (long)m->hidden, (long)m->intermediate, (long)m->heads,
        (long)m->kv, (long)m->layers, (long)m->vocab);
    if (m->head_dim) fprintf(f, ",\n \"head_dim\": %ld", (long)m->head_dim);
    if (m->experts)
        fprintf(f,
                ",\n \"num_experts\": %ld, \"num_experts_per_tok\": %ld, "
                "\"moe_intermediate_size\": %ld, "
                "\"norm_topk_prob\": true,\n \"decoder_sparse_step\": 1, \"mlp_only_layers\": [%s]",
                (long)m->experts, (long)m->topk, (long)m->intermediate, m->dense ? "0" : "");
    fputs("}\n", f);
    return !fclose(f);
}

static bool write_samples(const char *dir, const model *m)
{
    FILE *f = open_text(dir, "calibration.jsonl");
    if (!f) return false;
    for (int64_t s = 0; s < m->samples; s++) {
        fputs("{\"input_ids\": [", f);
        int64_t n = m->tokens;
        if (m->ragged)
            n -= (int64_t)(osh_rng_u64((uint64_t)m->seed, 8, (uint64_t)s) % (uint64_t)(n / 2 + 1));
        for (int64_t t = 0; t < n; t++) {
            uint64_t id = osh_rng_u64((uint64_t)m->seed, 9, (uint64_t)(s * m->tokens + t)) %
                          (uint64_t)m->vocab;
            fprintf(f, t ? ", %d" : "%d", t || !m->outliers ? (int)id : 0);
        }
        fputs("]}\n", f);
    }
    return !fclose(f);
}

static osh_status write_model(osh_ctx *cx, const char *dir, const model *m)
{
    osh_status rc = OSH_OK;
    static shard s;
    int64_t total = 0;
    FILE *index = NULL; // own
    OSH_TRY(osh_dir_make(cx, dir));
    if (!write_config(dir, m) || !write_samples(dir, m) ||
        !(index = open_text(dir, "model.safetensors.index.json")))
        OSH_FAIL(cx, OSH_E_IO, "cannot write into %s", dir);
    fputs("{\"weight_map\": {", index);
    for (int64_t k = 0; k <= m->layers; k++) {
        s.n = 0;
        snprintf(s.file, sizeof s.file, "model-%05ld-of-%05ld.safetensors", (long)(k + 1),
                 (long)(m->layers + 1));
        if (k < m->layers) add_layer(&s, m, k);
        else {
            add(&s, "model.embed_tokens.weight", m->vocab, m->hidden);
            add(&s, "model.norm.weight", m->hidden, 0);
            add(&s, "lm_head.weight", m->vocab, m->hidden);
        }
        OSH_TRY(write_shard(cx, dir, &s, m, (uint64_t)(m->seed * 1000 + k)));
        for (int i = 0; i < s.n; i++) {
            fprintf(index, "%s\n\"%s\": \"%s\"", k || i ? "," : "", s.e[i].name, s.file);
            total += s.e[i].end - s.e[i].begin;
        }
    }
    fprintf(index, "},\n\"metadata\": {\"total_size\": %ld}}\n", (long)total);
    if (ferror(index)) OSH_FAIL(cx, OSH_E_IO, "cannot write the index of %s", dir);
done:
    if (index) fclose(index);
    return rc;
}

int main(int argc, char **argv)
{
    model m = {256, 512, 4, 2, 2, 1024, 4, 64, 1, 0, 2, 0, 0, 0, 0};
    const struct { const char *name; int64_t *at; } args[] = {
        {"hidden", &m.hidden}, {"intermediate", &m.intermediate}, {"heads", &m.heads},
        {"kv", &m.kv},
        {"layers", &m.layers}, {"vocab", &m.vocab}, {"samples", &m.samples}, {"tokens", &m.tokens},
        {"seed", &m.seed},
        {"experts", &m.experts}, {"topk", &m.topk}, {"head_dim", &m.head_dim}, {"dense", &m.dense},
        {"ragged", &m.ragged}, {"outliers", &m.outliers}, {"f32", &m.f32}, {"holes", &m.holes}};
    osh_ctx *cx = NULL;
    if (argc < 2 || osh_ctx_new(&cx, 1)) return 2;
    for (int i = 2; i < argc; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof args / sizeof *args; k++) {
            size_t n = strlen(args[k].name);
            if (strncmp(argv[i], args[k].name, n) || argv[i][n] != '=') continue;
            *args[k].at = atol(argv[i] + n + 1), known = true;
        }
        if (!known) {
            fprintf(stderr, "make_model: unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    if (m.outliers > m.vocab || m.outliers < 0) {
        fprintf(stderr, "make_model: want 0 to %ld outliers\n", (long)m.vocab);
        return 2;
    }
    if (m.experts < 0 || m.experts > MAX_EXPERTS || m.dense < 0 || m.dense > 1) {
        fprintf(stderr, "make_model: want 0 to %d experts, dense 0 or 1\n", MAX_EXPERTS);
        return 2;
    }
    osh_status rc = write_model(cx, argv[1], &m);
    if (rc) fprintf(stderr, "make_model: %s\n", osh_error_text(cx));
    osh_ctx_free(cx);
    return rc != OSH_OK;
}
