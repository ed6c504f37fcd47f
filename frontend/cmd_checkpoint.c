/* Checkpoints: see cmd_checkpoint.h. */
#include "frontend/cmd_checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char state_prefix[] = "fp8c.state.", others_prefix[] = "transformer.", version[] = "1";

enum { NAME_ROOM = 1024 }; /* names of a module have 511 bytes at most */

static const st_dtype dtypes[] = {
    [FP8C_F32] = ST_F32,        [FP8C_BF16] = ST_BF16,      [FP8C_F16] = ST_F16,
    [FP8C_I32] = ST_I32,        [FP8C_BOOL] = ST_BOOL,      [FP8C_F8E4M3] = ST_F8_E4M3,
    [FP8C_F8E5M2] = ST_F8_E5M2, [FP8C_F8E8M0] = ST_F8_E8M0,
};

_Static_assert((int)ST_MAX_RANK >= (int)FP8C_MAX_RANK, "every variable can be written");

/* A variable as a tensor of a file; the name is the variable's. */
static st_tensor tensor_of(const fp8c_variable *v)
{
    st_tensor t = {.name = v->name,
                   .dtype = dtypes[v->type.dtype],
                   .rank = v->type.rank,
                   .bytes = (uint64_t)fp8c_type_bytes(&v->type)};
    for (int32_t i = 0; i < t.rank; i++)
        t.dim[i] = v->type.dim[i];
    return t;
}

/* ---- saving ---- */

typedef struct saver {
    fp8c_program *program;
    bool read_failed;
} saver;

static bool read_variable(void *user, size_t index, void *to)
{
    saver *s = user;
    s->read_failed = fp8c_program_read(s->program, (int)index, to) != FP8C_OK;
    return !s->read_failed;
}

/* {"fp8.scale": ["fc.x", ...], ...} as text, to be freed; NULL: out of memory. */
static char *elements_text(fp8c_program *program)
{
    json_t *all = json_object();
    fp8c_variable v;
    const char *name;
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++) {
        json_t *list = fp8c_program_element(program, i, 0) ? json_array() : NULL;
        for (int64_t k = 0; list && (name = fp8c_program_element(program, i, k)); k++)
            json_array_append_new(list, json_string(name));
        if (list)
            json_object_set_new(all, v.name, list);
    }
    char *text = json_dumps(all, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(all);
    return text;
}

/* All variables as tensors, their states' names made in *names; both to be freed. */
static st_tensor *list_variables(fp8c_program *program, size_t *n, char **names)
{
    fp8c_variable v;
    size_t bytes = 1, used = 0;
    for (*n = 0; fp8c_program_variable(program, (int)*n, &v) == FP8C_OK; (*n)++)
        bytes += v.is_param ? 0 : sizeof state_prefix + strlen(v.name);
    st_tensor *tensor = calloc(*n + 1, sizeof *tensor);
    *names = malloc(bytes);
    if (!tensor || !*names)
        return free(tensor), NULL;
    for (size_t i = 0; i < *n; i++) {
        fp8c_program_variable(program, (int)i, &v);
        tensor[i] = tensor_of(&v);
        if (v.is_param)
            continue;
        tensor[i].name = *names + used;
        used += (size_t)sprintf(*names + used, "%s%s", state_prefix, v.name) + 1;
    }
    return tensor;
}

bool cli_checkpoint_save(const cli *c, const char *path, fp8c_context *ctx,
                         const fp8c_module *module, fp8c_program *program, const char *recipe)
{
    char message[ST_MESSAGE], steps[24], seed[24], *names;
    size_t n;
    saver s = {.program = program};
    st_tensor *tensor = list_variables(program, &n, &names);
    char *elements = elements_text(program);
    snprintf(steps, sizeof steps, "%" PRId64, c->steps);
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    snprintf(message, sizeof message, "%s: error: out of memory", path);
    const st_pair metadata[] = {
        {"format", "pt"},
        {"fp8c.version", version},
        {"fp8c.model", fp8c_module_name(module)},
        {"fp8c.recipe", recipe},
        {"fp8c.steps", steps},
        {"fp8c.seed", seed},
        {"fp8c.elements", elements},
    };
    const bool ok = tensor && elements &&
                    st_write(path, tensor, n, metadata, sizeof metadata / sizeof *metadata,
                             read_variable, &s, message);
    if (!ok && s.read_failed)
        cli_fail(ctx);
    else if (!ok)
        fprintf(stderr, "%s\n", message);
    free(tensor);
    free(names);
    free(elements);
    return ok;
}

/* ---- what a program needs, and where it is ---- */

typedef struct loader {
    const cli *c;
    st_file *f;
    fp8c_context *ctx;
    fp8c_program *program;
    const char *recipe, *prefix; /* prefix: of the weights' names */
    json_t *elements;
    const st_tensor **from; /* by variable; NULL: not from the file */
    bool *used;             /* by tensor of the file */
    int n;                  /* variables */
    FILE *problems;         /* a line for each tensor that isn't as it should be */
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
    fprintf(l->problems, "  %-10s  %s  ", what, st_shown(name, shown, sizeof shown));
    va_start(args, format);
    vfprintf(l->problems, format, args);
    va_end(args);
    fputc('\n', l->problems);
}

