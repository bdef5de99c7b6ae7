/* plan.c - makes the plan. Opens the source, the recipe, the tokenizer and the data, and calls the
 * functions that compute the parts of the plan (plan.h). */
#include "plan/plan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/name.h"
#include "base/profile.h"
#include "graph/templates.h"
#include "modifiers/survey.h"
#include "plan/best.h"
#include "schedule/blocks.h"
#include "match/dense.h"
#include "rewrite/experts.h"
#include "rewrite/folds.h"
#include "plan/gradients.h"
#include "budget/layout.h"
#include "budget/memory.h"
#include "plan/marks.h"
#include "match/only.h"
#include "match/padding.h"
#include "rewrite/passthrough.h"
#include "rewrite/rotations.h"
#include "plan/traversals.h"
#include "schedule/tuning.h"
#include "quant/source.h"

static const char *pipeline_name(osh_pipeline_kind k)
{
    static const char *const names[] = {"sequential", "basic", "datafree"};
    return names[k];
}

const char *osh_plan_pipeline(const osh_plan *p)
{
    return p->n_traversals ? "independent" : pipeline_name(p->in.pipeline);
}

void osh_plan_join(osh_plan *p)
{
    const osh_inputs *in = &p->in;
    const osh_matching *match = &p->match;
    p->match.in = in;
    p->rewrites.in = in, p->rewrites.match = match;
    p->manifest.in = in, p->manifest.match = match, p->manifest.rewrites = &p->rewrites;
    p->schedule.in = in, p->schedule.match = match, p->schedule.rewrites = &p->rewrites;
    p->budget.in = in, p->budget.match = match, p->budget.rewrites = &p->rewrites;
    p->budget.manifest = &p->manifest, p->budget.schedule = &p->schedule;
}

static osh_status plan_open_source(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_only_open(cx, &p->in));
    OSH_TRY(osh_source_open_to_compress(cx, &p->in.source, p->in.opt->model,
                                        p->in.opt->adapter, p->in.only,
                                        osh_target_is(p->in.opt, "vllm")));
    p->in.ck = osh_source_checkpoint(p->in.source);
    const char *arch = p->in.ck->config->architecture;
    if (arch && osh_graph_knows(cx, arch, p->in.opt->models_dir)) {
        p->in.by_route = !p->in.opt->moe_calibrate_all_experts;
        rc = osh_inputs_build_graph(cx, &p->in);
        /* The run may need no graph, because rounding needs no data. So an unknown architecture is
         * no error here. If data is needed, plan_choose_pipeline fails later. */
        if (rc == OSH_E_UNSUPPORTED) rc = OSH_OK, osh_error_clear(cx);
        if (rc) goto done;
    } else if (p->in.opt->models_dir)
        OSH_TRY(osh_templates_check(cx, p->in.opt->models_dir));
done:
    return rc;
}

/* Replaces the recipe by opt->chosen, in which a survey has chosen a scheme for each module. */
static osh_status recipe_take_choice(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_options *o = p->in.opt;
    osh_recipe_free(cx, p->in.recipe), p->in.recipe = NULL;
    rc = osh_recipe_parse_as(cx, &p->in.recipe, o->chosen, strlen(o->chosen),
                             o->recipe ? o->quality : NULL, "the choice");
    return rc;
}

static osh_status plan_begin_survey(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < p->in.recipe->n; i++) {
        osh_modifier *m = &p->in.recipe->modifiers[i];
        if (!osh_modifier_quantizes(m))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s changes weights before they are quantized, but --target-bits and "
                     "--target-size measure the weights of the source: want only quantizers",
                     m->type->name);
        if (m->queries)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: --target-bits and --target-size replace all config groups and do not "
                     "support groups of attention: want kv_cache_scheme, or no such group",
                     m->type->name);
        /* The survey measures changes of weights. Codes for keys and values in the cache do not
         * change weights, so the survey leaves them out. */
        m->cache.present = false;
        if (!m->replaced) OSH_TRY(osh_survey_begin(cx, m));
    }
done:
    return rc;
}

