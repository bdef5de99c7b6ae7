/* plan.c - opens source, recipe, tokenizer and data, and decides pipeline, subgraphs and passes. */
#include "plan/plan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/name.h"
#include "base/profile.h"
#include "modifiers/survey.h"
#include "plan/blocks.h"
#include "plan/dense.h"
#include "plan/experts.h"
#include "plan/folds.h"
#include "plan/gradients.h"
#include "plan/layout.h"
#include "plan/marks.h"
#include "plan/only.h"
#include "plan/passthrough.h"
#include "plan/rotations.h"
#include "plan/traversals.h"
#include "plan/tuning.h"
#include "quant/source.h"

const char *osh_pipeline_name(osh_pipeline_kind k)
{
    static const char *const names[] = {"sequential", "basic", "datafree"};
    return names[k];
}

const char *osh_plan_pipeline(const osh_plan *p)
{
    return p->n_traversals ? "independent" : osh_pipeline_name(p->pipeline);
}

static osh_status plan_open_source(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_only_open(cx, p));
    OSH_TRY(osh_source_open_to_compress(cx, &p->source, p->opt->model, p->only));
    p->ck = osh_source_checkpoint(p->source);
    const char *arch = p->ck->config->architecture;
    if (arch && osh_graph_knows(cx, arch, p->opt->models_dir)) {
        p->by_route = !p->opt->moe_calibrate_all_experts;
        rc = (p->by_route ? osh_graph_new_by_route : osh_graph_new)(
            cx, &p->graph, p->ck, p->opt->models_dir);
        /* Rounding needs no graph: see plan_choose_pipeline. */
        if (rc == OSH_E_UNSUPPORTED) rc = OSH_OK, osh_error_clear(cx);
        if (rc) goto done;
    }
done:
    return rc;
}

/* Replaces the recipe by the choice that was made of it. */
static osh_status recipe_take_choice(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_options *o = p->opt;
    osh_recipe_free(cx, p->recipe), p->recipe = NULL;
    rc = osh_recipe_parse_as(cx, &p->recipe, o->chosen, strlen(o->chosen),
                             o->recipe ? o->quality : NULL, "the choice");
    return rc;
}

static osh_status plan_begin_survey(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < p->recipe->n; i++) {
        osh_modifier *m = &p->recipe->modifiers[i];
        if (!osh_modifier_quantizes(m))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s changes weights before they are quantized, and --target-bits and "
                     "--target-size look at them as they are: want quantizers alone",
                     m->type->name);
        if (m->queries)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: --target-bits and --target-size write the groups anew, and those of "
                     "attention they do not write: want kv_cache_scheme, or none",
                     m->type->name);
        m->cache.present = false; // no weight depends on observed ranges of the cache
        if (!m->replaced) OSH_TRY(osh_survey_begin(cx, m));
    }
done:
    return rc;
}

static osh_status plan_open_recipe(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_options *o = p->opt;
    if (o->recipe && o->scheme)
        OSH_FAIL(cx, OSH_E_USAGE, "--recipe and --scheme exclude each other");
    if (!o->recipe && !o->scheme)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "neither --recipe nor --scheme is given: nothing says what to do");
    bool changed = o->num_bits || o->group_size || o->symmetric;
    if (o->recipe && (o->method || o->targets.n || o->ignore.n || changed))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--method, --targets, --ignore, --num-bits, --group-size and --symmetric go with "
                 "--scheme: a recipe says these itself");
    if (o->method && o->quality)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--method and --quality exclude each other: gptq is a quality, rtn is fast");
    const osh_graph *g = p->graph;
    const char *head = g ? g->modules[g->nodes[g->head].module].name : NULL;
    const osh_recipe_flags flags = {.scheme = o->scheme,
                                    .method = o->quality ? o->quality : o->method,
                                    .targets = &o->targets, .ignore = &o->ignore,
                                    .num_bits = o->num_bits, .group_size = o->group_size,
                                    .symmetric = o->symmetric, .head = head};
    bool spared = false;
    OSH_TRY(o->recipe ? osh_recipe_open(cx, &p->recipe, o->recipe, o->quality)
                      : osh_recipe_of_flags(cx, &p->recipe, &spared, &flags));
    p->spared = spared ? head : NULL;
    if (o->chosen) OSH_TRY(recipe_take_choice(cx, p));
    if (o->survey) OSH_TRY(plan_begin_survey(cx, p));
    for (size_t i = 0; i < p->recipe->n; i++)
        if (p->recipe->modifiers[i].n_candidates && !(o->target_bits > 0) && !o->target_size)
            osh_log(cx, OSH_LOG_INFO,
                    "candidates decides nothing without --target-bits or --target-size");
    p->arithmetic =
        o->arithmetic && !strcmp(o->arithmetic, "f32") ? OSH_ARITH_F32 : OSH_ARITH_REFERENCE;
    for (size_t i = 0; i < p->recipe->n; i++) p->recipe->modifiers[i].arithmetic = p->arithmetic;
