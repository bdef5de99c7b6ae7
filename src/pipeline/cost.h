/* cost.h - what each phase of each subgraph takes: floating-point operations, and from them the time to go. */
#ifndef OSH_COST_H
#define OSH_COST_H
#include "pipeline/visit.h"

/* In the order in which a subgraph goes through them; those from ROUND on belong to no subgraph. */
typedef enum {
    OSH_PHASE_OBSERVE,
    OSH_PHASE_SOLVE,
    OSH_PHASE_PROPAGATE,
    OSH_PHASE_ROUND, // Linears that want no data, each read, rounded, written
    OSH_PHASE_COPY,  // tensors that are copied bit for bit
    OSH_PHASE_SEAL,  // fsync, the output read again
    OSH_N_PHASES
} osh_phase;
const char *osh_phase_name(osh_phase p); // "observe", ...

typedef struct osh_cost { // of one subgraph
    /* Multiplications and additions of the matrix products, statistics, factors and solves that are necessary:
     * attention counts the causal half, a Hessian its triangle. */
    double flops[OSH_N_PHASES];
    double work[OSH_N_PHASES]; // the same and all else, in seconds of an imaginary machine; only ratios matter
} osh_cost;

/* own: one for each subgraph (the pipeline basic: one for the whole graph), and one behind for ROUND, COPY and SEAL.
 * n: how many. */
osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_plan *p);
/* Its share of work[OSH_PHASE_SOLVE], or of ROUND. */
double osh_cost_of_linear(const osh_plan *p, int linear);
/* What part of its phase a step of a visit is: 1 where the phase is one pass. stats: the values that it observes. */
osh_status osh_cost_share(osh_ctx *cx, double *share, const osh_plan *p, const osh_cost *cost, int index,
                          const osh_step *s, const bool *stats);
/* Work of one pass of a dataset through nodes [first, first + n) that run; and of its scores by the head. */
double osh_cost_of_nodes(const osh_graph *g, const osh_dataset *d, int first, int n, const bool *run);
double osh_cost_of_head(const osh_graph *g, const osh_dataset *d);

/* Where a run is, how fast each phase has been, and so when it will end. What lies before the present phase in the
 * order of the run is over, whether it was done here, resumed or skipped. */
typedef struct osh_pace {
    osh_cost *cost; // own [n]
    int n;
    double behind[OSH_N_PHASES];   // work of the subgraphs behind the present one
    double at[OSH_N_PHASES];       // share of each phase of the present subgraph that is over
    double spent[OSH_N_PHASES];    // seconds
    double finished[OSH_N_PHASES]; // work that took them
    osh_phase phase;               // the present one
    int subgraph;                  // -1: not begun
    bool inside;
    double begun, ended; // osh_now; what lies between two phases (loading) counts to the second
    double entered;      // osh_now, without that
    double share, fraction;          // of the phase that is done now; of that, what is done
    double pass_clock;               // seconds inside passes
    struct { double clock; int64_t tokens; } ring[32]; // tokens by pass_clock, lately, in the present pass
    int n_ring;
    int64_t tokens;      // through the passes
    double tokens_per_s; // of the pass before
} osh_pace;
osh_status osh_pace_init(osh_ctx *cx, osh_pace *pace, const osh_plan *p);
void osh_pace_deinit(osh_ctx *cx, osh_pace *pace);
/* now: osh_now(). subgraph < 0: none. share 1: the whole phase, and those before it are over; less: a part of it, in
 * any order. */
void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now);
/* fraction of what was begun that is done; n_tokens went through since the last step. */
void osh_pace_step(osh_pace *pace, double fraction, int64_t n_tokens, double now);
void osh_pace_end(osh_pace *pace, double now);
double osh_pace_eta(const osh_pace *pace, double now); // seconds; <= 0: not known yet, or the end
double osh_pace_tokens_per_s(const osh_pace *pace); // over the last 5 seconds of the pass; 0: not known
#endif
