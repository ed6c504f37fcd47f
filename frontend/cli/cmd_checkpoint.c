/* Writes and loads checkpoints: see cmd_checkpoint.h. */
#include "frontend/cli/cmd_checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool cli_file_fail(const f8_diag *diag)
{
    fprintf(stderr, "%s%serror: %s\n", diag->file ? diag->file : "", diag->file ? ": " : "",
            diag->text);
    return false;
}

bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe,
                         int64_t n_steps)
{
    char steps[24], seed[24];
    f8_diag diag = {0};
    snprintf(steps, sizeof steps, "%" PRId64, n_steps);
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    const f8_st_pair more[] = {{"fp8c.recipe", recipe}, {"fp8c.steps", steps}, {"fp8c.seed", seed}};
    return f8_checkpoint_write(program, path, more, sizeof more / sizeof *more, &diag) == F8_OK ||
           cli_file_fail(&diag);
}

/* ---- loading ---- */

static const char others_prefix[] = "transformer.";

enum { NAME_ROOM = 1024 }; /* names of a module have 511 bytes at most */

/* ---- what a program needs, and where the file has it ---- */

typedef struct loader {
    const cli *c;
    f8_st_file *f;
    fp8c_context *ctx;
    fp8c_program *program;
    const char *recipe, *prefix; /* prefix: what weights' names begin with in the file */
    bool quantize;               /* weights that the program stores as FP8 come from values */
    json_t *elements;
    const f8_st_tensor **from; /* of each variable; NULL: not from the file */
    bool *used;                /* of each tensor of the file */
    int n;                     /* the number of variables */
    FILE *problems;            /* a line for each tensor that is missing, unexpected or different */
    int n_problems;
    bool scales_missing;
} loader;

