/* What every pass sees: the unit being compiled and the options that steer it.
 *
 * A pass is `f8_status f8_pass_<name>(f8_unit *u)`. The order of all passes is the table in
 * pipeline.c; nothing here depends on any of them. Passes rewrite functions by copying the live
 * graph (f8_func_rewrite), never in place, so dead nodes are gone after each. */
#ifndef F8_PASS_H
#define F8_PASS_H

#include "ir/ir.h"
#include "ir/base/log.h"
#include "ir/base/progress.h"
#include "ir/num/quantize.h"
#include "ir/recipe.h"
#include "ir/target.h"
#include "passes/unit/index.h"

/* ---- decisions: what `explain` prints ---- */

typedef struct f8_decision {
    const char *linear;  /* the linear's name */
    const char *role;    /* fprop, dgrad or wgrad */
    const char *a, *b;   /* operand formats, by dtype name */
    const char *scaling; /* none, or the recipe as written: of a, and of b where that differs */
    const char *reason;
    int64_t m, n, k;     /* of one GEMM */
    int64_t count;       /* how many of these a step runs (a chunked head: one per chunk) */
    bool fp8;
} f8_decision;

/* ---- memory: what remat was asked for, and did ---- */

/* How much memory a program may take: bytes in all (variables, buffers and arena), or a share, in
 * (0, 1), of the activation bytes that it has at the peak without recomputation. One of the two is
 * set and the other 0. Both 0: no limit. */
typedef struct f8_budget {
    int64_t bytes;
    double share;
} f8_budget;

/* Of micro_step; zeros where there is none. Bytes are of the arena; seconds are estimates (cost.h).
 */
typedef struct f8_remat_summary {
    bool ran;       /* a budget or a pattern asked for it */
    int64_t before; /* arena bytes without recomputation */
    int64_t budget; /* arena bytes allowed; INT64_MAX: patterns alone */
    int64_t after;  /* arena bytes planned */
    int64_t activations_before,
        activations_after; /* of these bytes, activations and FP8 copies at the peak */
    int64_t recomputed; /* recomputed values, counted each time */
    int64_t fp8_gemms;  /* FP8 GEMMs among them */
    double seconds, extra_seconds; /* of a micro_step without recomputation; what that adds */
    int rounds; /* times that micro_step was grouped and placed to find the best plan */
} f8_remat_summary;

/* ---- the pair of forward and backward ---- */

/* The clone number of products in a joint function that give logits: `forward` saves none. */
enum { F8_CLONE_LOGITS = 1 };

#define F8_SAVED "saved." /* and a number: a value that forward saves for backward */

/* Of the joint functions, from autodiff to split: the first results are the forward's; inputs of
 * these names are cotangents. Functions that watch may have one more, F8_STATS. */
typedef struct f8_pair {
    size_t n_results, n_watched_results, n_cotangents;
    const char **cotangent;
} f8_pair;

/* The bytes that a program takes once it has code; codegen fills this in. Functions share one
 * arena, and code may need more of it than passes laid out. */
typedef struct f8_code_bytes {
    int64_t total;  /* all of it */
    int64_t arena;  /* of these, the arena: the largest of a function */
    int64_t extra;  /* micro_step's arena beyond its lowered->arena_bytes */
    int64_t others; /* the largest arena that another function needs, at the least */
} f8_code_bytes;

/* ---- what `auto` chose: scale/choose.h ---- */

typedef struct f8_operand_error {
    double sqnr;                /* dB: 20 log10(|x| / |x - dequantized|) */
    double underflow,
        /* shares of elements: those that became 0, and those that exceed the format's maximum */
        overflow;
} f8_operand_error;

typedef struct f8_candidate {
    f8_recipe recipe;
    const char *excluded;          /* why it can't be chosen; NULL: it was measured */
    double error;                  /* of the result, relative; NaN: no batch showed any */
    f8_operand_error operand[2];   /* in the role's order */
    /* estimates; `seconds` is gemm_seconds and the time to move `bytes` */
    double seconds, gemm_seconds;
    double bytes;                  /* moved to make the operands */
} f8_candidate;

enum { F8_CANDIDATES = 6 }; /* bf16 first */

typedef struct f8_trial {
    const char *linear;
    f8_role role;
    int64_t m, n, k; /* of this GEMM */
    f8_loc loc;
    const char *fixed; /* a rule decides, not auto: its reason; NULL otherwise */
    f8_candidate candidate[F8_CANDIDATES];
    int winner;
    const char *reason; /* of the winner */
} f8_trial;

/* ---- the unit ---- */

enum { F8_MAX_PASSES = 32 };

typedef struct f8_pass_time {
    const char *name;
    double seconds;
    uint32_t nodes; /* over all functions, after it */
} f8_pass_time;