static const st_tensor *find(const loader *l, const char *prefix, const char *name)
{
    char whole[NAME_ROOM];
    return snprintf(whole, sizeof whole, "%s%s", prefix, name) < (int)sizeof whole
               ? st_find(l->f, whole)
               : NULL;
}

static bool has_port(const loader *l, const char *function, fp8c_side side, int variable)
{
    fp8c_port port;
    const int f = fp8c_program_function(l->program, function);
    for (int i = 0; fp8c_program_port(l->program, f, side, i, &port) == FP8C_OK; i++)
        if (port.variable == variable)
            return true;
    return false;
}

/* Whether a state's value must come from the file: eval reads it, and prepare does not compute it
 * from parameters alone (one that prepare reads as well, it only changes in part). */
static bool is_needed(const loader *l, int variable)
{
    const bool computed = has_port(l, "prepare", FP8C_OUTPUT, variable) &&
                          !has_port(l, "prepare", FP8C_INPUT, variable);
    return has_port(l, "eval", FP8C_INPUT, variable) && !computed;
}

static bool same_shape(const st_tensor *a, const st_tensor *b, int32_t first)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = first; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* Whether values of one dtype are values of the other as well. */
static bool widens(st_dtype from, st_dtype to)
{
    return from == to || (to == ST_F32 && (from == ST_BF16 || from == ST_F16));
}

static void match_parameter(loader *l, int i, const fp8c_variable *v)
{
    char here[128], there[128];
    const st_tensor want = tensor_of(v), *t = find(l, l->prefix, v->name);
    st_type_text(&want, here, sizeof here);
    if (!t) {
        problem(l, "missing", v->name, "%s", here);
        return;
    }
    l->used[t - l->f->tensor] = true;
    if (!same_shape(t, &want, 0))
        problem(l, "different", t->name, "%s, not %s", st_type_text(t, there, sizeof there), here);
    else if (!widens(t->dtype, want.dtype))
        problem(l, "different", t->name, "%s can't become %s exactly",
                st_type_text(t, there, sizeof there), here);
    l->from[i] = t;
}

/* The index in the file of the element that the program calls `name`, or -1. */
static int64_t element_at(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *at = json_string_value(json_array_get(list, i));
        if (at && !strcmp(at, name))
            return (int64_t)i;
    }
    return -1;
}

static void match_state(loader *l, int i, const fp8c_variable *v)
{
    char here[128], there[128];
    const char *element;
    const st_tensor want = tensor_of(v), *t = find(l, state_prefix, v->name);
    const bool named = fp8c_program_element(l->program, i, 0) != NULL;
    if (!t) /* a buffer, as others save it */
        t = find(l, l->prefix, v->name);
    st_type_text(&want, here, sizeof here);
    if (t)
        l->used[t - l->f->tensor] = true;
    l->scales_missing |= !t && named;
    if (!t) {
        problem(l, "missing", v->name, "%s", here);
        return;
    }
    const json_t *list = json_object_get(l->elements, v->name);
    if (!same_shape(t, &want, named) || t->dtype != want.dtype ||
        (named && (t->rank < 1 || (size_t)t->dim[0] != json_array_size(list)))) {
        problem(l, "different", t->name, "%s, not %s", st_type_text(t, there, sizeof there), here);
        return;
    }
    l->from[i] = t;
    for (int64_t k = 0; (element = fp8c_program_element(l->program, i, k)); k++)
        if (element_at(list, element) < 0) {
            problem(l, "missing", element, "in %s", v->name);
            l->scales_missing = true;
        }
}

/* ---- tensors nobody asked for ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* A tied head that was written out: the same bytes as the embedding. */
static bool is_tied(loader *l, const st_tensor *t)
{
    const st_tensor *wte = find(l, l->prefix, "wte.weight");
    if (!ends_with(t->name, "lm_head.weight") || !wte || wte->dtype != t->dtype ||
        !same_shape(t, wte, 0))
        return false;
    char *a = malloc((size_t)t->bytes + 1), *b = malloc((size_t)t->bytes + 1);
    const bool tied =
        a && b && st_read(l->f, t, a) && st_read(l->f, wte, b) && !memcmp(a, b, (size_t)t->bytes);
    free(a);
    free(b);
    return tied;
}

static bool is_passed_over(loader *l, const st_tensor *t)
{
    const bool mask = ends_with(t->name, ".attn.bias") && t->rank == 4 && t->dim[0] == 1 &&
                      t->dim[1] == 1 && t->dim[2] == t->dim[3];
    return !strncmp(t->name, state_prefix, sizeof state_prefix - 1) || mask ||
           (ends_with(t->name, ".attn.masked_bias") && t->rank == 0) || is_tied(l, t);
}