static void problem(loader *l, const char *what, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void problem(loader *l, const char *what, const char *name, const char *format, ...)
{
    va_list args;
    char shown[NAME_ROOM];
    l->n_problems++;
    fprintf(l->problems, "  %-10s  %s  ", what, f8_st_shown(name, shown, sizeof shown));
    va_start(args, format);
    vfprintf(l->problems, format, args);
    va_end(args);
    fputc('\n', l->problems);
}

static const f8_st_tensor *find(const loader *l, const char *prefix, const char *name)
{
    char whole[NAME_ROOM];
    return snprintf(whole, sizeof whole, "%s%s", prefix, name) < (int)sizeof whole
               ? f8_st_find(l->f, whole)
               : NULL;
}

/* Whether every value of one dtype is a value of the other. */
static bool widens(f8_st_dtype from, f8_st_dtype to)
{
    return from == to || (to == F8_ST_F32 && (from == F8_ST_BF16 || from == F8_ST_F16));
}

/* Finds the weight stored as FP8 whose codes or scales are variable i. */
static bool find_stored(const loader *l, int i, fp8c_stored *to)
{
    for (int k = 0; fp8c_program_stored(l->program, k, to) == FP8C_OK; k++)
        if (to->variable == i || to->scale_variable == i)
            return true;
    return false;
}

/* The tensor that variable i needs from the file. */
static f8_st_tensor wanted(const loader *l, int i, const fp8c_variable *v)
{
    fp8c_stored stored;
    f8_st_tensor t = f8_checkpoint_tensor(v);
    if (l->quantize && find_stored(l, i, &stored)) {
        t.dtype = F8_ST_F32;
        t.bytes *= sizeof(float);
    }
    return t;
}

/* Reads the file's scale of an element of fp8.scale. If the file has none, fails without a message.
 */
static f8_status read_kept(const loader *l, const char *element, float *scale, f8_diag *diag)
{
    const json_t *list = json_object_get(l->elements, "fp8.scale");
    const f8_st_tensor *t = find(l, f8_checkpoint_prefix, "fp8.scale");
    const int64_t at = f8_checkpoint_element(list, element);
    if (!t || t->dtype != F8_ST_F32 || t->rank != 1 || at < 0 ||
        (size_t)t->dim[0] != json_array_size(list))
        return F8_ERR_INPUT;
    float *all = malloc((size_t)t->bytes + 1);
    const f8_status status =
        all ? f8_st_read(l->f, t, all, diag)
            : f8_file_fail(diag, F8_ERR_MEMORY, l->f->in.path, "out of memory");
    if (status == F8_OK)
        *scale = all[at];
    free(all);
    return status;
}

static void match_parameter(loader *l, int i, const fp8c_variable *v)
{
    char here[128], there[128];
    fp8c_stored stored;
    float scale;
    const f8_st_tensor want = wanted(l, i, v), *t = find(l, l->prefix, v->name);
    const bool is_stored = l->quantize && find_stored(l, i, &stored);
    if (is_stored && stored.scale_variable == i) /* is made with the codes */
        return;
    f8_st_type_text(&want, here, sizeof here);
    if (is_stored && stored.kept && read_kept(l, stored.kept, &scale, NULL) != F8_OK) {
        problem(l, "missing", stored.kept, "in fp8.scale");
        l->scales_missing = true;
    }
    if (!t) {
        problem(l, "missing", v->name, "%s", here);
        return;
    }
    l->used[t - l->f->tensor] = true;
    if (!f8_checkpoint_same_shape(t, &want, 0))
        problem(l, "different", t->name, "%s, not %s", f8_st_type_text(t, there, sizeof there),
                here);
    else if (!widens(t->dtype, want.dtype))
        problem(l, "different", t->name, "%s can't become %s exactly",
                f8_st_type_text(t, there, sizeof there), here);
    l->from[i] = t;
}

static void match_state(loader *l, int i, const fp8c_variable *v)
{
    char here[128], there[128];
    const char *element;
    const f8_st_tensor want = f8_checkpoint_tensor(v), *t = find(l, f8_checkpoint_prefix, v->name);
    const bool named = fp8c_program_element(l->program, i, 0) != NULL;
    if (!t) /* others save it as a buffer, without the prefix of states */
        t = find(l, l->prefix, v->name);
    f8_st_type_text(&want, here, sizeof here);
    if (t)
        l->used[t - l->f->tensor] = true;
    l->scales_missing |= !t && named;
    if (!t) {
        problem(l, "missing", v->name, "%s", here);
        return;
    }
    const json_t *list = json_object_get(l->elements, v->name);
    if (!f8_checkpoint_fits(l->program, i, t, list)) {
        problem(l, "different", t->name, "%s, not %s", f8_st_type_text(t, there, sizeof there),
                here);
        return;
    }
    l->from[i] = t;
    for (int64_t k = 0; (element = fp8c_program_element(l->program, i, k)); k++)
        if (f8_checkpoint_element(list, element) < 0) {
            problem(l, "missing", element, "in %s", v->name);
            l->scales_missing = true;
        }
}

/* ---- tensors that the program does not need ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* Whether a tensor is a tied head: it has the same bytes as the embedding. */
static bool is_tied(loader *l, const f8_st_tensor *t)
{
    const f8_st_tensor *wte = find(l, l->prefix, "wte.weight");
    if (!ends_with(t->name, "lm_head.weight") || !wte || wte->dtype != t->dtype ||
        !f8_checkpoint_same_shape(t, wte, 0))
        return false;
    char *a = malloc((size_t)t->bytes + 1), *b = malloc((size_t)t->bytes + 1);
    const bool tied = a && b && f8_st_read(l->f, t, a, NULL) == F8_OK &&
                      f8_st_read(l->f, wte, b, NULL) == F8_OK && !memcmp(a, b, (size_t)t->bytes);
    free(a);
    free(b);
    return tied;
}

static bool is_passed_over(loader *l, const f8_st_tensor *t)
{
    const bool mask = ends_with(t->name, ".attn.bias") && t->rank == 4 && t->dim[0] == 1 &&
                      t->dim[1] == 1 && t->dim[2] == t->dim[3];
    return !strncmp(t->name, f8_checkpoint_prefix, strlen(f8_checkpoint_prefix)) || mask ||
           (ends_with(t->name, ".attn.masked_bias") && t->rank == 0) || is_tied(l, t);
}

/* Finds the tensor of every variable. Notes problems in l->problems. */
static void match(loader *l)
{
    fp8c_variable v;
    char type[128];
    int plain = 0, prefixed = 0;
    for (int i = 0; fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++) {
        plain += v.is_param && find(l, "", v.name);
        prefixed += v.is_param && find(l, others_prefix, v.name);
    }
    l->prefix = prefixed > plain ? others_prefix : "";
    for (int i = 0; fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++)
        if (v.is_param)
            match_parameter(l, i, &v);
        else if (f8_checkpoint_is_needed(l->program, i))
            match_state(l, i, &v);
    for (size_t i = 0; i < l->f->n; i++)
        if (!l->used[i] && !is_passed_over(l, &l->f->tensor[i]))
            problem(l, "unexpected", l->f->tensor[i].name, "%s",
                    f8_st_type_text(&l->f->tensor[i], type, sizeof type));
}

/* ---- loading ---- */

static float f16_to_f32(uint16_t h)
{
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                       : exponent     ? ldexpf((float)(mantissa | 1024), exponent - 25)
                                      : ldexpf((float)mantissa, -24);
    return h >> 15 ? -size : size;
}

void cli_widen(f8_st_dtype dtype, const uint16_t *from, float *to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t high = (uint32_t)from[i] << 16;
        if (dtype == F8_ST_BF16)
            memcpy(&to[i], &high, sizeof high);
        else
            to[i] = f16_to_f32(from[i]);
    }
}