/* A parameter and the recipe it is stored under. */
typedef struct f8_stored_as {
    const char *name;
    f8_recipe recipe;
} f8_stored_as;

typedef struct f8_unit f8_unit;

typedef struct f8_options {
    const f8_target *target; /* NULL: the CPU */
    const f8_recipe *recipe; /* where no rule of the module says otherwise */
    /* what `auto` stands for, by linear and role (scale/choose.h); may be NULL */
    const f8_trial *chosen;
    size_t n_chosen;
    bool no_fuse;            /* one kernel per node, so that tests can compare bits */
    bool requantize;         /* steps quantize weights: their codes are not kept (scale/codes.c) */
    const f8_recipe *stored; /* weights are stored as FP8 under this recipe and the module's rules:
                                all for inference, else frozen ones; NULL: as f32 */
    const f8_stored_as *stored_as; /* or exactly these */
    size_t n_stored_as;
    bool inference;          /* eval only: no backward, no optimizer */
    bool wgrad_branch; /* CUDA: GEMMs of weights' gradients run beside others (f8_group.beside) */
    /* give out samples of the linears' operands as results of micro_step: scale/calibrate.c */
    bool calibrate;
    /* inference: eval computes in high precision and keeps the amaxes that `delayed` takes its
     * scales from, and prepare computes these scales: scale/scaling.c */
    bool observe;
    bool pair;       /* forward and backward, for frameworks that own the loop: grad/pair.c */
    int32_t ranks; /* processes that train together, each on its own inputs; 0: one (shard/) */
    bool reduce_bf16;   /* gradients travel between ranks as bf16 */
    bool library_sums;  /* what moves gradients adds them, in an order of its own */
    bool reduce_update; /* gradients are summed over the ranks at the update, not in each micro_step */
    int32_t zero;  /* which states the ranks share, 1 to 3 (shard/); -1: none; 0: the module says */
    bool train_step; /* with pair: micro_step and update too */
    bool add_gradients; /* with pair: backward adds to the states grad.P */
    const char *cotangents;   /* with pair: patterns, which commas separate, of the results that
                                 have a cotangent; NULL: every float result */
    const char *gradients_of; /* with pair: of the inputs whose gradients backward gives; NULL:
                                 none */
    const char *frozen;       /* of the parameters that get no gradient and no update; NULL: none */
    double lr;               /* > 0 overrides the text's */
    int64_t optimizer_steps; /* > 0 overrides the schedule's `steps` */
    const char *keep; /* a name pattern: matching values become extra outputs of micro_step */
    /* Name patterns, which commas separate, of what linears' GEMMs read and write (instrument/):
     * micro_step.stats also gives the figures of the matching values, and so do forward.stats and
     * backward.stats of a pair; micro_step.dump gives the values. NULL: none. */
    const char *stats, *dump;
    const f8_recipe *stats_recipe; /* with stats: operands as this recipe would quantize them, too;
                                      NULL: no recipe */
    f8_budget memory;
    /* Name patterns, whatever the budget. */
    /* only matching activations are kept from forward to backward, all others are recomputed; NULL:
     * no such wish */
    const char *checkpoint;
    const char *recompute;   /* matching activations are recomputed; NULL: none */
    /* The bytes of the program as it stands, with every function placed. NULL: only what passes lay
     * out is known. */
    f8_status (*code_bytes)(void *user, const f8_unit *u, f8_code_bytes *out);
    void *code_bytes_user;
    /* After each pass named here (NULL = none): print the module to print_to. */
    const char *print_after;
    f8_writer print_to;
    /* Called after each pass, before the module is verified, so that tests can break what a pass
     * made. May be NULL. */
    f8_status (*after)(void *user, f8_unit *u, const char *pass);
    void *after_user;
    /* Shown the module before the first pass (pass NULL) and, once it is verified, after each. May
     * be NULL. */
    void (*show)(void *user, const f8_unit *u, const char *pass);
    void *show_user;
    const f8_log *log;           /* may be NULL; each pass and its time */
    /* may be NULL; asked before each pass, in one that takes long, and after the last */
    const f8_progress *progress;
} f8_options;

/* A linear as precision named it. Linears that share a weight share its name, which recipe rules
 * match, and are numbered: w, w.2, w.3. Linears without a name are linear.0, linear.1, ... and
 * share the name `linear`. */
typedef struct f8_linear_name_pair {
    const char *name, *shared;
} f8_linear_name_pair;

/* Another name of an element. Linears that read one value share its operand: the element has the
 * name of the first of them, and an alias for each of the others. */
typedef struct f8_element_alias {
    int64_t element;
    const char *name;
} f8_element_alias;

