/* modifier.h - declares the modifiers of a recipe. None of them changes the forward pass. A
 * quantizer or a pruner declares which statistics of a Linear's input it needs. When the statistics
 * are complete, it converts weights to codes. A transform computes a factor for each channel of a
 * layer's output. Before quantization, the weights of the layer are divided by the factors, and the
 * weights of the Linears that read the output are multiplied by the factors. A new modifier needs a
 * file src/modifiers/foo.c with `const osh_modifier_type osh_modifier_foo`, and a row in
 * modifiers.def. */
#ifndef OSH_MODIFIER_H
#define OSH_MODIFIER_H
#include "base/field.h"
#include "modifiers/kinds.h"
#include "text/match.h"
#include "text/yaml.h"

/* Largest number of candidates of a survey. A survey compares its candidates, which are schemes. A
 * candidate is a number of bits from 2 to 8, or a named scheme. */
enum { OSH_CANDIDATES = 7 };
typedef struct osh_candidate {
    /* Number of bits of the weights; everything else is as in the scheme of the recipe. 0: the
     * candidate is a named scheme. */
    int bits;
    char name[16];              // name of a named scheme, such as "NVFP4A16"; else ""
    osh_q_args weights, inputs; // arguments of a named scheme
} osh_candidate;
typedef struct osh_modifier_type osh_modifier_type;
struct osh_modifier {
    const osh_modifier_type *type;
    /* Own: arguments of the modifier. type->bytes is their size, and type->fields describes
     * them. */
    void *args;
    osh_q_scheme *schemes;  // own
    size_t n_schemes;
    osh_strs ignore;        // own
    osh_matcher *ignored;   // own
    osh_matcher *targets; // own: matches a module with the targets of all schemes
    int *target_scheme;     // own: index of the scheme to which each target belongs
    /* How keys and values of attention are quantized: kv_cache_scheme, or input_activations of a
     * config group for attention. */
    osh_q_args cache;
    /* True: `cache` comes from a config group, so queries are quantized, too. */
    bool queries;
    bool has_config;        // true: the recipe has `scheme` or `config_groups` for the modifier
    bool best;              // true: the modifier has quality best
    /* True: the modifier has no effect. A later GPTQModifier without schemes of its own uses the
     * schemes of this modifier. */
    bool replaced;
    /* Own [n_candidates]: candidates for --target-bits. If there are none, any number of bits is a
     * candidate. */
    osh_candidate *candidates;
    int n_candidates;
    // Type of the quantizer that a survey replaces (survey.h). NULL: the modifier is not a survey.
    const osh_modifier_type *surveyed;
    osh_arithmetic arithmetic;
};

typedef struct osh_asks { // a measurement that must run before the modifier
    /* Static text: name of the recipe key for the result of the measurement. NULL: no measurement
     * is needed. */
    const char *key;
    bool known;      // true: the recipe already has the key
} osh_asks;
/* The type of a modifier: members that all modifiers have, and the tables of its kinds. */
struct osh_modifier_type {
    const char *name; // name in recipes, such as "GPTQModifier"
    const osh_field *fields;
    size_t bytes;     // size of the arguments in bytes
    /* Reads a key that the table `fields` cannot describe. Sets *known to false if the modifier has
     * no such key. */
    osh_status (*key)(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *value,
                      bool *known, const char *what);
    const char *keys; // names of the keys that the function `key` reads, for error messages
    /* Is called after all keys are read. May be NULL. */
    osh_status (*resolve)(osh_ctx *cx, osh_modifier *m);
    // Frees the arguments that `fields` does not describe. NULL: there are no such arguments.
    void (*end)(osh_ctx *cx, osh_modifier *m);
    /* Returns the measurement that must run before the modifier. NULL: there is none. */
    osh_asks (*asks)(const osh_modifier *m);
    /* One table for each kind (kinds.h). NULL: the modifier is not of that kind. */
    const osh_solver *solver;
    const osh_quantizer *quantizer;
    const osh_learner *learner;
    const osh_pruner *pruner;
    const osh_transform *transform;
    const osh_rewriter *rewriter;
};
bool osh_modifier_wants_data(const osh_modifier *m); // true if m needs a statistic of inputs
/* True if the modifier quantizes Linears. The Linears then get the schemes of the modifier. */
static inline bool osh_modifier_quantizes(const osh_modifier *m)
{
    return m->type->quantizer != NULL;
}
/* True if the modifier changes weights that are not among its targets. */
bool osh_modifier_changes_others(const osh_modifier *m);
/* True if the statistics of an expert include all tokens, also those that the router sends to other
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
/* Returns how a block is learned (view), or NULL if m does not learn by block. */
const osh_block_rule *osh_modifier_blocks(const osh_modifier *m);
/* Returns the probability that an element of an input comes from the quantized model. All other
 * elements come from the original model. */
double osh_modifier_share(const osh_modifier *m);
/* Returns the differences from rounding to nearest that m may cause (OSH_FREE_* bits). */
unsigned osh_modifier_freedom(const osh_modifier *m);
/* Returns how the model is tuned after all solves (view), or NULL if it is not tuned. */
const struct osh_tune_rule *osh_modifier_tunes(const osh_modifier *m);
/* Returns the name of step k of a solve, or NULL if it has none. */
const char *osh_modifier_step(const osh_modifier *m, int k);
/* Quantizes n jobs by rounding to nearest, with the schemes and the arithmetic of the modifier
 * m. */
osh_status osh_modifier_round(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n);
/* Returns the properties that a weight pruned by m must have when the output is checked. */
static inline osh_prune_rule osh_modifier_prune_rule(const osh_modifier *m, double sparsity)
{
    return m->type->pruner->rule(m, sparsity);
}
static inline osh_asks osh_modifier_asks(const osh_modifier *m)
{
    return m->type->asks ? m->type->asks(m) : (osh_asks){0};
}
/* Returns the type of the modifier with this name, or NULL if there is no such modifier. */
const osh_modifier_type *osh_modifier_find(const char *name);
/* Returns the type of the quantizer that rounds to nearest. */
const osh_modifier_type *osh_modifier_nearest(void);
/* osh_modifier_count returns the number of types. osh_modifier_at returns type i in the order of
 * modifiers.def. */
size_t osh_modifier_count(void);
const osh_modifier_type *osh_modifier_at(size_t i);

/* Sets *scheme to the index of the scheme that m applies to the module `name` of class `cls`. Sets
 * *scheme to -1 if no target matches the module, or if `ignore` matches it. */
osh_status osh_modifier_match(osh_ctx *cx, int *scheme, osh_modifier *m, const char *name,
                              const char *cls);
/* Frees all members of m. */
void osh_modifier_deinit(osh_ctx *cx, osh_modifier *m);
#endif
