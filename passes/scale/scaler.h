/* What the files of the scaling pass share: scaling.c (the pass, matmuls), assign.c (which recipe a
 * GEMM's operands have), operand.c (values to codes and scales) and state.c (the variables that
 * hold scales, and the functions that renew them). */
#ifndef F8_SCALER_H
#define F8_SCALER_H

#include "passes/unit/pass.h"

/* An operand whose scale comes from a variable. The ordinal says which of the linear's operands of
 * this kind it is (a head in chunks has one x and one dy for each chunk). Operands that the linear
 * shares count too. */
typedef struct f8_slot {
    const char *linear;
    f8_operand_kind kind;
    int ordinal;
    f8_recipe recipe;
    int64_t index; /* in the vectors */
    int32_t param; /* the variable it is, or -1 for a value computed in the step */
} f8_slot;

/* A linear that shares the operand of a slot, and the operand's ordinal among those of this linear.
 */
typedef struct f8_slot_alias {
    size_t slot; /* index into the slots */
    const char *linear;
    int ordinal;
} f8_slot_alias;

typedef struct f8_slots {
    f8_slot *slot;
    size_t n, room;
    f8_index by_linear; /* the slots */
    f8_slot_alias *alias;
    size_t n_aliases, alias_room;
} f8_slots;

/* A quantized operand of the function being rewritten; `linear` is the first that has it. */
typedef struct f8_quantized {
    const char *linear;
    f8_recipe recipe;
    f8_operand_kind kind;
    f8_granularity grain;
    int ordinal;
    f8_ref source, q, scale_inv, amax;
    f8_ref dequantized; /* bf16, of `fake`; else 0 */
    int64_t slot; /* index into `delayed`, or -1 */
} f8_quantized;

/* Another linear that reads an operand. */
typedef struct f8_sharer {
    const char *linear;
    size_t operand; /* index into the operands */
} f8_sharer;

/* What a linear's fprop reads: tells its x from its dy in wgrad. */
typedef struct f8_linear_input {
    const char *linear;
    f8_ref source;
} f8_linear_input;

/* A GEMM of a linear. */
typedef struct f8_product {
    const char *linear;
    f8_role role;
    f8_operand_kind of[2];    /* of its role */
    f8_assignment assignment[2]; /* of these */
    f8_gemm_sizes size;
    f8_dtype dtype; /* of the operands, before any is quantized */
    f8_loc loc;
} f8_product;

typedef struct f8_scaler {
    f8_unit *u;
    f8_arena scratch;
    f8_slots delayed; /* in fp8.scale, fp8.amax, fp8.amax_history */
    f8_slots weights; /* of current scaling, in fp8.weight_amax */
    f8_quantized *operand; /* of the current function */
    f8_sharer *sharer; /* of the current function */
    f8_linear_input *input; /* of the current function */
    size_t n_operands, operand_room, n_sharers, sharer_room, n_inputs, input_room;
    f8_index by_source, by_linear; /* the operands, by `source` and by `linear` */
    f8_index sharers, inputs;      /* by linear */
    f8_index decisions;            /* the unit's, by linear */
    f8_func *func;
    bool scan, record; /* scan: only find slots; record: append to the unit's decisions */
    bool first; /* the function scales what was never observed by its own amax */
    /* How far `update` moves an element of a weight, at most, in learning rates. So a weight's
     * scale under `delayed` is known before the weight is: state.c. INFINITY: it is not. */
    double reach;
    int32_t var_scale, var_amax, var_history, var_weights;
    f8_status status;
} f8_scaler;

static inline bool f8_is_high(const f8_recipe *r)
{
    return r->scaling == F8_SCALING_NONE;
}

/* assign.c */

/* Whether a GEMM's operand is the values of a stored weight (serve.c), or a cast of them. */
bool f8_scale_is_stored(const f8_scaler *s, const f8_graph *g, f8_ref w);
/* What node `r` is as a GEMM of a linear, with its operands' recipes. False if it is none. */
bool f8_scale_product(const f8_scaler *s, const f8_graph *g, f8_ref r, f8_product *p);
/* Whether one GEMM can have both operands as the rules say, and the target has that GEMM. If not,
 * s->status is set and the message says why. */
bool f8_scale_agree(f8_scaler *s, const f8_product *p);
/* Append to the unit's decisions. */
void f8_scale_decide(f8_scaler *s, const f8_graph *g, f8_ref old, const f8_product *p);

/* operand.c */

/* The value that an operand is quantized from: the one before its cast to bf16, also under views of
 * that. */
f8_ref f8_scale_source(f8_graph *g, f8_ref r);
/* The operand that `want` describes (linear, recipe, kind, grain, source), made once; NULL on
 * failure. Valid until the next. */
const f8_quantized *f8_scale_operand(f8_scaler *s, f8_graph *g, f8_quantized want);
/* Quantize q->source as q's recipe, kind and granularity say, by scales from its own amax. Sets
 * what q has of the result, and returns the scale that the value is multiplied by. */
f8_ref f8_scale_fresh(f8_graph *g, f8_quantized *q);
/* "fc.x", "fc.dy.1" for the second of its kind, "fc.x.1x128" where scales are not the tensor's;
 * then `suffix`. */
char *f8_scale_value_name(f8_arena *a, const char *linear, const char *kind, int ordinal,
                          f8_granularity grain, const char *suffix);

/* state.c */

/* Whether weights' scales under `delayed` are known before `update` writes the weights. */
bool f8_scale_ahead(const f8_scaler *s);
/* Number the slots and declare the variables that hold them. Nothing happens when there is none. */
f8_status f8_scale_declare(f8_scaler *s);
/* The port of a variable that f8_func_var added to the function being rewritten: its new ref. */
f8_ref f8_scale_port(const f8_scaler *s, int32_t var);
/* After rewriting a function that computes gradients: fp8.amax <- max(fp8.amax, this step's). */
f8_status f8_scale_observe(f8_scaler *s, f8_func *f);
/* Make or extend update, update_scales and prepare. */
f8_status f8_scale_functions(f8_scaler *s);

#endif