/* What the elements along a state's first axis stand for: operands of linears, "LINEAR.x". A
 * program for inference has fewer of them than one that trains, in another order. */
typedef struct f8_elements {
    int32_t var;
    int64_t n;
    const char *const *name;
    const f8_recipe *recipe;       /* of each operand: the rule of its scale */
    const bool *is_param;          /* it is a weight, or another parameter as it is */
    const f8_element_alias *alias; /* an element's in the order of the linears */
    int64_t n_aliases;
} f8_elements;

/* What calibrate sampled of a linear, y [m, n] = x [m, k] w. */
enum { F8_SAMPLE_TILE = 128, F8_SAMPLE_TILES = 4 };
typedef struct f8_sampled {
    const char *linear;
    int64_t m, n, k;
    bool has[F8_ROLES];      /* dgrad, wgrad: the step computes them */
    const char *x, *dy, *w;  /* names of results of micro_step; w NULL where it is a parameter */
    int32_t w_var;           /* the parameter, or -1 */
    bool w_is_nk;            /* w is stored [n, k] */
    f8_ref fprop;            /* in the graph at that time */
    f8_loc loc;
} f8_sampled;

/* What instrument watches: operands of linears' GEMMs, and their results (y of fprop, dx of dgrad,
 * dw of wgrad). */
typedef enum f8_watched_kind {
    F8_WATCHED_X = F8_OPERAND_X,
    F8_WATCHED_W = F8_OPERAND_W,
    F8_WATCHED_DY = F8_OPERAND_DY,
    F8_WATCHED_Y,
    F8_WATCHED_DX,
    F8_WATCHED_DW,
    F8_WATCHED_KINDS
} f8_watched_kind;
extern const char *const f8_watched_kind_name[F8_WATCHED_KINDS]; /* "x", "w", "dy", "y", ... */

/* The sums of a watched value: sums.def. */
typedef enum f8_sum {
#define SUM(name, has, nodes) F8_SUM_##name,
#include "passes/unit/sums.def"
#undef SUM
    F8_SUMS
} f8_sum;

/* Which values have a sum or a figure; each kind is one of the kind before it. */
typedef enum f8_has { F8_HAS_ALL, F8_HAS_QUANTIZED, F8_HAS_ONE_SCALE, F8_HAS_ASKING } f8_has;

/* The unit of a value for its sums of products: the power of two at or below its amax, but not
 * beyond these. */
#define F8_SUM_UNIT_LEAST 0x1p-126
#define F8_SUM_UNIT_MOST 0x1p126

/* The result with the sums of a function that watches. Of a joint function both halves have
 * one, so that of the backward is named F8_STATS_BACKWARD until it is cut. */
#define F8_STATS "stats"
#define F8_STATS_BACKWARD "stats.backward"

/* A value whose sums a function that watches gives: a row of its result "stats", f32 [watched
 * values, F8_SUMS]. */
typedef struct f8_watched {
    const char *function;      /* "micro_step", "forward" or "backward"; rows count within it */
    const char *name, *linear; /* passes/instrument/values.h */
    const char *const *alias;  /* its names in other linears that read it; in a report then NULL */
    size_t n_aliases;
    const char *gemms; /* which of the linear's GEMMs read it: "fprop, wgrad" */
    f8_watched_kind kind;
    f8_recipe recipe; /* of an operand that is quantized */
    bool what_if;     /* quantized for these figures alone */
    bool quantized;
    f8_dtype format;      /* of its codes */
    f8_granularity grain; /* of its scales */
    int64_t elements;
} f8_watched;

/* A parameter that serve stores as codes, and the variable with its scales. */
typedef struct f8_stored {
    int32_t var, scale_var;
    f8_recipe recipe;
    const char *operand; /* "LINEAR.w" of the first linear that reads it, as in f8_elements */
    f8_quantizer quantizer;
    /* In a program that trains, the values that it begins with, by the text: of this dtype. For
     * inference zeros: its weights are loaded */
    f8_dtype dtype;
    f8_init_kind init;
    double init_arg;
} f8_stored;

/* A variable of which each rank holds a part: the rows from rank * rows of its type on. */
typedef struct f8_shard {
    int32_t var;
    int64_t rows; /* of the whole */
} f8_shard;

/* The states that the pass `codes` adds have these names, and behind them a value's. */
#define F8_WEIGHT_CODES "fp8.codes."
#define F8_WEIGHT_SCALE_INV "fp8.scale_inv."
/* Whether a variable of that name is one of them. */
bool f8_is_weight_codes(const char *name);

enum { F8_MOST_WAIT = 2 }; /* how many levels a GEMM may wait where kernels are shared */