done:
    return rc;
}

/* True if some scheme of the recipe wants statistics. Works before anything is matched. */
static bool recipe_wants_data(const osh_recipe *r)
{
    for (size_t m = 0; m < r->n; m++)
        if (osh_modifier_wants_data(&r->modifiers[m])) return true;
    return false;
}

/* Fails because the recipe needs data and the architecture has no graph. The error of osh_graph_new
 * lists the known architectures. */
static osh_status plan_refuse_architecture(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    char *said = NULL; // own
    if (!p->ck->config->architecture)
        osh_fail(cx, OSH_E_UNSUPPORTED, "%s names no architecture: a calibrated recipe needs one",
                 p->ck->config->path);
    else if (!(rc = osh_graph_new(cx, &p->graph, p->ck, p->opt->models_dir))) goto done;
    else if (rc != OSH_E_UNSUPPORTED) goto done;
    if (!(said = osh_strdup(cx, osh_error_text(cx))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a message");
    osh_error_clear(cx);
    OSH_FAIL(cx, OSH_E_UNSUPPORTED,
             "%s; without data any architecture will do: --quality fast, and a scheme without "
             "static activations",
             said);
done:
    osh_free(cx, said);
    return rc;
}

static osh_status plan_choose_pipeline(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const char *asked = p->opt->pipeline;
    bool wants = p->opt->measure || recipe_wants_data(p->recipe);
    p->propagate_error =
        !p->opt->survey && (!p->opt->propagate_error || !strcmp(p->opt->propagate_error, "true"));
    p->pipeline = wants ? OSH_PIPELINE_SEQUENTIAL : OSH_PIPELINE_DATAFREE;
    if (asked && !strcmp(asked, "sequential")) p->pipeline = OSH_PIPELINE_SEQUENTIAL;
    if (asked && !strcmp(asked, "basic")) p->pipeline = OSH_PIPELINE_BASIC;
    if (asked && !strcmp(asked, "datafree")) {
        if (wants)
            OSH_FAIL(cx, OSH_E_USAGE, "--pipeline datafree, but the recipe needs calibration data");
        p->pipeline = OSH_PIPELINE_DATAFREE;
    }
    if (!wants && p->pipeline != OSH_PIPELINE_DATAFREE) {
        osh_log(cx, OSH_LOG_WARN,
                "the recipe needs no calibration data: running datafree instead of %s",
                osh_pipeline_name(p->pipeline));
        p->pipeline = OSH_PIPELINE_DATAFREE;
    }
    if (wants && !p->graph) OSH_TRY(plan_refuse_architecture(cx, p));
    if (wants && !p->opt->dataset)
        OSH_FAIL(cx, OSH_E_USAGE, "the recipe needs calibration data: want --dataset FILE");
done:
    return rc;
}

osh_status osh_plan_data(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_options *o = p->opt;
    char *tok_path = osh_path_join(cx, o->model, "tokenizer.json"); // own
    if (!tok_path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_file_exists(tok_path)) OSH_TRY(osh_tokenizer_open(cx, &p->tok, o->model));
    p->max_seq_length = o->max_seq_length;
    if (!p->max_seq_length) {
        int64_t t = p->tok ? osh_tokenizer_model_max_length(p->tok) : 0;
        p->max_seq_length = p->graph->max_positions;
        if (t && t < p->max_seq_length) p->max_seq_length = t;
    }
    osh_dataset_options d = {
        .path = o->dataset, .text_column = o->text_column, .text_template = o->text_template,
        .split = o->splits, .model_dir = o->model, .chat_date = o->chat_date,
        .num_samples = o->num_calibration_samples, .max_seq_length = p->max_seq_length,
        .batch_size = o->batch_size > 0 ? o->batch_size : 1,
        .shuffle = o->shuffle_calibration_samples, .seed = (uint64_t)o->seed,
        .concatenate = o->concatenate_data, .pad_to_max_length = o->pad_to_max_length,
        .collator = o->data_collator, .n_vocab = p->graph->n_vocab,
    };
    OSH_TRY(osh_dataset_load(cx, &p->data, p->tok, &d));
    p->groups = osh_groups_of(p->data.n, o->sum_groups);
    for (int64_t s = 0; s < p->data.n; s++)
        if (p->data.offsets[s + 1] - p->data.offsets[s] > p->graph->max_positions)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "sample %ld of %s has %ld tokens, but the model has %ld positions: want "
                     "--max-seq-length %ld or less",
                     (long)(s + 1), o->dataset, (long)(p->data.offsets[s + 1] - p->data.offsets[s]),
                     (long)p->graph->max_positions, (long)p->graph->max_positions);
    osh_tokenizer_close(cx, p->tok), p->tok = NULL; // nothing reads text from here on
done:
    osh_free(cx, tok_path);
    return rc;
}

/* Warns if a module is not compared with the original model, but would be in smaller subgraphs. */
static void plan_warn_compared(osh_ctx *cx, const osh_plan *p)
{
    int could = 0, n = 0;
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (!(l->wants & OSH_STAT_SHIFT) || p->graph->values[l->input].original < 0) continue;
        could++, n += l->shift;
    }
    if (n < could)
        osh_log(cx, OSH_LOG_WARN,
                "target 'original': %d of %d modules are compared with the original model; with "
                "--sequential-targets Linear all of them",
                n, could);
}

