/* Linears under scaling recipes, as tests of the recipes run them: a module with one linear for
 * each recipe, operands made to measure, one micro_step, and what it quantized
 * compared with recipe_oracle.h, bit for bit.
 *
 *     y = linear(x * gain, w), loss = sum(y * g): so dy is g, and a gain of ones leaves x as it is
 *     but makes it a value that a gradient goes through, so that there is a dgrad. */
#ifndef F8_TESTS_RECIPE_CASE_H
#define F8_TESTS_RECIPE_CASE_H

#include "frontend/fp8c.h"
#include "tests/shared/recipe/recipe_oracle.h"

/* ---- recipes, as the oracle knows them ---- */

typedef enum recipe_grain {
    RECIPE_TENSOR, /* one scale */
    RECIPE_ROWS,   /* one for each row across k */
    RECIPE_BLOCKS, /* 1 x 128 along k, 128 x 128 of w */
    RECIPE_MX      /* 1 x 32 along k */
} recipe_grain;

typedef struct recipe_spec {
    const char *text; /* as the language has it */
    recipe_grain grain;
    bool hybrid, pow2; /* dy in E5M2 */
    int margin;
    bool wgrad_high, most_recent;
    int history; /* > 0: delayed */
} recipe_spec;

/* ---- operands made to measure ---- */

typedef enum recipe_data {
    DATA_NORMAL,
    DATA_OUTLIER_COLUMNS, /* every 17th column times 1e4 */
    DATA_OUTLIER_ROWS,
    DATA_ZERO,     /* of both signs */
    DATA_HOLES,    /* rows, columns and 32 x 32 tiles of zeros */
    DATA_DENORMAL, /* whole tensor */
    DATA_ANY,      /* any finite bit pattern */
    DATA_HUGE,     /* from 2^126, and FLT_MAX */
    DATA_BORDERS, /* amaxes at 448 and 57344 times powers of two, an ulp from these, ties */
    DATA_INF,     /* normal, but for one element */
    DATA_MINUS_INF,
    DATA_NAN,
    DATA_MINUS_NAN,
    DATA_KINDS
} recipe_data;
extern const char *const recipe_data_name[DATA_KINDS];

void recipe_fill(recipe_data kind, uint32_t seed, float *v, int64_t rows, int64_t columns);

/* ---- a program ---- */

typedef struct recipe_sizes {
    int64_t batch, time, k, n; /* x [batch, time, k], w [k, n] */
} recipe_sizes;

enum { RECIPE_X, RECIPE_W, RECIPE_DY, RECIPE_OPERANDS };
extern const char *const recipe_operand_name[RECIPE_OPERANDS];

typedef struct recipe_case {
    const recipe_spec *spec; /* one linear each: "l0", "l1", ... */
    int n_specs;
    recipe_sizes sizes;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    int step, update, prepare;
    float *data[RECIPE_OPERANDS]; /* x, g: the inputs; w: what all linears are loaded with */
    float *effective;             /* x times gain */
} recipe_case;

int64_t recipe_rows(const recipe_case *c, int operand); /* of it as a matrix */
int64_t recipe_columns(const recipe_case *c, int operand);

/* Every function fails the running Check test on an error. Recipes that are equal would share x,
 * and are not for one program. */
void recipe_open(recipe_case *c, const recipe_spec *spec, int n_specs, const recipe_sizes *sizes,
                 const char *target);
void recipe_close(recipe_case *c);

/* Fresh variables, ones for the gain; then the operands as they lie in c->data. */
void recipe_load(recipe_case *c);
void recipe_run(recipe_case *c, int function);
/* A variable's elements, and those of a linear's weight, the caller's to free. */
float *recipe_variable(recipe_case *c, const char *name);
float *recipe_weight(recipe_case *c, int linear);
/* A result of a function. */
const void *recipe_result(recipe_case *c, int function, const char *name, fp8c_type *type);

/* What the last micro_step made of every operand of every linear that is not delayed against the
 * oracle; `what` is for messages. Returns how many arrays were compared. */
int recipe_compare(recipe_case *c, const char *what);

/* The same for one operand of a delayed linear: scale is its history's, x [rows, columns] what was
 * quantized, and `own` says that it is no parameter: its amax was seen by the step. */
void recipe_compare_scaled(recipe_case *c, int linear, int operand, const float *x, float scale,
                           bool own, const char *what);

/* What the oracle needs to know of an operand of a linear; tall and wide are 0. */
recipe_oracle recipe_oracle_of(const recipe_spec *s, int operand);

#endif