static osh_status plan_open_recipe(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_options *o = p->in.opt;
    if (o->recipe && o->scheme)
        OSH_FAIL(cx, OSH_E_USAGE, "--recipe and --scheme exclude each other");
    if (!o->recipe && !o->scheme)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "want --recipe or --scheme, got none of them");
    bool changed = o->num_bits || o->group_size || o->symmetric;
    if (o->recipe && (o->method || o->targets.n || o->ignore.n || changed))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--method, --targets, --ignore, --num-bits, --group-size and --symmetric need "
                 "--scheme: a recipe has its own values for these");
    if (o->method && o->quality)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--method and --quality exclude each other: gptq is a quality, rtn is fast");
    const osh_graph *g = p->in.graph;
    const char *head = g ? g->modules[g->nodes[g->head].module].name : NULL;
    int64_t group = p->in.group_size ? p->in.group_size : o->group_size;
    const osh_recipe_flags flags = {.scheme = o->scheme,
                                    .method = o->quality ? o->quality : o->method,
                                    .targets = &o->targets, .ignore = &o->ignore,
                                    .num_bits = o->num_bits, .group_size = group,
                                    .symmetric = o->symmetric, .head = head};
    bool spared = false;
    OSH_TRY(o->recipe ? osh_recipe_open(cx, &p->in.recipe, o->recipe, o->quality)
                      : osh_recipe_of_flags(cx, &p->in.recipe, &spared, &flags));
    p->in.spared = spared ? head : NULL;
    if (o->chosen) OSH_TRY(recipe_take_choice(cx, p));
    osh_best_begin(&p->in);
    if (o->survey) OSH_TRY(plan_begin_survey(cx, p));
    for (size_t i = 0; i < p->in.recipe->n; i++)
        if (p->in.recipe->modifiers[i].n_candidates && !osh_wants_choice(o))
            osh_log(cx, OSH_LOG_INFO,
                    "candidates has no effect without --target-bits or --target-size");
    p->in.arithmetic =
        o->arithmetic && !strcmp(o->arithmetic, "f32") ? OSH_ARITH_F32 : OSH_ARITH_REFERENCE;
    for (size_t i = 0; i < p->in.recipe->n; i++)
        p->in.recipe->modifiers[i].arithmetic = p->in.arithmetic;
done:
    return rc;
}

/* True if the recipe needs calibration data. Can be called before modules are matched. */
static bool recipe_wants_data(const osh_recipe *r)
{
    for (size_t m = 0; m < r->n; m++)
        if (osh_modifier_wants_data(&r->modifiers[m])) return true;
    return false;
}

/* Refuses a recipe that needs data, because there is no graph for an unknown architecture. The
 * message contains the error of osh_graph_new, which lists the known architectures. */