/* Plans all that is known without data: the pipeline (only if to_run), and the output tensors. */
static osh_status plan_begin(osh_ctx *cx, osh_plan *p, const osh_options *opt, bool to_run)
{
    osh_status rc = OSH_OK;
    p->opt = opt;
    OSH_TRY(plan_open_source(cx, p));
    OSH_TRY(plan_open_recipe(cx, p));
    OSH_TRY(osh_only_check(cx, p));
    OSH_TRY(osh_plan_experts(cx, p));
    OSH_TRY(osh_plan_rotations(cx, p));
    if (to_run) OSH_TRY(plan_choose_pipeline(cx, p));
    OSH_TRY(osh_plan_match(cx, p));
    if (to_run) osh_online_warn(cx, p);
    OSH_TRY(osh_plan_by_route(cx, p));
    OSH_TRY(osh_plan_folds(cx, p));
    const osh_strs *cut = &opt->sequential_targets;
    if (to_run) OSH_TRY(osh_plan_blocks(cx, p));
    if (to_run) OSH_TRY(osh_plan_carry(cx, p));
    if (to_run && p->pipeline != OSH_PIPELINE_DATAFREE)
        OSH_TRY(osh_plan_cut(cx, p, (const char *const *)cut->items, cut->n,
                             opt->sequential_targets_per_subgraph));
    if (to_run && p->pipeline != OSH_PIPELINE_DATAFREE) OSH_TRY(osh_plan_passthrough(cx, p));
    if (to_run && p->parts) plan_warn_compared(cx, p);
    osh_plan_biases(p);
    OSH_TRY(osh_plan_manifest(cx, p));
    if (opt->survey) osh_plan_drop_output(cx, p);
done:
    return rc;
}

/* Refuses a name that is too long before the work: the output is built beside its final name, under
 * that name and a suffix. */
