/* fuzz_quantization.c - reads any bytes as the quantization_config of a checkpoint.
 *
 * If the bytes are refused, there must be a message. If they are accepted, the test prints the
 * schemes as a config, reads this config, and prints its schemes again. The second print must have
 * the same bytes as the first. The search for the schemes that vLLM finds must not run
 * endlessly. */
#include "fuzz/fuzz.h"
#include "quant/scheme.h"

/* Reads a printed config and prints it again. Returns the text (own), or NULL if the config cannot
 * be read. */
static char *print_again(osh_ctx *cx, const char *text)
{
    char *out = NULL;
    cJSON *tree = NULL;
    osh_q_config *c = NULL;
    if (!osh_json_parse(cx, &tree, text, strlen(text), "printed", 0) &&
        !osh_q_config_parse(cx, &c, tree, "printed")) {
        osh_q_groups groups = osh_q_groups_of(c->schemes, c->n, &c->ignore);
        CHECK(!osh_q_config_print(cx, &out, &groups, c->format));
    }
    osh_q_config_free(cx, c);
    cJSON_Delete(tree);
    return out;
}

static void config_check(osh_ctx *cx, const osh_q_config *c)
{
    static const char *const modules[] = {
        "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
        "model.layers.0.self_attn.v_proj", "model.layers.0.mlp.down_proj"};
    static const char *const classes[] = {"Linear", "Linear", "Linear", "Linear"};
    static const int which[] = {0, 0, 0, 0};
    osh_q_groups groups = osh_q_groups_of(c->schemes, c->n, &c->ignore);
    char *one = NULL;
    CHECK(c->n > 0);
    for (size_t i = 0; i < c->n; i++) {
        char *line = osh_q_who_loads(cx, &c->schemes[i], NULL);
        CHECK(line && c->schemes[i].weights.present && c->schemes[i].targets.n);
        osh_free(cx, line);
    }
    osh_q_vllm_check(cx, &groups, &(osh_q_modules){modules, classes, which, 4});
    osh_error_clear(cx);
    CHECK(!osh_q_config_print(cx, &one, &groups, c->format));
    char *two = print_again(cx, one);
    // the texts are not compared if they have invalid UTF-8, or a NUL that is encoded in two bytes
    if (!strstr(one, "fffd") && !strstr(one, "u0000"))
        CHECK(two && !strcmp(one, two));
    osh_free(cx, one);
    osh_free(cx, two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    cJSON *tree = NULL;
    osh_q_config *c = NULL;
    if (!osh_json_parse(cx, &tree, (const char *)data, n, "fuzz", 0)) {
        if (osh_q_config_parse(cx, &c, tree, "fuzz")) CHECK(!c && *osh_error_text(cx));
        else config_check(cx, c);
    }
    osh_error_clear(cx);
    osh_q_config_free(cx, c);
    cJSON_Delete(tree);
    fuzz_ctx_free(cx);
    return 0;
}
