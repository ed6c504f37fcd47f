/* See recipe_case.h. */
#include "tests/shared/recipe/recipe_case.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/random.h"

const char *const recipe_data_name[DATA_KINDS] = {
    "normal", "outlier columns", "outlier rows", "zero", "holes", "denormal", "any",
    "huge",   "borders",         "inf",          "-inf", "nan",   "-nan",
};
const char *const recipe_operand_name[RECIPE_OPERANDS] = {"x", "w", "dy"};

/* ---- operands ---- */

static float from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint32_t random_bits(uint32_t *seed)
{
    const uint32_t high = test_random(seed);
    return high << 8 ^ test_random(seed);
}

/* Near enough to normal: the sum of four uniform numbers, of deviation 1. */
static float normal(uint32_t *seed)
{
    float sum = -2;
    for (int i = 0; i < 4; i++)
        sum += (float)test_random(seed) / 0x1p24f;
    return sum * 1.7320508f;
}

/* Values at the borders of scales and codes. Each tile of 32 x 32 has its own power of two. Some
 * elements of a tile are a format's maximum, or an ulp from it; the others lie halfway between two
 * codes. */
static float border(uint32_t *seed, int64_t r, int64_t c)
{
    const int power = (int)((r / 32 * 7 + c / 32 * 3) % 40) - 20;
    const uint32_t draw = test_random(seed);
    float v = ldexpf(1 + (float)(2 * (draw % 16) + 1) / 32, (int)(draw >> 8) % 20 - 12);
    if (draw % 11 == 0)
        v = draw % 2 ? 448 : 57344;
    if (draw % 33 == 0)
        v = nextafterf(v, draw % 5 < 3 ? INFINITY : 0);
    return ldexpf(draw >> 23 ? -v : v, power);
}

static float element(recipe_data kind, uint32_t *seed, int64_t r, int64_t c)
{
    const float plain = normal(seed);
    uint32_t bits;
    switch (kind) {
    case DATA_OUTLIER_COLUMNS: return c % 17 == 3 ? plain * 1e4f : plain;
    case DATA_OUTLIER_ROWS: return r % 17 == 3 ? plain * 1e4f : plain;
    case DATA_ZERO: return plain < 0 ? -0.0f : 0.0f;
    case DATA_HOLES: return r % 5 == 1 || c % 7 == 2 || (r / 32 + c / 32) % 2 ? 0.0f : plain;
    case DATA_DENORMAL: return from_bits(random_bits(seed) & 0x807fffffu);
    case DATA_ANY:
        bits = random_bits(seed);
        return from_bits((bits & 0x7f800000u) == 0x7f800000u ? bits & 0xbfffffffu : bits);
    case DATA_HUGE:
        bits = random_bits(seed);
        return bits % 19 ? from_bits((bits & 0x80ffffffu) | 0x7e800000u)
                         : copysignf(FLT_MAX, plain);
    case DATA_BORDERS: return border(seed, r, c);
    default: return plain;
    }
}

void recipe_fill(recipe_data kind, uint32_t seed, float *v, int64_t rows, int64_t columns)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            v[r * columns + c] = element(kind, &seed, r, c);
    if (kind >= DATA_INF)
        v[(int64_t)test_random(&seed) % (rows * columns)] = odd[kind - DATA_INF];
}

/* ---- a program ---- */

int64_t recipe_rows(const recipe_case *c, int operand)
{
    return operand == RECIPE_W ? c->sizes.k : c->sizes.batch * c->sizes.time;
}

int64_t recipe_columns(const recipe_case *c, int operand)
{
    return operand == RECIPE_X ? c->sizes.k : c->sizes.n;
}

static size_t elements(const recipe_case *c, int operand)
{
    return (size_t)(recipe_rows(c, operand) * recipe_columns(c, operand));
}

#define MUST(call) ck_assert_msg((call) == FP8C_OK, "%s: %s", #call, fp8c_context_message(c->ctx))