static osh_status check_output_name(osh_ctx *cx, const char *output)
{
    osh_status rc = OSH_OK;
    char *final = NULL; // own
    const size_t most = NAME_MAX - strlen(".oneshot-replaced"); // the longest suffix
    if (!output) goto done;
    if (!*output) OSH_FAIL(cx, OSH_E_USAGE, "--output is empty: want the name of a directory");
    OSH_TRY(osh_path_resolve(cx, &final, output));
    const char *name = osh_path_last(final);
    if (strlen(name) > most)
        OSH_FAIL(cx, OSH_E_USAGE,
            "--output %s: a name of %zu bytes, want %zu at most, as it gets a suffix meanwhile",
            output, strlen(name), most);
done:
    osh_free(cx, final);
    return rc;
}

osh_status osh_plan_new(osh_ctx *cx, osh_plan **out, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_plan *p = NULL; // own
    OSH_TRY(check_output_name(cx, opt->output));
    osh_mem_hold(cx, opt->host_memory, OSH_MEM_LEAST);
    OSH_NEW(cx, p, 1);
    OSH_TRY(plan_begin(cx, p, opt, true));
    OSH_TRY(osh_plan_marks(cx, p));
    OSH_TRY(osh_plan_device(cx, p));
    if (p->pipeline != OSH_PIPELINE_DATAFREE) {
        OSH_TRY(osh_mem_refused(cx, osh_plan_data(cx, p), opt->host_memory));
        OSH_TRY(osh_plan_seen(cx, p));
        OSH_TRY(osh_plan_batches(cx, p, p->opt->batch_size > 0 ? p->opt->batch_size : 1));
        p->memory.load_bytes = osh_mem_held(cx);
    }
    /* For the plan's own lists; the run is limited to its prediction. */
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    OSH_TRY(osh_plan_tune(cx, p));
    if (opt->survey) OSH_TRY(osh_plan_gradients(cx, p));
    OSH_TRY(osh_plan_traversals(cx, p)); // and the memory of each
    *out = p, p = NULL;
done:
    osh_plan_free(cx, p);
    return rc;
}

osh_status osh_plan_of_output(osh_ctx *cx, osh_plan **out, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_plan *p = NULL; // own
    OSH_NEW(cx, p, 1);
    OSH_TRY(plan_begin(cx, p, opt, false));
    *out = p, p = NULL;
done:
    osh_plan_free(cx, p);
    return rc;
}

void osh_plan_free(osh_ctx *cx, osh_plan *p)
{
    if (!p) return;
    osh_plan_traversals_free(cx, p);
    for (size_t i = 0; i < p->n_schemes; i++) osh_q_scheme_deinit(cx, &p->schemes[i]);
    for (int i = 0; i < p->n_linears; i++) {
        osh_free(cx, p->linears[i].name);
        osh_tensor_free(cx, p->linears[i].care);
        osh_tensor_free(cx, p->linears[i].care_in);
    }
    osh_plan_drop_output(cx, p);
    osh_free(cx, p->schemes);
    osh_free(cx, p->linears);
    osh_free(cx, p->inherits);
    osh_free(cx, p->readers);
    osh_free(cx, p->users);
    osh_free(cx, p->passes);
    osh_free(cx, p->tune_not);
    osh_free(cx, p->gradients_not);
    osh_graph_free(cx, p->tune_graph);
    osh_free(cx, p->tuned);
    osh_free(cx, p->memory.visits);
    osh_places_free(cx, p->memory.places);
    osh_free(cx, p->batch_at);
    osh_free(cx, p->seen);
    osh_device_close(cx, p->device);
    osh_strs_deinit(cx, &p->ignore);
    osh_plan_dense_free(cx, p);
    osh_plan_marks_free(cx, p);
    osh_plan_folds_free(cx, p);
    osh_plan_experts_free(cx, p);
    osh_free(cx, p->format);
    osh_free(cx, p->quantization_json);
    osh_free(cx, p->config_text);
    osh_dataset_deinit(cx, &p->data);
    osh_tokenizer_close(cx, p->tok);
    osh_partition_free(cx, p->parts);
    osh_graph_free(cx, p->graph);
    osh_recipe_free(cx, p->recipe);
    osh_source_close(cx, p->source);
    osh_matcher_free(cx, p->only);
    osh_plan_rotations_free(cx, p);
    osh_free(cx, p);
}