static osh_status plan_refuse_architecture(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    char *said = NULL; // own
    if (!p->in.ck->config->architecture)
        osh_fail(cx, OSH_E_UNSUPPORTED, "%s names no architecture: a calibrated recipe needs one",
                 p->in.ck->config->path);
    else if (!(rc = osh_graph_new(cx, &p->in.graph, p->in.ck, p->in.opt->models_dir))) goto done;
    else if (rc != OSH_E_UNSUPPORTED) goto done;
    if (!(said = osh_strdup(cx, osh_error_text(cx))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a message");
    osh_error_clear(cx);
    OSH_FAIL(cx, OSH_E_UNSUPPORTED,
             "%s; without data, every architecture is supported: want --quality fast, and a scheme "
             "without static activations; if transformers runs the model, `python -m "
             "oneshot.template DIR` of the wheel writes its template",
             said);
done:
    osh_free(cx, said);
    return rc;
}

static osh_status plan_choose_pipeline(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const char *asked = p->in.opt->pipeline;
    bool wants = p->in.opt->measure || recipe_wants_data(p->in.recipe);
    p->in.propagate_error = !p->in.opt->survey && (!p->in.opt->propagate_error ||
                                                   !strcmp(p->in.opt->propagate_error, "true"));
    p->in.pipeline = wants ? OSH_PIPELINE_SEQUENTIAL : OSH_PIPELINE_DATAFREE;
    if (asked && !strcmp(asked, "sequential")) p->in.pipeline = OSH_PIPELINE_SEQUENTIAL;
    if (asked && !strcmp(asked, "basic")) p->in.pipeline = OSH_PIPELINE_BASIC;
    if (asked && !strcmp(asked, "datafree")) {
        if (wants)
            OSH_FAIL(cx, OSH_E_USAGE, "--pipeline datafree, but the recipe needs calibration data");
        p->in.pipeline = OSH_PIPELINE_DATAFREE;
    }
    if (!wants && p->in.pipeline != OSH_PIPELINE_DATAFREE) {
        osh_log(cx, OSH_LOG_WARN,
                "the recipe needs no calibration data: running datafree instead of %s",
                pipeline_name(p->in.pipeline));
        p->in.pipeline = OSH_PIPELINE_DATAFREE;
    }
    if (!wants && osh_masks_answers(p->in.opt))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--loss-mask answers, but the recipe needs no calibration data, so there are no "
                 "answers: want a recipe with data, such as --quality gptq --dataset FILE, or no "
                 "--loss-mask");
    if (wants && !p->in.graph) OSH_TRY(plan_refuse_architecture(cx, p));
    if (wants && !p->in.opt->dataset.n)
        OSH_FAIL(cx, OSH_E_USAGE, "the recipe needs calibration data: want --dataset FILE");
done:
    return rc;
}

/* Checks the samples if the job has `--loss-mask answers`. Only tokens of answers then count in
 * statistics. Fails if no token counts. Warns about samples in which no token counts. */
static osh_status plan_check_answers(osh_ctx *cx, osh_inputs *in)
{
    int64_t none = 0;
    const osh_dataset *d = &in->data;
    in->mix.n_counted = osh_dataset_n_counted(d, 0, d->n);
    if (!in->mix.n_counted)
        return osh_fail(
            cx, OSH_E_USAGE,
            "--loss-mask answers: %s%s: none of the %lld tokens is part of an answer, in "
            "samples of at most %lld tokens",
            in->mix.sets[0].path, in->mix.n > 1 ? " and others" : "", (long long)d->offsets[d->n],
            (long long)in->max_seq_length);
    for (int64_t s = 0; s < d->n; s++) none += !osh_dataset_n_counted(d, s, s + 1);
    if (none)
        osh_log(cx, OSH_LOG_WARN,
                "--loss-mask answers: %lld of %lld samples have no token of an answer within %lld "
                "tokens",
                (long long)none, (long long)d->n, (long long)in->max_seq_length);
    return OSH_OK;
}

/* Loads the calibration samples with the tokenizer of the model. */
static osh_status plan_load_data(osh_ctx *cx, osh_inputs *in)
{
    osh_status rc = OSH_OK;
    const osh_options *o = in->opt;
    char *tok_path = osh_path_join(cx, o->model, "tokenizer.json"); // own
    if (!tok_path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_file_exists(tok_path)) OSH_TRY(osh_tokenizer_open(cx, &in->tok, o->model));
    in->max_seq_length = o->max_seq_length;
    if (in->max_seq_length <= 0) {
        int64_t t = in->tok ? osh_tokenizer_model_max_length(in->tok) : 0;
        in->max_seq_length = in->graph->max_positions;
        if (t && t < in->max_seq_length) in->max_seq_length = t;
        osh_best_length(in);
    }
    osh_dataset_options d = {
        .model_dir = o->model, .chat_date = o->chat_date, .num_samples = osh_samples_asked(o),
        .num_tokens = o->num_calibration_tokens, .max_seq_length = in->max_seq_length,
        .batch_size = o->batch_size > 0 ? o->batch_size : 1,
        .shuffle = o->shuffle_calibration_samples, .seed = (uint64_t)o->seed,
        .concatenate = o->concatenate_data, .pad_to_max_length = o->pad_to_max_length,
        .collator = o->data_collator, .answers = osh_masks_answers(o),
        .n_vocab = in->graph->n_vocab,
    };
    const osh_mix_texts texts = {&o->dataset, &o->splits, &o->text_column, &o->text_template};
    OSH_TRY(osh_mix_read(cx, &in->mix, &texts));
    OSH_TRY(osh_mix_load(cx, &in->data, &in->mix, in->tok, &d));
    if (d.answers) OSH_TRY(plan_check_answers(cx, in));
    in->groups = osh_groups_of(in->data.n, o->sum_groups);
    for (int64_t s = 0; s < in->data.n; s++)
        if (in->data.offsets[s + 1] - in->data.offsets[s] > in->graph->max_positions)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "sample %ld of %s%s has %ld tokens, but the model has %ld positions%s: want "
                     "--max-seq-length %ld or less",
                     (long)(s + 1), in->mix.sets[0].path, in->mix.n > 1 ? " and others" : "",
                     (long)(in->data.offsets[s + 1] - in->data.offsets[s]),
                     (long)in->graph->max_positions, osh_positions_why(in->graph),
                     (long)in->graph->max_positions);
    // all text is tokenized now, so the tokenizer is closed
    osh_tokenizer_close(cx, in->tok), in->tok = NULL;
done:
    osh_free(cx, tok_path);
    return rc;
}

