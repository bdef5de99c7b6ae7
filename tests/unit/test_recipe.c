/* test_recipe.c - tests how recipes become modifiers and schemes: defaults, accepted keys, the
 * choice of actorder and observers, and errors with line and column. */
#include "base/buf.h"
#include "base/quote.h"
#include "modifiers/gptq.h"
#include "modifiers/recipe.h"
#include "match/options.h"
#include "text/yaml.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>

static osh_ctx *cx;

static int setup(void **state)
{
    (void)state;
    if (osh_ctx_new(&cx, 1)) return -1;
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

static osh_recipe *parse(const char *text)
{
    osh_recipe *r = NULL;
    if (osh_recipe_parse(cx, &r, text, strlen(text), "r.yaml"))
        fail_msg("%s\n%s", text, osh_error_text(cx));
    return r;
}

/* Parses a recipe with one modifier that has one group, "g", with the target Linear. `more` has
 * keys of the modifier. `args` has the keys of `weights`. */
static osh_recipe *parse_weights(const char *modifier, const char *more, const char *args)
{
    char text[1024];
    snprintf(text, sizeof text,
             "s_stage:\n  s_modifiers:\n    %s: {%sconfig_groups: {g: {targets: [Linear], weights: "
             "{%s}}}}\n",
             modifier, more, args);
    return parse(text);
}

/* If a recipe is written and read again, its names do not change. Without quotes, YAML would read
 * some of these names as other types. */
static void test_names_are_written_as_they_are_read(void **state)
{
    static const char *const names[] = {
        "plain",
        "true",
        "1e3",
        "1.0",
        "010",
        "null",
        "~",
        "no",
        "a: b",
        "- x",
        "#c",
        "a #c",
        "",
        " a ",
        "'q'",
        "\"q\"",
        "a\nb",
        "\n",
        "a\n\n b\n",
        "a\tb",
        "\\",
        "[x]",
        "{x: 1}",
        "*a",
        "&a",
        "!t",
        "%d",
        "@x",
        "`x",
        "? x",
        "---",
        "1:30",
        "a,b",
        "\xc2\x85",
        "\xe2\x80\xa8",
        "\xe2\x80\xae",
        "\xef\xbb\xbf",
        "h\xc3\xa9",
        "<<",
        "0x1F",
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        osh_buf b; // own
        char *text = NULL;
        osh_yaml *y = NULL;
        osh_buf_init(&b, 0);
        // a stage, a list of modifiers, and a value, all as JSON, which is valid YAML
        for (int part = 0; part < 3; part++) {
            char name[64], quoted[256];
            snprintf(name, sizeof name, "%s%s", names[i],
                     part == 0   ? "_stage"
                     : part == 1 ? "_modifiers"
                                 : "");
            osh_quote(quoted, sizeof quoted, name);
            assert_int_equal(
                osh_buf_printf(cx, &b,
                               part == 0 ? "{\"%s\": {"
                               : part == 1
                                   ? "\"%s\": {\"QuantizationModifier\": {\"scheme\": \"W8A16\", "
                                     "\"targets\": [\"Linear\"], \"ignore\": "
                                   : "[\"%s\"]}}}}",
                               quoted),
                OSH_OK);
        }
        osh_recipe *r = parse(b.data);
        assert_int_equal(osh_recipe_with_line(cx, &text, r, "# head\n", 0, "observer: minmax"),
                         OSH_OK);
        if (osh_yaml_parse(cx, &y, text, strlen(text), "written"))
            fail_msg("%s\n%s", text, osh_error_text(cx));
        const osh_yaml *stage = y->items[0], *modifier = stage->items[0]->items[0];
        const osh_yaml *ignore = osh_yaml_get(modifier, "ignore");
        assert_memory_equal(y->keys[0]->text, names[i], strlen(names[i]));
        assert_string_equal(y->keys[0]->text + strlen(names[i]), "_stage");
        assert_memory_equal(stage->keys[0]->text, names[i], strlen(names[i]));
        assert_string_equal(stage->keys[0]->text + strlen(names[i]), "_modifiers");
        assert_int_equal(ignore->items[0]->kind, OSH_Y_STR);
        assert_string_equal(ignore->items[0]->text, names[i]);
        osh_free(cx, text), text = NULL;
        osh_yaml_free(cx, y), y = NULL;

        static const char *const modules[] = {"model.layers.0.mlp"};
        const osh_recipe_group group = {.modifier = 0,
                                        .name = names[i],
                                        .scheme = &r->modifiers[0].schemes[0],
                                        .modules = modules,
                                        .n = 1};
        assert_int_equal(osh_recipe_with_groups(cx, &text, r, "", &group, 1), OSH_OK);
        if (osh_yaml_parse(cx, &y, text, strlen(text), "written"))
            fail_msg("%s\n%s", text, osh_error_text(cx));
        const osh_yaml *groups = osh_yaml_get(y->items[0]->items[0]->items[0], "config_groups");
        assert_int_equal(groups->keys[0]->kind, OSH_Y_STR);
        assert_string_equal(groups->keys[0]->text, names[i]);
        osh_free(cx, text);
        osh_yaml_free(cx, y);
        osh_recipe_free(cx, r);
        osh_buf_deinit(cx, &b);
    }
}

static void test_every_modifier(void **state)
{
    (void)state;
    for (size_t i = 0; i < osh_modifier_count(); i++) {
        /* Modifiers that do not quantize have tests of their own. */
        if (!osh_modifier_quantizes(&(osh_modifier){.type = osh_modifier_at(i)})) continue;
        osh_recipe *r = parse_weights(osh_modifier_at(i)->name, "", "num_bits: 4, group_size: 128");
        assert_int_equal(r->n, 1);
        const osh_modifier *m = &r->modifiers[0];
        assert_ptr_equal(m->type, osh_modifier_at(i));
        assert_int_equal(m->n_schemes, 1);
        const osh_q_args *w = &m->schemes[0].weights;
        assert_true(w->present && w->symmetric && w->bits == 4 && w->type == OSH_Q_INT);
        assert_int_equal(w->strategy, OSH_Q_GROUP);
        assert_string_equal(w->observer, "memoryless_minmax");
        osh_recipe_free(cx, r);
    }
}

/* Transforms have their own keys and no schemes. */
static void test_transforms(void **state)
{
    (void)state;
    static const char after[] = "QuantizationModifier: {scheme: W8A8}}}";
    char text[1024];
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    for (size_t i = 0; i < osh_modifier_count(); i++) {
        const osh_modifier_type *type = osh_modifier_at(i);
        if (!type->transform) continue;
        snprintf(text, sizeof text,
                 "s_stage: {s_modifiers: {%s: {mappings: [[[\"re:.*q\", k], [n]], "
                 "{balance_layers: v, smooth_layer: m}], %s}, %s",
                 type->name,
                 type->transform->search
                     ? "duo_scaling: both, offload_device: cpu, n_grid: 9"
                     : "ignore: [a, b], num_calibration_steps: 3, calibration_function: null, "
                       "smoothing_strength: 0.8",
                 after);
        osh_recipe *r = parse(text);
        const osh_modifier *m = &r->modifiers[0];
        size_t n = 0;
        const osh_mapping *maps = m->type->transform->mappings(m, &n);
        assert_int_equal(r->n, 2);
        assert_int_equal(m->n_schemes, 0);
        assert_int_equal(m->ignore.n, type->transform->search ? 0 : 2);
        assert_int_equal(n, 2);
        assert_int_equal(maps[0].balance.n, 2);
        assert_string_equal(maps[0].balance.items[0], "re:.*q");
        assert_string_equal(maps[0].smooth, "n");
        assert_string_equal(maps[1].balance.items[0], "v");
        osh_recipe_free(cx, r);
        snprintf(text, sizeof text, "s_stage: {s_modifiers: {%s: {}, %s", type->name, after);
        r = parse(text);
        // NULL: the mappings are inferred from the model's graph
        assert_null(type->transform->mappings(&r->modifiers[0], &n));
        osh_recipe_free(cx, r);
    }
}

/* A modifier that prunes has its own targets, and may be alone or before a modifier that
 * quantizes. */
static void test_pruners(void **state)
{
    (void)state;
    char text[1024];
    int n = 0;
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    for (size_t i = 0; i < osh_modifier_count(); i++) {
        const osh_modifier_type *type = osh_modifier_at(i);
        if (!type->pruner) continue;
        bool schedule = strstr(type->keys, "final_sparsity"),
             mask = strstr(type->keys, " sparsity");
        for (int alone = 0; alone < 2; alone++, n++) {
            snprintf(
                text, sizeof text,
                "s_stage: {s_modifiers: {%s: {targets: [a, 're:b'], ignore: c%s}%s}}", type->name,
                schedule
                    ? ", init_sparsity: 0, final_sparsity: 0.5, update_scheduler: cubic, start: "
                      "0.0, end: "
                      "1.0, scheduler_args: {}, mask_structure: unstructured, leave_enabled: false"
                : mask ? ", sparsity: 0.5, mask_structure: '2:4', owl_m: null, sparsity_profile: "
                         "null, "
                         "sequential_update: true"
                       : "",
                alone ? "" : ", GPTQModifier: {scheme: W4A16}");
            osh_recipe *r = parse(text);
            const osh_modifier *m = &r->modifiers[0];
            assert_int_equal(r->n, 2 - alone);
            assert_false(osh_modifier_quantizes(m) || m->type->transform);
            assert_int_equal(m->n_schemes, 1);
            assert_int_equal(m->schemes[0].targets.n, 2);
            assert_false(m->schemes[0].weights.present);
            assert_int_equal(m->ignore.n, 1);
            /* The modifier after the pruner has a scheme of its own. */
            if (!alone) assert_int_equal(r->modifiers[1].n_schemes, 1);
            osh_recipe_free(cx, r);
        }
    }
    assert_int_equal(n, 8);
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *args;
        osh_q_args want;
    } rows[] = {
        {"num_bits: 3, group_size: 0x20, symmetric: no",
         {.bits = 3, .strategy = OSH_Q_GROUP, .group_size = 32, .symmetric = false}},
        {"num_bits: 8, group_size: -1",
         {.bits = 8, .strategy = OSH_Q_CHANNEL, .group_size = -1, .symmetric = true}},
        {"num_bits: 8, type: FLOAT, strategy: Block, block_structure: [128, 64]",
         {.bits = 8, .type = OSH_Q_FLOAT, .strategy = OSH_Q_BLOCK, .block = {128, 64},
          .symmetric = true}},
        {"num_bits: 8, type: float, strategy: block, block_structure: 16x8, observer: MinMax",
         {.bits = 8, .type = OSH_Q_FLOAT, .strategy = OSH_Q_BLOCK, .block = {16, 8},
          .symmetric = true}},
        {"strategy: null, group_size: null, observer: null, scale_dtype: null, zp_dtype: null, "
         "observer_kwargs: {}",
         {.bits = 8, .strategy = OSH_Q_TENSOR, .symmetric = true}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_recipe *r = parse_weights("QuantizationModifier", "", rows[i].args);
        const osh_q_args *a = &r->modifiers[0].schemes[0].weights, *w = &rows[i].want;
        if (a->bits != w->bits || a->type != w->type || a->strategy != w->strategy ||
            a->symmetric != w->symmetric || a->group_size != w->group_size ||
            a->block[0] != w->block[0] || a->block[1] != w->block[1])
            fail_msg("%s", rows[i].args);
        assert_string_equal(a->observer,
                            strstr(rows[i].args, "MinMax") ? "minmax" : "memoryless_minmax");
        osh_recipe_free(cx, r);
    }
}

/* The default of actorder is `static`; `actorder: null` in GPTQModifier means none. If the scheme
 * and the modifier both set actorder, the values must be equal. */
static void test_actorder(void **state)
{
    (void)state;
    static const struct { const char *more, *args; osh_actorder want; } rows[] = {
        {"", "", OSH_ACTORDER_STATIC},
        {"", ", actorder: null", OSH_ACTORDER_STATIC},
        {"", ", actorder: weight", OSH_ACTORDER_WEIGHT},
        {"actorder: null, ", "", OSH_ACTORDER_UNSET},
        {"actorder: weight, ", "", OSH_ACTORDER_WEIGHT},
        {"actorder: static, ", ", actorder: static", OSH_ACTORDER_STATIC},
        {"actorder: !!python/object/apply:x.Y [weight], ", "", OSH_ACTORDER_WEIGHT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char args[128];
        snprintf(args, sizeof args, "num_bits: 4%s", rows[i].args);
        osh_recipe *r = parse_weights("GPTQModifier", rows[i].more, args);
        if (r->modifiers[0].schemes[0].weights.actorder != rows[i].want) fail_msg("row %zu", i);
        osh_recipe_free(cx, r);
    }
}

/* The quality of a modifier is its key `quality`, or the level for all modifiers if the key is
 * absent. */
static void test_levels(void **state)
{
    (void)state;
    static const struct {
        const char *text, *level, *type;
        osh_scale_search search;
        int n;
    } rows[] = {
        {"QuantizationModifier: {scheme: W4A16}", NULL, "QuantizationModifier", 0, 0},
        {"QuantizationModifier: {scheme: W4A16}", "fast", "QuantizationModifier", 0, 0},
        {"QuantizationModifier: {scheme: W4A16}", "gptq", "GPTQModifier", SEARCH_NONE, 0},
        {"QuantizationModifier: {scheme: W4A16, quality: best}", NULL, "GPTQModifier", SEARCH_LDL,
         3},
        {"GPTQModifier: {scheme: W4A16}", "fast", "QuantizationModifier", 0, 0},
        {"GPTQModifier: {scheme: W4A16, quality: gptq}", "best", "GPTQModifier", SEARCH_NONE, 0},
        {"GPTQModifier: {scheme: W4A16, block_size: 64}", "best", "GPTQModifier", SEARCH_LDL, 3},
        {"GPTQModifier: {scheme: W4A16, scale_search: mse, refine: [descend]}", "best",
         "GPTQModifier", SEARCH_MSE, 1},
    };
    const char *path = "quality.yaml";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "q_modifiers: {%s}\n", rows[i].text);
        fclose(f);
        osh_recipe *r = NULL;
        assert_ok(cx, osh_recipe_open(cx, &r, path, rows[i].level));
        if (strcmp(r->modifiers[0].type->name, rows[i].type))
            fail_msg("row %zu: %s", i, r->modifiers[0].type->name);
        const osh_gptq *g = r->modifiers[0].args;
        if (!strcmp(rows[i].type, "GPTQModifier") &&
            (g->scale_search != rows[i].search || g->n_refine != rows[i].n ||
             strcmp(g->target, rows[i].n ? "original" : "quantized")))
            fail_msg("row %zu", i);
        osh_recipe_free(cx, r);
    }
    remove(path);
    osh_strs none = {0};
    const osh_recipe_flags flags = {
        .scheme = "W4A16", .method = "best", .targets = &none, .ignore = &none};
    bool spared = true;
    osh_recipe *r = NULL;
    assert_ok(cx, osh_recipe_of_flags(cx, &r, &spared, &flags));
    assert_int_equal(((osh_gptq *)r->modifiers[0].args)->n_refine, 3);
    osh_recipe_free(cx, r);
}

