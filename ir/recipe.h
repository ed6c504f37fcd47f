/* Recipes: how the operands of a linear's GEMMs are scaled and in which format, and which linear
 * gets which recipe.
 *
 * A recipe is written NAME or NAME {key = value, ...}: in a module's rules, on the command line and
 * in the API.
 *
 *     delayed {history = 16, amax = max, margin = 0}    one scale for the tensor, from a history of
 *                                                       amaxes that is kept as a state
 *     current {pow2 = false, margin = 0}                one for the tensor, from its own amax
 *     rowwise {pow2 = false, margin = 0}                one for each row across k, of each operand
 *     rowwise_gw_hp                                     rowwise, with wgrad in bf16
 *     block {pow2 = false, margin = 0}                  1x128 of x and dy along k, 128x128 of w
 *     mxfp8                                             1x32 along k, scales E8M0
 *     fake                                              current {fake = true}
 *     bf16, f32                                         no FP8
 *     auto                                              in a rule: the recipe of the options; as
 *                                                       an option: chosen from a calibration
 *
 * format = e4m3 | hybrid (E5M2 for dy); delayed and current default to hybrid, others to e4m3. amax
 * = max | most_recent of the history. fake = true: the operands are quantized, dequantized and
 * rounded to bf16, and the GEMM is a bf16 one, which separates the error of quantization from that
 * of FP8 GEMMs. */
#ifndef F8_RECIPE_H
#define F8_RECIPE_H

#include "ir/base/pattern.h"
#include "ir/num/granularity.h"
#include "ir/ir.h"
#include "ir/target.h"

typedef enum f8_scaling {
    F8_SCALING_NONE,    /* no FP8: operands have the dtype `activation` */
    F8_SCALING_DELAYED,
    F8_SCALING_CURRENT,
    F8_SCALING_ROWWISE,
    F8_SCALING_BLOCK,
    F8_SCALING_MX,
    F8_SCALING_UNIT,    /* every scale is 1: a negative control for the tests */
    F8_SCALING_AUTO,
} f8_scaling;

typedef enum f8_operand_kind {
    F8_OPERAND_X,
    F8_OPERAND_W,
    F8_OPERAND_DY,
    F8_OPERANDS
} f8_operand_kind;
extern const char *const f8_operand_name[F8_OPERANDS]; /* "x", "w", "dy" */

typedef enum f8_role { F8_FPROP, F8_DGRAD, F8_WGRAD, F8_ROLES } f8_role;
extern const char *const f8_role_name[F8_ROLES];
/* The role of that name; F8_ROLES for any other text. */
f8_role f8_role_by_name(const char *name);
/* The operands of a role's GEMM: x and w of fprop, dy and w of dgrad, x and dy of wgrad. */
void f8_role_operands(f8_role role, f8_operand_kind operand[2]);

typedef struct f8_recipe {
    const char *name;
    f8_dtype activation; /* F8_F32 or F8_BF16: the residual stream and all stored activations */
    f8_scaling scaling;
    f8_dtype forward, gradient;  /* formats of x and w, and of dy */
    int64_t history;             /* delayed: how many steps' amaxes are kept */
    int64_t margin;              /* scale = max * 2^-margin / amax */
    bool saturate;
    bool most_recent;            /* delayed: scale by the newest amax, not by the largest */
    bool pow2;                   /* scales rounded down to a power of two */
    bool fake;
    bool wgrad_high;             /* wgrad stays in `activation` dtype */
} f8_recipe;

enum { F8_MAX_HISTORY = 1024 };

/* The recipe of that name with its default options; NULL for any other name. */
const f8_recipe *f8_recipe_by_name(const char *name);
/* The name of recipe number `index`; `auto` is the last, and past it NULL. */
const char *f8_recipe_name(size_t index);
/* The names of all recipes, comma separated, for messages. */
const char *f8_recipe_names(void);

/* Set one option, as written between the braces. `seen` is 0 before the first and keeps a bit for
 * each option given. F8_ERR_INPUT at the word's place for a key that this recipe does not have, a
 * key given twice, and an invalid value. */
typedef struct f8_word {
    const char *text;
    size_t length;
    f8_loc loc;
} f8_word;
f8_status f8_recipe_set(f8_recipe *r, f8_word key, f8_word value, unsigned *seen, f8_diag *diag);

/* Read NAME {key = value, ...}. F8_ERR_INPUT at `loc` for any other text. */
f8_status f8_recipe_parse(const char *text, f8_loc loc, f8_recipe *out, f8_diag *diag);
/* Print into buf (F8_RECIPE_TEXT bytes suffice), with only the options that differ from the
 * defaults. Returns buf. */
enum { F8_RECIPE_TEXT = 160 };
const char *f8_recipe_print(const f8_recipe *r, char *buf, size_t size);
/* Whether both treat every operand the same way. */
bool f8_recipe_equal(const f8_recipe *a, const f8_recipe *b);

/* What one scale of an operand covers. k_is_rows: the GEMM sums over the rows of the array. */
f8_granularity f8_recipe_granularity(const f8_recipe *r, f8_operand_kind operand, bool k_is_rows);
/* What a target's GEMMs lack for operands of this recipe: see f8_target_lacks. */
unsigned f8_recipe_lacks(const f8_recipe *r, const f8_target *t);
/* The CUDA targets whose GEMMs lack nothing for it, as "sm_100a and sm_120a", into `names`. */
const char *f8_recipe_gpus(const f8_recipe *r, char *names, size_t size);
static inline f8_dtype f8_recipe_format(const f8_recipe *r, f8_operand_kind operand)
{
    return operand == F8_OPERAND_DY ? r->gradient : r->forward;
}

/* ---- rules (f8_recipe_rule in ir/ir.h) ---- */

/* F8_ERR_INPUT at the rule's place if the GEMM that it names does not have the operand it names. */
f8_status f8_rule_check(const f8_recipe_rule *rule, f8_diag *diag);

/* The name that recipe patterns are matched against: the `name` attribute of a linear or GEMM. If
 * that is empty, the name of the parameter that the weight comes from, through casts and views,
 * without a trailing ".weight". Copied into buf, cut to size; NULL if `r` is neither a linear nor a
 * GEMM, or has no name. */
const char *f8_linear_name(const f8_func *f, f8_ref r, char *buf, size_t size);

/* The number of the layer that a linear is in, from its name: the first part between dots that is a
 * number; -1 if there is none. */
int64_t f8_layer_of(const char *linear);

#endif
