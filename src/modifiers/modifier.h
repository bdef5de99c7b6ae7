/* modifier.h - the modifiers of a recipe. A quantizer or a pruner declares which statistics of a
 * Linear's input it needs, and converts weights to codes when the statistics are complete. A
 * transform computes a factor for each channel of a layer's output. Before quantization, the
 * weights of the layer are divided by the factors, and the weights of the Linears that read the
 * output are multiplied by the factors. No modifier changes the forward pass. A new modifier needs
 * a file src/modifiers/foo.c with `const osh_modifier_type osh_modifier_foo`, and a row in
 * modifiers.def. */
#ifndef OSH_MODIFIER_H
#define OSH_MODIFIER_H
#include "base/field.h"
#include "modifiers/kinds.h"
#include "text/match.h"
#include "text/yaml.h"

/* Largest number of candidates of a survey: 2 to 8 bits, or named schemes. */
enum { OSH_CANDIDATES = 7 };
typedef struct osh_candidate {
    /* Number of bits of the weights; all other arguments are those of the scheme. 0: the candidate
     * is a named scheme. */
    int bits;
    char name[16];              // name of the scheme, such as "NVFP4A16"; "" if bits is not 0
    osh_q_args weights, inputs; // arguments of a named scheme
} osh_candidate;
typedef struct osh_modifier_type osh_modifier_type;
struct osh_modifier {
    const osh_modifier_type *type;
    void *args; // own: arguments of the modifier, type->bytes bytes, described by type->fields
    osh_q_scheme *schemes;  // own
    size_t n_schemes;
    osh_strs ignore;        // own
    osh_matcher *ignored;   // own
    osh_matcher *targets; // own: matcher of the targets of all schemes, one scheme after the other
    int *target_scheme;     // own: index of the scheme of each target
    /* Arguments of the keys and values of attention: kv_cache_scheme, or the input_activations of a
     * config group for attention. */
    osh_q_args cache;
    /* True: `cache` is from a config group and also applies to queries. */
    bool queries;
    bool has_config;        // true: the recipe has `scheme` or `config_groups` for the modifier
    bool best;              // true: the quality of the modifier is best
    /* True if a later GPTQModifier without schemes of its own uses the schemes of this modifier. */
    bool replaced;
    osh_candidate *candidates; // own [n_candidates]: candidates for --target-bits. n_candidates 0:
                               // any number of bits
    int n_candidates;
    // the type of the quantizer that a survey replaces (survey.h); NULL: the modifier is no survey
    const osh_modifier_type *surveyed;
    osh_arithmetic arithmetic;
};

typedef struct osh_asks { // a measurement that a modifier needs before the job
    /* Static text: key of the modifier that holds the result; NULL: the modifier needs no
     * measurement. */
    const char *key;
    bool known;      // true if the recipe already has the key
} osh_asks;
/* The row of a modifier: members that all modifiers have, and the tables of its kinds. */
struct osh_modifier_type {
    const char *name; // such as "GPTQModifier"
    const osh_field *fields;
    size_t bytes;     // size of the arguments
    /* Reads a key that the table of fields cannot describe. Sets *known to false if the modifier
     * has no such key. */
    osh_status (*key)(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *value,
                      bool *known, const char *what);
    const char *keys; // names of the keys that `key` reads, for error messages
    /* called after the last key was read; may be NULL */
    osh_status (*resolve)(osh_ctx *cx, osh_modifier *m);
    // frees the members of args that are not in `fields`; NULL: there are no such members
    void (*end)(osh_ctx *cx, osh_modifier *m);
    /* Returns the measurement that must run before the job, because the job depends on its result.
     * NULL: there is none. */
    osh_asks (*asks)(const osh_modifier *m);
    bool host_only;   // true: the modifier does not run on a GPU
    /* Tables of the kinds (kinds.h). NULL: the modifier is not of the kind. */
    const osh_solver *solver;
    const osh_quantizer *quantizer;
    const osh_learner *learner;
    const osh_pruner *pruner;
    const osh_transform *transform;
    const osh_rewriter *rewriter;
};
bool osh_modifier_wants_data(const osh_modifier *m); // true if the modifier needs a statistic
/* True if the modifier quantizes Linears. Its schemes are then the schemes of Linears. */
static inline bool osh_modifier_quantizes(const osh_modifier *m)
{
    return m->type->quantizer != NULL;
}
/* True if the modifier changes weights that it does not name as targets. */
bool osh_modifier_changes_others(const osh_modifier *m);
/* True if the statistics of an expert include all tokens, even those that the router sends to other
 * experts. */
static inline bool osh_modifier_sees_all_tokens(const osh_modifier *m)
{
    return m->type->transform != NULL;
}
/* True if the modifier changes the model before its modules are matched. */
static inline bool osh_modifier_rewrites(const osh_modifier *m)
{
    return m->type->rewriter != NULL;
}
static inline bool osh_modifier_learns(const osh_modifier *m) { return m->type->learner != NULL; }
/* Returns the rule (view) for learning from the output of a block; NULL: the modifier does not
 * learn. */
const osh_block_rule *osh_modifier_blocks(const osh_modifier *m);
/* Returns the probability that an element of an input is taken from the quantized model and not
 * from the original model. */
double osh_modifier_share(const osh_modifier *m);
unsigned osh_modifier_freedom(const osh_modifier *m); // returns OSH_FREE_* bits
/* Returns the rule (view) of the tuning that follows all solves; NULL: there is no tuning. */
const struct osh_tune_rule *osh_modifier_tunes(const osh_modifier *m);
const char *osh_modifier_step(const osh_modifier *m, int k); // returns the name of step k, or NULL
/* Quantizes n jobs by rounding to nearest, with the schemes and the arithmetic of m. */
osh_status osh_modifier_round(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n);
/* Returns the properties that the check of the output requires of a weight that m has pruned. */
static inline osh_prune_rule osh_modifier_prune_rule(const osh_modifier *m, double sparsity)
{
    return m->type->pruner->rule(m, sparsity);
}
static inline osh_asks osh_modifier_asks(const osh_modifier *m)
{
    return m->type->asks ? m->type->asks(m) : (osh_asks){0};
}
/* Returns the type of the modifier with this name; NULL: there is none. */
const osh_modifier_type *osh_modifier_find(const char *name);
/* Returns the quantizer that rounds to nearest, without a Hessian. */
const osh_modifier_type *osh_modifier_nearest(void);
size_t osh_modifier_count(void);
const osh_modifier_type *osh_modifier_at(size_t i);

/* Sets *scheme to the index of the scheme that m applies to a module. Sets *scheme to -1 if no
 * target matches or if `ignore` matches the module. */
osh_status osh_modifier_match(osh_ctx *cx, int *scheme, osh_modifier *m, const char *name,
                              const char *cls);
void osh_modifier_deinit(osh_ctx *cx, osh_modifier *m);
#endif