static void test_quality(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        osh_scale_search search;
        int n;
        osh_refine steps[3];
    } rows[] = {
        {"", SEARCH_NONE, 0, {0}},
        {"scale_search: null, refine: null, ", SEARCH_NONE, 0, {0}},
        {"scale_search: none, refine: [], ", SEARCH_NONE, 0, {0}},
        {"scale_search: mse, ", SEARCH_MSE, 0, {0}},
        {"scale_search: ldl, refine: [rescale, descend, fit_scales], ", SEARCH_LDL, 3,
         {OSH_REFINE_RESCALE, OSH_REFINE_DESCEND, OSH_REFINE_FIT_SCALES}},
        {"refine: [fit_scales, fit_scales], ", SEARCH_NONE, 2,
         {OSH_REFINE_FIT_SCALES, OSH_REFINE_FIT_SCALES}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_recipe *r = parse_weights("GPTQModifier", rows[i].more, "num_bits: 4");
        const osh_gptq *g = r->modifiers[0].args;
        assert_int_equal(g->scale_search, rows[i].search);
        assert_int_equal(g->n_refine, rows[i].n);
        for (int k = 0; k < rows[i].n; k++) assert_int_equal(g->refine[k], rows[i].steps[k]);
        osh_recipe_free(cx, r);
    }
}