/* Some modifiers need the input of a module in the quantized model and in the original model. Warns
 * if the run has both for only some of the modules. With `--sequential-targets Linear`, it has both
 * for all modules. */
static void plan_warn_compared(osh_ctx *cx, const osh_plan *p)
{
    int could = 0, n = 0;
    for (int i = 0; i < p->match.n_linears; i++) {
        const osh_linear *l = &p->match.linears[i];
        if (!(l->wants & OSH_STAT_SHIFT) || p->in.graph->values[l->input].original < 0) continue;
        could++, n += l->shift;
    }
    if (n < could)
        osh_log(cx, OSH_LOG_WARN,
                "target 'original': %d of %d modules are compared with the original model; with "
                "--sequential-targets Linear all of them",
                n, could);
}

/* Matches modules with schemes. If `quality best` then chooses another group size, opens the recipe
 * again and matches the modules again. */
static osh_status plan_match(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_plan_match(cx, &p->match));
    if (!p->match.smaller_groups) goto done;
    p->in.group_size = p->match.smaller_groups, p->match.smaller_groups = 0;
    osh_match_clear(cx, &p->match);
    osh_recipe_free(cx, p->in.recipe), p->in.recipe = NULL;
    OSH_TRY(plan_open_recipe(cx, p));
    OSH_TRY(osh_plan_match(cx, &p->match));
done:
    return rc;
}

/* With --indivisible pad, adds zeros to the source. Then opens the recipe again. The first recipe
 * cannot be used: its matchers have already counted matches, and it may name modules of the old
 * graph. */
static osh_status plan_pad(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    bool padded;
    if (!osh_padding_asked(p->in.opt)) goto done;
    OSH_TRY(osh_plan_padding(cx, &padded, &p->in));
    osh_recipe_free(cx, p->in.recipe), p->in.recipe = NULL;
    OSH_TRY(plan_open_recipe(cx, p));
done:
    return rc;
}

/* Makes the parts of the plan that need no data. Chooses the pipeline only if to_run is true. */
static osh_status plan_begin(osh_ctx *cx, osh_plan *p, const osh_options *opt, bool to_run)
{
    osh_status rc = OSH_OK;
    osh_plan_join(p);
    p->in.opt = opt;
    OSH_TRY(plan_open_source(cx, p));
    OSH_TRY(plan_open_recipe(cx, p));
    OSH_TRY(osh_only_check(cx, &p->match));
    OSH_TRY(plan_pad(cx, p));
    OSH_TRY(osh_plan_experts(cx, &p->rewrites, &p->in));
    OSH_TRY(osh_experts_left(cx, &p->match.experts_left, &p->rewrites));
    OSH_TRY(osh_plan_rotations(cx, &p->rewrites, &p->in));
    p->match.transforms = p->rewrites.rotated ? &p->rewrites.rotated->transforms : NULL;
    if (to_run) OSH_TRY(plan_choose_pipeline(cx, p));
    bool runs = to_run && p->in.pipeline != OSH_PIPELINE_DATAFREE;
    OSH_TRY(plan_match(cx, p));
    if (to_run) osh_online_warn(cx, &p->rewrites);
    OSH_TRY(osh_plan_by_route(cx, &p->match));
    OSH_TRY(osh_plan_folds(cx, &p->rewrites));
    if (to_run) OSH_TRY(osh_plan_blocks(cx, &p->schedule, &p->match));
    if (to_run) OSH_TRY(osh_plan_carry(cx, &p->schedule, &p->match));
    if (runs)
        OSH_TRY(osh_plan_cut(cx, &p->schedule, &p->match, &p->rewrites, p->in.targets,
                             opt->sequential_targets_per_subgraph));
    if (runs) OSH_TRY(osh_plan_passthrough(cx, &p->rewrites, &p->match, p->schedule.parts));
    if (to_run && p->schedule.parts) plan_warn_compared(cx, p);
    osh_plan_biases(&p->schedule, &p->match);
    OSH_TRY(osh_plan_manifest(cx, &p->manifest, &p->match));
    if (opt->survey) osh_plan_drop_output(cx, &p->manifest, &p->match);
done:
    return rc;
}