/* Converts the bytes of a tensor to the value of variable i at `to`. */
static void convert(const loader *l, int i, const fp8c_variable *v, const void *bytes, void *to)
{
    const f8_st_tensor want = wanted(l, i, v), *t = l->from[i];
    if (fp8c_program_element(l->program, i, 0)) {
        f8_checkpoint_gather(l->program, i, json_object_get(l->elements, v->name), bytes, to);
    } else if (t->dtype == want.dtype) {
        memcpy(to, bytes, (size_t)want.bytes);
    } else {
        cli_widen(t->dtype, bytes, to, want.bytes / sizeof(float));
    }
}

/* Refuses NaN in a weight, and Inf in a weight that is stored as FP8: its codes would not show
 * which values were not finite. */
static bool check_finite(const loader *l, int i, const float *value, uint64_t n, bool stored)
{
    char shown[NAME_ROOM];
    for (uint64_t k = 0; k < n; k++)
        if (isnan(value[k]) || (stored && isinf(value[k]))) {
            fprintf(stderr,
                    "%s: error: tensor '%s': element %" PRIu64
                    " is %s: fp8c does not export such weights\n",
                    l->f->in.path, f8_st_shown(l->from[i]->name, shown, sizeof shown), k,
                    isnan(value[k]) ? "NaN" : "infinite");
            return false;
        }
    return true;
}

static bool put_variable(const loader *l, int i, const fp8c_variable *v, const void *value)
{
    fp8c_stored stored;
    float scale;
    f8_diag diag = {0};
    const f8_st_tensor want = wanted(l, i, v);
    const bool is_stored = l->quantize && find_stored(l, i, &stored);
    if (l->quantize && v->is_param && want.dtype == F8_ST_F32 &&
        !check_finite(l, i, value, want.bytes / sizeof(float), is_stored))
        return false;
    if (is_stored && stored.kept && read_kept(l, stored.kept, &scale, &diag) != F8_OK)
        return cli_file_fail(&diag);
    const fp8c_status status =
        is_stored ? fp8c_program_quantize(l->program, i, value, stored.kept ? &scale : NULL)
                  : fp8c_program_write(l->program, i, value);
    return status == FP8C_OK || cli_fail(l->ctx) == CLI_DONE;
}

/* `prepare` sets the scale of a weight that is not finite to NaN. Keeps these NaN: with the finite
 * scale of the file, the codes would saturate and hide that the weight is not finite. */
static bool keep_nan(const loader *l, int i, const fp8c_variable *v, float *value)
{
    const uint64_t n = wanted(l, i, v).bytes / sizeof *value;
    if (v->is_param || !fp8c_program_element(l->program, i, 0) ||
        !f8_checkpoint_has_port(l->program, "prepare", FP8C_OUTPUT, i))
        return true;
    float *now = malloc((size_t)(n + 1) * sizeof *now);
    if (!now)
        fprintf(stderr, "%s: error: out of memory: %" PRIu64 " floats were wanted\n", l->f->in.path,
                n);
    const bool ok =
        now && (fp8c_program_read(l->program, i, now) == FP8C_OK || cli_fail(l->ctx) == CLI_DONE);
    for (uint64_t k = 0; ok && k < n; k++)
        if (isnan(now[k]))
            value[k] = now[k];
    free(now);
    return ok;
}

static bool load_variable(loader *l, int i, const fp8c_variable *v)
{
    const size_t bytes = (size_t)wanted(l, i, v).bytes;
    void *raw = malloc((size_t)l->from[i]->bytes + 1), *value = malloc(bytes + 1);
    f8_diag diag = {0};
    bool ok = false;
    if (!raw || !value) {
        fprintf(stderr, "%s: error: out of memory: %zu bytes were wanted\n", l->f->in.path, bytes);
    } else if (f8_st_read(l->f, l->from[i], raw, &diag) != F8_OK) {
        cli_file_fail(&diag);
    } else {
        convert(l, i, v, raw, value);
        ok = keep_nan(l, i, v, value) && put_variable(l, i, v, value);
    }
    free(raw);
    free(value);
    return ok;
}

/* Loads the parameters, runs prepare, and then loads the states, of which prepare computes a part.
 */