static void test_written_back(void **state)
{
    (void)state;
    osh_recipe *r = NULL;
    assert_ok(cx, osh_recipe_open(
                      cx, &r, OSH_SOURCE_DIR "/tests/fuzz/corpus/recipe/written_back.yaml", NULL));
    assert_string_equal(r->modifiers[0].type->name, "GPTQModifier");
    const osh_q_args *w = &r->modifiers[0].schemes[0].weights;
    assert_int_equal(w->actorder, OSH_ACTORDER_STATIC);
    assert_int_equal(w->group_size, 64);
    assert_string_equal(r->modifiers[0].ignore.items[0], "lm_head");
    osh_recipe_free(cx, r);
}

static void test_scheme_and_observers(void **state)
{
    (void)state;
    osh_recipe *r =
        parse("a_stage:\n  run_type: oneshot\n  q_modifiers:\n    QuantizationModifier:\n"
              "      scheme: {FP8: [Linear], W8A8: ['re:.*down_proj$']}\n"
              "      input_observer: static_minmax\n      observer: {weights: minmax}\n"
              "      ignore: lm_head\n");
    const osh_modifier *m = &r->modifiers[0];
    int scheme = -1;
    assert_int_equal(m->n_schemes, 2);
    assert_string_equal(m->schemes[0].group_name, "group_0");
    assert_string_equal(m->schemes[0].inputs.observer, "static_minmax");
    // inputs that are quantized dynamically have no observer
    assert_string_equal(m->schemes[1].inputs.observer, "");
    assert_string_equal(m->schemes[1].weights.observer, "minmax");
    assert_ok(cx, osh_modifier_match(cx, &scheme, &r->modifiers[0], "model.layers.0.mlp.down_proj",
                                     "Linear"));
    assert_int_equal(scheme, 1);
    assert_ok(cx, osh_modifier_match(cx, &scheme, &r->modifiers[0], "lm_head", "Linear"));
    assert_int_equal(scheme, -1);
    osh_recipe_free(cx, r);

    r = parse(
        "a_stage:\n  a_modifiers:\n    QuantizationModifier: {scheme: W4A16, targets: Linear}\n"
        "  b_modifiers:\n    GPTQModifier: {block_size: 64}\n");
    assert_true(r->n == 2 && r->modifiers[0].replaced && r->modifiers[1].n_schemes == 1);
    assert_int_equal(r->modifiers[1].schemes[0].weights.group_size, 128);
    osh_recipe_free(cx, r);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct { const char *args, *part; osh_status rc; } weights[] = {
        {"bits: 4", "r.yaml:3:77: unknown key 'bits', want num_bits, type", OSH_E_USAGE},
        {"num_bits: four", "r.yaml:3:77: num_bits is 'four', want a whole number", OSH_E_USAGE},
        {"num_bits: null", "num_bits is null", OSH_E_USAGE},
        {"num_bits: 4.0", "num_bits is '4.0'", OSH_E_USAGE},
        {"num_bits: [4]", "num_bits is '[...]'", OSH_E_USAGE},
        {"num_bits: 4, type: null", "type is 'null'", OSH_E_USAGE},
        {"num_bits: 4, symmetric: 1", "symmetric is '1', want true or false", OSH_E_USAGE},
        {"block_structure: [128]", "block_structure is '[...]'", OSH_E_USAGE},
        {"block_structure: [128, 1.5]", "block_structure is '[...]'", OSH_E_USAGE},
        {"group_size: 0", "group_size is 0", OSH_E_USAGE},
        {"actorder: group", "weight_g_idx", OSH_E_UNSUPPORTED},
        {"observer: mesa",
         "unknown observer 'mesa': want memoryless_minmax, static_minmax, minmax, ", OSH_E_USAGE},
        {"observer: static_min_max", "did you mean static_minmax?", OSH_E_USAGE},
        {"observer_kwargs: {maxshrink: 0.2}",
         "unknown observer_kwargs 'maxshrink' of memoryless_minmax: want none", OSH_E_USAGE},
        {"observer: mse, observer_kwargs: {maxshrnk: 0.2}", "did you mean maxshrink?", OSH_E_USAGE},
        {"observer: mse, observer_kwargs: {maxshrink: 1.2}",
         "maxshrink is 1.2, want a number in [0, 1]", OSH_E_USAGE},
        {"observer: mse, observer_kwargs: {patience: 1.5}", "want a whole number", OSH_E_USAGE},
        {"observer: mse, observer_kwargs: {norm: two}",
         "norm: want a number, true or false, got 'two'", OSH_E_USAGE},
        {"observer: mse, observer_kwargs: [0.2]", "observer_kwargs: want a map", OSH_E_USAGE},
        {"num_bits: 4, type: float, strategy: tensor_group, group_size: 16, scale_dtype: "
         "torch.float8_e4m3fn, "
         "observer: mse",
         "may end before its 20 steps: want nvfp4_expanded_mse, or observer_kwargs with patience: "
         "20",
         OSH_E_UNSUPPORTED},
        {"num_bits: 4, type: float, strategy: tensor_group, group_size: 16, scale_dtype: "
         "torch.float8_e4m3fn, "
         "observer: imatrix_mse",
         "does not search ranges of strategy tensor_group", OSH_E_UNSUPPORTED},
        {"scale_dtype: torch.int8", "scale_dtype", OSH_E_UNSUPPORTED},
        {"dynamic: local", "dynamic weights", OSH_E_UNSUPPORTED},
        {"num_bits: 9", "int of 9 bits", OSH_E_UNSUPPORTED},
        {"1: 2", "string keys", OSH_E_USAGE},
    };
    static const struct { const char *text, *part; } recipes[] = {
        {"", "got nothing"},
        {"[a]", "got a list"},
        {"x: {}", "r.yaml:1:1: unknown key 'x': want a name ending in _stage"},
        {"s_stage: {}", "names no modifier"},
        {"s_stage: {q: {}}", "want a name ending in _modifiers"},
        {"s_stage: []", "stage s_stage: want a map"},
        {"q_modifiers: {QuantizationModifier: {}}", "no scheme and no config_groups"},
        {"q_modifiers: {QuantizationModifier: {targets: [q_proj]}}", "targets without scheme"},
        {"q_modifiers: {QuantizationModifier: {scheme: W4A16, config_groups: {}}}",
         "exclude each other"},
        {"q_modifiers: {QuantizationModifier: {scheme: 4}}", "a preset's name or a map"},
        {"q_modifiers: {QuantizationModifier: {config_groups: {g: {targets: [], weights: "
         "{num_bits: 4}}}}}",
         "targets"},
        {"q_modifiers: {QuantizationModifier: {config_groups: {g: 4}}}", "a map (targets, weights"},
        {"q_modifiers: {QuantizationModifier: {scheme: W4A16, block_size: 4}}",
         "unknown key 'block_size'"},
        {"q_modifiers: {SmoothQuantModifier: {}}", "alone quantizes nothing"},
        {"q_modifiers: {GPTQModifier: {scheme: W8A8}, SparseGPTModifier: {}}", "want it before"},
        {"q_modifiers: {SmoothQuantModifier: {scheme: W8A8}}",
         "'scheme' of SmoothQuantModifier: want mappings"},
        {"q_modifiers: {SmoothQuantModifier: {quality: best}}", "unknown key 'quality'"},
        {"q_modifiers: {SmoothQuantModifier: {smoothing_strength: 1.5}}", "smoothing_strength"},
        {"q_modifiers: {SmoothQuantModifier: {algorithm: awq}}", "algorithm"},
        {"q_modifiers: {SmoothQuantModifier: {mappings: []}}", "want a list of pairs"},
        {"q_modifiers: {SmoothQuantModifier: {mappings: [[q, k, n]]}}", "want a list of pairs"},
        {"q_modifiers: {SmoothQuantModifier: {mappings: [[[q], [n, m]]]}}", "want a list of pairs"},
        {"q_modifiers: {SmoothQuantModifier: {mappings: [[[], n]]}}", "want a list of pairs"},
        {"q_modifiers: {SmoothQuantModifier: {calibration_function: f}}", "calibration_function"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, block_size: 0}}", "block_size"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, dampening_frac: 2}}", "dampening_frac"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, block_size: 0200}}",
         "r.yaml:1:57: the number 0200 has a leading zero, so YAML 1.1 reads it in octal: want 128 "
         "for"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, tune: {steps: 010}}}",
         "r.yaml:1:59: the number 010 has"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, dampening_frac: 00}}",
         "the number 00 has a leading zero"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, actorder: group}}", "actorder 'group'"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, quality: good}}",
         "quality 'good': want fast, gptq or best"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, scale_search: grid}}",
         "scale_search 'grid': want none, mse or"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, scale_search: [ldl]}}",
         "scale_search '(a list or map)'"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, refine: descend}}",
         "want a list of at most 8"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, refine: [descend, CD]}}", "refine 'CD'"},
        {"q_modifiers: {GPTQModifier: {scheme: W4A16, refine: [descend, descend, descend, descend, "
         "descend, descend, "
         "descend, descend, descend]}}",
         "at most 8"},
        {"q_modifiers: {QuantizationModifier: {scheme: W4A16, kv_cache_scheme: {num_bits: 4}}}",
         "a cache of 4 bits: want 8"},
        {"q_modifiers: {QuantizationModifier: {scheme: W4A16, ignore: [4]}}",
         "a string or a list of strings"},
        {"q_modifiers: {QuantizationModifier: {scheme: W4A16, ignore: ['re:(']}}", "("},
    };
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        osh_recipe *r = NULL;
        char text[1024];
        snprintf(text, sizeof text,
                 "s_stage:\n  s_modifiers:\n    QuantizationModifier: {config_groups: {g: "
                 "{targets: [Linear], weights: "
                 "{%s}}}}\n",
                 weights[i].args);
        osh_status rc = osh_recipe_parse(cx, &r, text, strlen(text), "r.yaml");
        if (rc != weights[i].rc || !strstr(osh_error_text(cx), weights[i].part))
            fail_msg("%s: status %d, '%s' does not hold '%s'", weights[i].args, rc,
                     rc ? osh_error_text(cx) : "", weights[i].part);
        osh_error_clear(cx);
    }
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        osh_recipe *r = NULL;
        osh_status rc =
            osh_recipe_parse(cx, &r, recipes[i].text, strlen(recipes[i].text), "r.yaml");
        if (!rc || r || !strstr(osh_error_text(cx), recipes[i].part))
            fail_msg("%s: status %d, '%s' does not hold '%s'", recipes[i].text, rc,
                     rc ? osh_error_text(cx) : "", recipes[i].part);
        osh_error_clear(cx);
    }
}