static char *module_text(const recipe_case *c)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    const recipe_sizes *s = &c->sizes;
    fprintf(f, "module bits\ndim B = %lld, T = %lld, K = %lld, N = %lld\nparam gain: f32[K] ones\n",
            (long long)s->batch, (long long)s->time, (long long)s->k, (long long)s->n);
    for (int i = 0; i < c->n_specs; i++)
        fprintf(f, "param l%d.weight: f32[K, N] normal(0.1)\nrecipe \"l%d\" = %s\n", i, i,
                c->spec[i].text);
    fprintf(f, "func forward(%%x: f32[B, T, K], %%g: f32[B, T, N]) -> (%%loss: f32[]) {\n"
               "  %%h = mul(%%x, gain)\n  %%s0 = mul(linear(%%h, l0.weight), %%g)\n");
    for (int i = 1; i < c->n_specs; i++)
        fprintf(f, "  %%s%d = add(%%s%d, mul(linear(%%h, l%d.weight), %%g))\n", i, i - 1, i);
    fprintf(f,
            "  return reshape(reduce_sum(reshape(%%s%d) {shape = [B*T*N]})) {shape = []}\n}\n"
            "optimizer adamw {lr = 0.05}\n",
            c->n_specs - 1);
    fclose(f);
    return text;
}

void recipe_open(recipe_case *c, const recipe_spec *spec, int n_specs, const recipe_sizes *sizes,
                 const char *target)
{
    *c = (recipe_case){.spec = spec, .n_specs = n_specs, .sizes = *sizes};
    for (int i = 0; i < RECIPE_OPERANDS; i++)
        c->data[i] = calloc(elements(c, i), sizeof(float));
    c->effective = calloc(elements(c, RECIPE_X), sizeof(float));
    char *text = module_text(c);
    /* The recipe asked for is for no linear, but says that activations are bf16. */
    const fp8c_compile_options o = {
        .struct_size = sizeof o, .target = target, .recipe = "delayed", .threads = 1, .keep = "*"};
    ck_assert_int_eq(fp8c_context_create(NULL, &c->ctx), FP8C_OK);
    MUST(fp8c_module_parse(c->ctx, text, strlen(text), "bits.f8", NULL, 0, &c->module));
    MUST(fp8c_compile(c->module, &o, &c->program));
    c->step = fp8c_program_function(c->program, "micro_step");
    c->update = fp8c_program_function(c->program, "update");
    c->prepare = fp8c_program_function(c->program, "prepare");
    free(text);
}

void recipe_close(recipe_case *c)
{
    fp8c_program_destroy(c->program);
    fp8c_module_destroy(c->module);
    fp8c_context_destroy(c->ctx);
    for (int i = 0; i < RECIPE_OPERANDS; i++)
        free(c->data[i]);
    free(c->effective);
}

static int variable_index(const recipe_case *c, const char *name, fp8c_variable *v)
{
    for (int i = 0; fp8c_program_variable(c->program, i, v) == FP8C_OK; i++)
        if (!strcmp(v->name, name))
            return i;
    ck_abort_msg("no variable %s", name);
}

float *recipe_variable(recipe_case *c, const char *name)
{
    fp8c_variable v;
    const int i = variable_index(c, name, &v);
    float *value = malloc((size_t)fp8c_type_bytes(&v.type));
    MUST(fp8c_program_read(c->program, i, value));
    return value;
}

float *recipe_weight(recipe_case *c, int linear)
{
    char name[32];
    snprintf(name, sizeof name, "l%d.weight", linear);
    return recipe_variable(c, name);
}

void recipe_load(recipe_case *c)
{
    MUST(fp8c_program_initialize(c->program, 1));
    for (int i = 0; i < c->n_specs; i++) {
        fp8c_variable v;
        char name[32];
        snprintf(name, sizeof name, "l%d.weight", i);
        MUST(fp8c_program_write(c->program, variable_index(c, name, &v), c->data[RECIPE_W]));
    }
    if (c->prepare >= 0)
        recipe_run(c, c->prepare);
}