/* Fails if the name of the output is too long, before any work is done. The output is built under
 * this name with a suffix, so there must be room for the suffix. */
static osh_status check_output_name(osh_ctx *cx, const char *output)
{
    osh_status rc = OSH_OK;
    char *final = NULL; // own: path of the output directory
    // length of the longest name that leaves room for the longest suffix
    const size_t most = NAME_MAX - strlen(".oneshot-replaced");
    if (!output) goto done;
    if (!*output) OSH_FAIL(cx, OSH_E_USAGE, "--output is empty: want the name of a directory");
    OSH_TRY(osh_path_resolve(cx, &final, output));
    const char *name = osh_path_last(final);
    if (strlen(name) > most)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--output %s: a name of %zu bytes, want %zu at most, because the unfinished "
                 "output has a suffix",
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
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE) {
        OSH_TRY(osh_mem_refused(cx, plan_load_data(cx, &p->in), opt->host_memory));
        OSH_TRY(osh_plan_seen(cx, &p->schedule));
        OSH_TRY(osh_plan_batches(cx, &p->schedule,
                                 p->in.opt->batch_size > 0 ? p->in.opt->batch_size : 1));
        p->budget.memory.load_bytes = osh_mem_held(cx);
    }
    /* Making the plan may use any amount of memory. The run is later limited to the peak that the
     * plan predicts. */
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    OSH_TRY(osh_plan_tune(cx, &p->schedule));
    if (opt->survey) OSH_TRY(osh_plan_gradients(cx, p));
    OSH_TRY(osh_plan_traversals(cx, p));
    if (!p->n_traversals) OSH_TRY(osh_plan_memory(cx, &p->budget));
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
    osh_plan_drop_output(cx, &p->manifest, &p->match);
    osh_match_clear(cx, &p->match);
    osh_free(cx, p->rewrites.inherits);
    osh_free(cx, p->match.readers);
    osh_free(cx, p->match.users);
    osh_free(cx, p->schedule.passes);
    osh_free(cx, p->schedule.tune_not);
    osh_free(cx, p->gradients_not);
    osh_graph_free(cx, p->schedule.tune_graph);
    osh_free(cx, p->manifest.tuned);
    osh_free(cx, p->schedule.visits);
    osh_places_free(cx, p->budget.memory.places);
    osh_free(cx, p->schedule.batch_at);
    osh_free(cx, p->schedule.seen);
    osh_device_close(cx, p->in.device);
    osh_strs_deinit(cx, &p->match.ignore);
    osh_plan_dense_free(cx, &p->match);
    osh_plan_marks_free(cx, p);
    osh_plan_folds_free(cx, &p->rewrites);
    osh_plan_experts_free(cx, &p->rewrites);
    osh_free(cx, p->match.format);
    osh_free(cx, p->match.quantization_json);
    osh_free(cx, p->match.experts_left);
    osh_free(cx, p->manifest.config_text);
    osh_dataset_deinit(cx, &p->in.data);
    osh_mix_deinit(cx, &p->in.mix);
    osh_tokenizer_close(cx, p->in.tok);
    osh_partition_free(cx, p->schedule.parts);
    osh_graph_free(cx, p->in.graph);
    osh_recipe_free(cx, p->in.recipe);
    osh_source_close(cx, p->in.source);
    osh_matcher_free(cx, p->in.only);
    osh_plan_rotations_free(cx, &p->rewrites);
    osh_free(cx, p);
}