/* Find the source of every variable; problems are noted, not returned. */
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
        else if (is_needed(l, i))
            match_state(l, i, &v);
    for (size_t i = 0; i < l->f->n; i++)
        if (!l->used[i] && !is_passed_over(l, &l->f->tensor[i]))
            problem(l, "unexpected", l->f->tensor[i].name, "%s",
                    st_type_text(&l->f->tensor[i], type, sizeof type));
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

/* n values of f32 at `to` from narrower ones at `from`. */
static void widen(st_dtype dtype, const uint16_t *from, float *to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t high = (uint32_t)from[i] << 16;
        if (dtype == ST_BF16)
            memcpy(&to[i], &high, sizeof high);
        else
            to[i] = f16_to_f32(from[i]);
    }
}

/* The value of variable i at `to`, from the bytes of its tensor. */
static void convert(const loader *l, int i, const fp8c_variable *v, const void *bytes, void *to)
{
    const st_tensor want = tensor_of(v), *t = l->from[i];
    const char *element;
    if (fp8c_program_element(l->program, i, 0)) {
        const json_t *list = json_object_get(l->elements, v->name);
        const uint64_t row = want.bytes / (uint64_t)want.dim[0];
        for (int64_t k = 0; (element = fp8c_program_element(l->program, i, k)); k++)
            memcpy((char *)to + (uint64_t)k * row,
                   (const char *)bytes + (uint64_t)element_at(list, element) * row, (size_t)row);
    } else if (t->dtype == want.dtype) {
        memcpy(to, bytes, (size_t)want.bytes);
    } else {
        widen(t->dtype, bytes, to, want.bytes / sizeof(float));
    }
}

static bool load_variable(loader *l, int i, const fp8c_variable *v)
{
    const size_t bytes = (size_t)fp8c_type_bytes(&v->type);
    void *raw = malloc((size_t)l->from[i]->bytes + 1), *value = malloc(bytes + 1);
    bool ok = false;
    if (!raw || !value) {
        fprintf(stderr, "%s: error: out of memory: %zu bytes were wanted\n", l->f->path, bytes);
    } else if (!st_read(l->f, l->from[i], raw)) {
        fprintf(stderr, "%s\n", l->f->message);
    } else {
        convert(l, i, v, raw, value);
        ok = fp8c_program_write(l->program, i, value) == FP8C_OK || cli_fail(l->ctx) == CLI_DONE;
    }
    free(raw);
    free(value);
    return ok;
}

/* Parameters, then what follows from them, then states that prepare would only change in part. */
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
    const char *trained = st_metadata(l->f, "fp8c.recipe");
    char shown[200];
    fprintf(stderr, "%s: error: these are not the weights of %s under %s:\n%s", l->f->path,
            l->c->file, l->recipe, problems);
    if (l->scales_missing)
        fprintf(stderr,
                "the recipe asked for needs scales that training under it keeps, and the file "
                "%s%s: serve it "
                "under another, as current\n",
                trained ? "was trained under " : "has none",
                trained ? st_shown(trained, shown, sizeof shown) : "");
}

/* Match and load, with everything to free in `l`. */
static bool match_and_load(loader *l)
{
    const char *elements = st_metadata(l->f, "fp8c.elements");
    const char *theirs = st_metadata(l->f, "fp8c.version");
    fp8c_variable v;
    while (fp8c_program_variable(l->program, l->n, &v) == FP8C_OK)
        l->n++;
    if (theirs && strcmp(theirs, version)) {
        char shown[40];
        fprintf(stderr, "%s: error: its 'fp8c.version' is '%s', and only %s is read\n", l->f->path,
                st_shown(theirs, shown, sizeof shown), version);
        return false;
    }
    if (elements && !(l->elements = json_loads(elements, JSON_REJECT_DUPLICATES, NULL))) {
        fprintf(stderr, "%s: error: its metadata 'fp8c.elements' is no JSON\n", l->f->path);
        return false;
    }
    char *text = NULL;
    size_t size = 0;
    l->from = calloc((size_t)l->n + 1, sizeof *l->from);
    l->used = calloc(l->f->n + 1, sizeof *l->used);
    l->problems = open_memstream(&text, &size);
    if (l->problems && l->from && l->used)
        match(l);
    const bool noted = l->problems && !fclose(l->problems) && l->from && l->used;
    if (!noted)
        fprintf(stderr, "%s: error: out of memory\n", l->f->path);
    else if (l->n_problems)
        report(l, text);
    free(text);
    return noted && !l->n_problems && load(l);
}

bool cli_checkpoint_load(const cli *c, st_file *f, fp8c_context *ctx, fp8c_program *program,
                         const char *recipe)
{
    loader l = {.c = c, .f = f, .ctx = ctx, .program = program, .recipe = recipe};
    const bool ok = match_and_load(&l);
    json_decref(l.elements);
    free(l.from);
    free(l.used);
    return ok;
}