static void take_inputs(recipe_case *c)
{
    static const char *const port[RECIPE_OPERANDS] = {[RECIPE_X] = "x", [RECIPE_DY] = "g"};
    for (int i = 0; i < RECIPE_OPERANDS; i++) {
        if (!port[i])
            continue;
        const int at = fp8c_program_find_port(c->program, c->step, FP8C_INPUT, port[i]);
        memcpy(fp8c_program_buffer(c->program, c->step, FP8C_INPUT, at), c->data[i],
               elements(c, i) * sizeof(float));
    }
    float *gain = recipe_variable(c, "gain");
    for (size_t i = 0; i < elements(c, RECIPE_X); i++)
        c->effective[i] = c->data[RECIPE_X][i] * gain[(int64_t)i % c->sizes.k];
    free(gain);
}

void recipe_run(recipe_case *c, int function)
{
    if (function == c->step)
        take_inputs(c);
    MUST(fp8c_program_run(c->program, function));
    MUST(fp8c_program_wait(c->program));
}

const void *recipe_result(recipe_case *c, int function, const char *name, fp8c_type *type)
{
    const int at = fp8c_program_find_port(c->program, function, FP8C_OUTPUT, name);
    fp8c_port port;
    ck_assert_msg(at >= 0, "no result %s", name);
    MUST(fp8c_program_port(c->program, function, FP8C_OUTPUT, at, &port));
    if (type)
        *type = port.type;
    return fp8c_program_buffer(c->program, function, FP8C_OUTPUT, at);
}

/* ---- comparing ---- */

recipe_oracle recipe_oracle_of(const recipe_spec *s, int operand)
{
    return (recipe_oracle){.e5m2 = s->hybrid && operand == RECIPE_DY,
                           .e8m0 = s->grain == RECIPE_MX,
                           .pow2 = s->pow2,
                           .margin = s->margin};
}

