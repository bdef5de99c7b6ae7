/* fuzz_recipe.c - reads any bytes as a recipe.
 *
 * If the bytes are refused, there must be a message. If they are accepted, the schemes of the
 * modifiers must be complete, and must match names without a crash. The schemes must be printed as
 * a quantization_config that can be read. */
#include "fuzz/fuzz.h"
#include "modifiers/recipe.h"

/* Matches each name twice. The answers must be equal, although a matcher keeps state between
 * calls. */
static void names_match(osh_ctx *cx, const osh_modifier *m)
{
    static const char *const names[] = {"lm_head", "model.layers.0.self_attn.q_proj",
                                        "model.layers.1.mlp.down_proj"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t one = -1, two = -1, skip = -1;
        /* The match may fail, because a pattern may exceed the limit of steps. */
        osh_status rc = osh_matcher_find(cx, &one, m->targets, names[i], "Linear");
        osh_error_clear(cx);
        CHECK(osh_matcher_find(cx, &two, m->targets, names[i], "Linear") == rc && one == two);
        osh_error_clear(cx);
        if (!rc && one >= 0)
            CHECK(m->target_scheme[one] >= 0 && (size_t)m->target_scheme[one] < m->n_schemes);
        osh_matcher_find(cx, &skip, m->ignored, names[i], "Linear");
        osh_error_clear(cx);
    }
}

static void config_print(osh_ctx *cx, const osh_modifier *m)
{
    char *text = NULL;
    cJSON *tree = NULL;
    osh_q_config *c = NULL;
    osh_q_groups groups = osh_q_groups_of(m->schemes, m->n_schemes, &m->ignore);
    if (osh_q_config_print(cx, &text, &groups, NULL)) {
        CHECK(*osh_error_text(cx));
        osh_error_clear(cx);
        return;
    }
    if (!osh_json_parse(cx, &tree, text, strlen(text), "printed", 0) &&
        !osh_q_config_parse(cx, &c, tree, "printed"))
        CHECK(c->n <= m->n_schemes); // the read may fail, because a config refuses groups without
                                     // weights and groups with equal names
    osh_error_clear(cx);
    osh_q_config_free(cx, c);
    cJSON_Delete(tree);
    osh_free(cx, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    osh_recipe *r = NULL;
    if (osh_recipe_parse(cx, &r, (const char *)data, n, "fuzz.yaml")) {
        CHECK(!r && *osh_error_text(cx));
    } else {
        CHECK(r->n > 0 && r->n_text == n && !memcmp(r->text, data, n));
        for (size_t i = 0; i < r->n; i++) {
            names_match(cx, &r->modifiers[i]);
            if (!r->modifiers[i].replaced) config_print(cx, &r->modifiers[i]);
        }
    }
    osh_recipe_free(cx, r);
    fuzz_ctx_free(cx);
    return 0;
}