static osh_status parse_all(osh_ctx *c, void *user)
{
    static const char text[] =
        "a_stage:\n  a_modifiers:\n    QuantizationModifier: {scheme: W4A16, ignore: [a]}\n"
        "  b_modifiers:\n    GPTQModifier: {actorder: weight}\n";
    osh_recipe *r = NULL;
    (void)user;
    osh_status rc = osh_recipe_parse(c, &r, text, sizeof text - 1, "r.yaml");
    osh_recipe_free(c, r);
    return rc;
}

static void test_torture(void **state)
{
    (void)state;
    assert_true(torture(parse_all, NULL) > 20);
}

/* An option whose name says that it is a path must have a use (read, write, ...) in its table row.
 * The checks of paths need this use. */
static void test_paths(void **state)
{
    (void)state;
    static const char *const names[] = {"model",   "recipe",    "dataset", "output", "reference",
                                        "profile", "per_token", "eval",    "dir",    "panel",
                                        "save_logits"};
    static const char *const tails[] = {"_dir", "_file", "_path", "_folder"};
    const osh_field *tables[64] = {osh_option_fields, osh_eval_fields,  osh_bench_fields,
                                   osh_verify_fields, osh_check_fields, osh_report_fields,
                                   osh_pull_fields,   osh_compare_fields};
    const size_t n_commands = 8;
    size_t n = n_commands, seen = 0;
    for (size_t i = 0; i < osh_modifier_count(); i++)
        if (osh_modifier_at(i)->fields) tables[n++] = osh_modifier_at(i)->fields;
    for (size_t t = 0; t < n; t++)
        for (const osh_field *f = tables[t]; f->name; f++) {
            bool path = false;
            for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                path |= !strcmp(f->name, names[i]);
            for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
                path |= strstr(f->name, tails[i]) != NULL;
            if (path && !f->path) fail_msg("%s has no .path", f->name);
            if (f->path && f->type != OSH_F_STR && !f->whole)
                fail_msg("%s has a .path and is no text", f->name);
            if (t >= n_commands && f->path && f->path != OSH_PATH_IN_OUTPUT)
                fail_msg("%s of a recipe", f->name);
            seen += path;
        }
    assert_true(seen > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_written_as_they_are_read),
        cmocka_unit_test(test_transforms),
        cmocka_unit_test(test_every_modifier),
        cmocka_unit_test(test_transforms),
        cmocka_unit_test(test_pruners),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_actorder),
        cmocka_unit_test(test_quality),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_written_back),
        cmocka_unit_test(test_scheme_and_observers),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