static int64_t count(const fp8c_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

static bool code_is_nan(fp8c_dtype format, uint8_t code)
{
    return format == FP8C_F8E5M2   ? (code & 0x7f) > 0x7c
           : format == FP8C_F8E4M3 ? (code & 0x7f) == 0x7f
                                   : code == 0xff;
}

/* Of dtype f32, f8e4m3, f8e5m2 or f8e8m0: equal bits, or NaN and NaN. */
static void same(const char *what, const char *name, const fp8c_type *type, const void *got,
                 fp8c_dtype dtype, const void *want, int64_t n)
{
    ck_assert_msg(type->dtype == dtype, "%s, %s: dtype %d", what, name, (int)type->dtype);
    ck_assert_msg(count(type) == n, "%s, %s: %lld elements, not %lld", what, name,
                  (long long)count(type), (long long)n);
    for (int64_t i = 0; i < n; i++) /* an assertion costs a write to a pipe */
        if (dtype == FP8C_F32) {
            const float a = ((const float *)got)[i], b = ((const float *)want)[i];
            if (memcmp(&a, &b, sizeof a) && !(isnan(a) && isnan(b)))
                ck_abort_msg("%s, %s[%lld] is %a, not %a", what, name, (long long)i, (double)a,
                             (double)b);
        } else {
            const uint8_t a = ((const uint8_t *)got)[i], b = ((const uint8_t *)want)[i];
            if (a != b && !(code_is_nan(dtype, a) && code_is_nan(dtype, b)))
                ck_abort_msg("%s, %s[%lld] is %02x, not %02x", what, name, (long long)i, a, b);
        }
}

static void same_result(recipe_case *c, const char *what, const char *name, const char *suffix,
                        fp8c_dtype dtype, const void *want, int64_t n)
{
    char full[96];
    fp8c_type type;
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const void *got = recipe_result(c, c->step, full, &type);
    same(what, full, &type, got, dtype, want, n);
}

/* An operand as one of its GEMMs has it, by the oracle. */
static void compare_one(recipe_case *c, int linear, int operand, int64_t tall, int64_t wide,
                        const char *suffix, const char *what)
{
    const recipe_spec *s = &c->spec[linear];
    const int64_t rows = recipe_rows(c, operand), columns = recipe_columns(c, operand);
    float *w = operand == RECIPE_W ? recipe_weight(c, linear) : NULL;
    const float *x = w ? w : operand == RECIPE_X ? c->effective : c->data[operand];
    recipe_oracle o = recipe_oracle_of(s, operand);
    char name[64], said[256];
    o.tall = tall;
    o.wide = wide;
    uint8_t *code = malloc((size_t)(rows * columns));
    float *scale_inv = malloc((size_t)(rows * columns) * sizeof *scale_inv);
    const int64_t n = recipe_oracle_quantize(&o, x, rows, columns, code, scale_inv);
    snprintf(name, sizeof name, "l%d.%s%s", linear, recipe_operand_name[operand], suffix);
    snprintf(said, sizeof said, "%s, %s", s->text, what);
    same_result(c, said, name, "", FP8C_F32, x, rows * columns);
    same_result(c, said, name, ".scale_inv", o.e8m0 ? FP8C_F8E8M0 : FP8C_F32, scale_inv, n);
    same_result(c, said, name, ".q", o.e5m2 ? FP8C_F8E5M2 : FP8C_F8E4M3, code, rows * columns);
    free(w);
    free(code);
    free(scale_inv);
}

/* x and dy lie as fprop and dgrad sum over them, along columns, and wgrad over their rows; w the
 * other way about: all are needed along both axes, but where one scale serves both. */
static int compare_operand(recipe_case *c, int linear, int operand, const char *what)
{
    static const struct {
        int64_t tall, wide;
        const char *suffix;
    } grain[][2] = {
        [RECIPE_TENSOR] = {{0, 0, ""}, {0, 0, NULL}},
        [RECIPE_ROWS] = {{1, 0, ".row"}, {0, 1, ".column"}},
        [RECIPE_BLOCKS] = {{1, 128, ".1x128"}, {128, 1, ".128x1"}},
        [RECIPE_MX] = {{1, 32, ".1x32"}, {32, 1, ".32x1"}},
    };
    const recipe_spec *s = &c->spec[linear];
    if (s->grain == RECIPE_BLOCKS && operand == RECIPE_W) {
        compare_one(c, linear, operand, 128, 128, ".128x128", what);
        return 1;
    }
    int n = 0;
    for (int i = 0; i < 2; i++) {
        if (!grain[s->grain][i].suffix || (i == 1 && s->wgrad_high && operand != RECIPE_W))
            continue;
        compare_one(c, linear, operand, grain[s->grain][i].tall, grain[s->grain][i].wide,
                    grain[s->grain][i].suffix, what);
        n++;
    }
    return n;
}

int recipe_compare(recipe_case *c, const char *what)
{
    int n = 0;
    for (int i = 0; i < c->n_specs; i++)
        for (int operand = 0; operand < RECIPE_OPERANDS && !c->spec[i].history; operand++)
            n += compare_operand(c, i, operand, what);
    return n;
}

void recipe_compare_scaled(recipe_case *c, int linear, int operand, const float *x, float scale,
                           bool own, const char *what)
{
    const int64_t rows = recipe_rows(c, operand), columns = recipe_columns(c, operand);
    const recipe_oracle o = recipe_oracle_of(&c->spec[linear], operand);
    const float amax = recipe_oracle_amax(x, rows, columns, 0, 0, rows, columns);
    const float scale_inv = own && !isfinite(amax) ? NAN : 1 / scale;
    char name[64], said[256];
    uint8_t *code = malloc((size_t)(rows * columns));
    recipe_oracle_codes(&o, x, rows * columns, scale, code);
    snprintf(name, sizeof name, "l%d.%s", linear, recipe_operand_name[operand]);
    snprintf(said, sizeof said, "%s, %s", c->spec[linear].text, what);
    same_result(c, said, name, "", FP8C_F32, x, rows * columns);
    same_result(c, said, name, ".scale_inv", FP8C_F32, &scale_inv, 1);
    same_result(c, said, name, ".q", o.e5m2 ? FP8C_F8E5M2 : FP8C_F8E4M3, code, rows * columns);
    free(code);
}