struct f8_unit {
    f8_module *module;
    f8_options options;
    f8_arena *arena; /* results live here */
    f8_diag *diag;
    f8_decision *decision;
    size_t n_decisions, decision_room;
    f8_linear_name_pair *named; /* by precision */
    size_t n_named, named_room;
    f8_index named_index; /* of `named`, by the hash of the name */
    int64_t *layer;       /* the layers of the shared names, distinct, ascending */
    size_t n_layers, layer_room;
    f8_elements *elements; /* by scaling */
    size_t n_elements, elements_room;
    int32_t *kept; /* by scaling: the parameters whose codes `codes` may keep */
    size_t n_kept, kept_room;
    f8_sampled *sampled; /* by calibrate */
    size_t n_sampled, sampled_room;
    f8_watched *watched; /* by instrument */
    size_t n_watched, watched_room;
    f8_stored *stored; /* by serve */
    size_t n_stored, stored_room;
    f8_shard *shard; /* by shard */
    size_t n_shards;
    f8_pair pair;
    /* linears found; FP8 GEMMs planned for a micro_step, recomputed ones included */
    int64_t linears, fp8_gemms;
    f8_remat_summary remat;
    f8_pass_time time[F8_MAX_PASSES];
    size_t n_times;
    f8_progress_phase phase; /* of the pipeline, while it runs */
    const char *pass;        /* the name of the pass that runs */
};

/* Add a linear to u->named, under its own name and the one that rules match. False: out of memory.
 */
bool f8_unit_name_linear(f8_unit *u, const char *name, const char *shared);
/* The index in u->named, or F8_INDEX_END. */
uint32_t f8_unit_find_linear(const f8_unit *u, const char *name);

/* The recipe that an operand of a linear's GEMM gets, and why. Of the module's rules that match,
 * the last wins. `auto` stands for the options' recipe and, if that is `auto` too, for what was
 * chosen (AUTO is returned where nothing was). A high-precision recipe (f32, bf16) in the options
 * overrides all rules. */
typedef struct f8_assignment {
    f8_recipe recipe;
    const char *reason;
} f8_assignment;
f8_assignment f8_recipe_for(const f8_unit *u, const char *linear, f8_role role,
                            f8_operand_kind operand);

/* Whether a function of that name is micro_step or a copy of it that watches (instrument): remat
 * recomputes in these. */
bool f8_is_micro_step(const char *name);
/* Whether a port of a joint function is a cotangent. */
bool f8_is_cotangent(const f8_unit *u, const f8_port *p);
/* Begin a phase. What works on the unit's module asks in it, until f8_unit_end. */
void f8_unit_listen(f8_unit *u, const char *phase, int64_t total);
/* End the phase. `status` is the outcome of the work: F8_OK is reported as the phase's end. Returns
 * status, or F8_ERR_CANCELLED. */
f8_status f8_unit_end(f8_unit *u, f8_status status);
/* A pass that takes long asks whether to go on: each time, or if it asked long enough ago.
 * F8_ERR_CANCELLED if not. */
f8_status f8_unit_go_on(f8_unit *u);
f8_status f8_unit_within(f8_unit *u);
/* How many ranks run the program, at least 1. */
int32_t f8_unit_ranks(const f8_unit *u);
/* The stage of ZeRO, 0 to 3; 0 where there is one rank. */
int32_t f8_unit_zero(const f8_unit *u);
/* A list of names for a message, with commas between them; what does not fit is left out. */
typedef struct f8_names {
    char text[600];
    size_t n;
} f8_names;
void f8_names_add(f8_names *list, const char *name);

/* Whether options.frozen names this parameter, or it is the scales of a stored weight. */
bool f8_unit_is_frozen(const f8_unit *u, int32_t var);
/* Each pattern of options.frozen must name a parameter: else it is most likely misspelt. */
f8_status f8_unit_check_frozen(const f8_unit *u);
/* The module's optimizer, with what the options say instead. */
f8_optimizer f8_unit_optimizer(const f8_unit *u);
/* The target that passes work for: the options', or the CPU. */
const f8_target *f8_unit_target(const f8_unit *u);

/* The sizes of an FP8 GEMM as the target computes it: m and k are padded up to target->fp8_multiple
 * (legalize/pad.c). Rows of activations are m of fprop and dgrad, and k of wgrad. */
f8_gemm_sizes f8_fp8_padded(const f8_target *t, f8_gemm_sizes size);
/* Whether a linear's FP8 GEMM has sizes that the target takes: those of its weight are multiples.
 * F8_ROLES, a product that a text has as such: n is. *names: those sizes, "n and k". */
bool f8_fp8_takes(const f8_target *t, f8_role role, const f8_gemm_sizes *size, const char **names);

#endif