static bool load(loader *l)
{
    fp8c_variable v;
    const int prepare = fp8c_program_function(l->program, "prepare");
    if (fp8c_program_initialize(l->program, 0) != FP8C_OK)
        return cli_fail(l->ctx) == CLI_DONE;
    for (int params = 1; params >= 0; params--) {
        for (int i = 0; fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++)
            if (l->from[i] && v.is_param == params && !load_variable(l, i, &v))
                return false;
        if (params && prepare >= 0 && fp8c_program_run(l->program, prepare) != FP8C_OK)
            return cli_fail(l->ctx) == CLI_DONE;
    }
    return true;
}

static void report(const loader *l, const char *problems)
{
    const char *trained = f8_st_metadata(l->f, "fp8c.recipe");
    char shown[200];
    fprintf(stderr, "%s: error: the file does not hold the weights of %s under %s:\n%s",
            l->f->in.path, l->c->file, l->recipe, problems);
    if (l->scales_missing)
        fprintf(stderr,
                "this recipe needs the scales that training under it keeps, and the file %s%s: "
                "give a recipe that needs none, such as current\n",
                trained ? "was trained under " : "has none",
                trained ? f8_st_shown(trained, shown, sizeof shown) : "");
}

/* Matches and loads. Everything that must be freed is in `l`. */
static bool match_and_load(loader *l)
{
    f8_diag diag = {0};
    fp8c_variable v;
    while (fp8c_program_variable(l->program, l->n, &v) == FP8C_OK)
        l->n++;
    if (f8_checkpoint_read_metadata(l->f, &l->elements, &diag) != F8_OK)
        return cli_file_fail(&diag);
    char *text = NULL;
    size_t size = 0;
    l->from = calloc((size_t)l->n + 1, sizeof *l->from);
    l->used = calloc(l->f->n + 1, sizeof *l->used);
    l->problems = open_memstream(&text, &size);
    if (l->problems && l->from && l->used)
        match(l);
    const bool noted = l->problems && !fclose(l->problems) && l->from && l->used;
    if (!noted)
        fprintf(stderr, "%s: error: out of memory\n", l->f->in.path);
    else if (l->n_problems)
        report(l, text);
    free(text);
    return noted && !l->n_problems && load(l);
}

static bool run(loader *l)
{
    const bool ok = match_and_load(l);
    json_decref(l->elements);
    free(l->used);
    return ok;
}

bool cli_checkpoint_load(const cli *c, f8_st_file *f, fp8c_context *ctx, fp8c_program *program,
                         const char *recipe)
{
    loader l = {.c = c, .f = f, .ctx = ctx, .program = program, .recipe = recipe};
    const bool ok = run(&l);
    free(l.from);
    return ok;
}

bool cli_checkpoint_quantize(const cli *c, f8_st_file *f, fp8c_context *ctx, fp8c_program *program,
                             const char *recipe, const f8_st_tensor ***from)
{
    loader l = {.c = c, .f = f, .ctx = ctx, .program = program, .recipe = recipe, .quantize = true};
    const bool ok = run(&l);
    *from = l.from;
    return ok;
}

/* ---- the recipes under which a file stores weights ---- */

/* Checks one weight of the list. false after a message on stderr. */
static bool read_stored(f8_st_file *f, fp8c_context *ctx, const char *name, const char *recipe)
{
    char shown[NAME_ROOM], canonical[CLI_RECIPE];
    if (recipe && fp8c_recipe_canonical(ctx, recipe, canonical, sizeof canonical) == FP8C_OK)
        return true;
    fprintf(stderr, "%s: error: the metadata 'fp8c.stored' of '%s': %s\n", f->in.path,
            f8_st_shown(name, shown, sizeof shown), recipe ? "" : "it has no recipe");
    return recipe ? cli_fail(ctx) == CLI_DONE : false;
}

bool cli_stored_read(cli_stored *s, f8_st_file *f, fp8c_context *ctx)
{
    const char *text = f8_st_metadata(f, "fp8c.stored"), *name;
    json_t *value;
    *s = (cli_stored){0};
    if (!text)
        return true;
    s->owner = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(s->owner) || !json_object_size(s->owner)) {
        fprintf(
            stderr,
            "%s: error: the metadata 'fp8c.stored' is not a JSON object of weights and recipes\n",
            f->in.path);
        return false;
    }
    s->weight = calloc(json_object_size(s->owner), sizeof *s->weight);
    if (!s->weight) {
        fprintf(stderr, "%s: error: out of memory\n", f->in.path);
        return false;
    }
    json_object_foreach(s->owner, name, value)
    {
        if (!read_stored(f, ctx, name, json_string_value(value)))
            return false;
        s->weight[s->n++] = (fp8c_stored_as){name, json_string_value(value)};
    }
    return true;
}

void cli_stored_free(cli_stored *s)
{
    free(s->weight);
    json_decref(s->owner);
    *s = (cli_stored){0};
}
