/* Checkpoints: what all their readers and writers share. See checkpoint.h. */
#include "frontend/checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/shared.h"
#include "frontend/program.h"

const char f8_checkpoint_prefix[] = "fp8c.state.", f8_checkpoint_version[] = "1";

static const f8_st_dtype dtypes[] = {
    [FP8C_F32] = F8_ST_F32,        [FP8C_BF16] = F8_ST_BF16,      [FP8C_F16] = F8_ST_F16,
    [FP8C_I32] = F8_ST_I32,        [FP8C_I64] = F8_ST_I64,        [FP8C_BOOL] = F8_ST_BOOL,
    [FP8C_F8E4M3] = F8_ST_F8_E4M3, [FP8C_F8E5M2] = F8_ST_F8_E5M2, [FP8C_F8E8M0] = F8_ST_F8_E8M0,
};

_Static_assert((int)F8_ST_MAX_RANK >= (int)FP8C_MAX_RANK, "every variable can be written");

f8_st_tensor f8_checkpoint_tensor(const fp8c_variable *v)
{
    f8_st_tensor t = {.name = v->name,
                      .dtype = dtypes[v->type.dtype],
                      .rank = v->type.rank,
                      .bytes = f8_shared_bytes(v)};
    for (int32_t i = 0; i < t.rank; i++)
        t.dim[i] = v->type.dim[i];
    if (v->rows)
        t.dim[0] = v->rows;
    return t;
}

bool f8_checkpoint_same_shape(const f8_st_tensor *a, const f8_st_tensor *b, int32_t first)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = first; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* ---- states ---- */

bool f8_checkpoint_has_port(fp8c_program *program, const char *function, fp8c_side side,
                            int variable)
{
    fp8c_port port;
    const int f = fp8c_program_function(program, function);
    for (int i = 0; fp8c_program_port(program, f, side, i, &port) == FP8C_OK; i++)
        if (port.variable == variable)
            return true;
    return false;
}

bool f8_checkpoint_is_computed(fp8c_program *program, int variable)
{
    return f8_checkpoint_has_port(program, "prepare", FP8C_OUTPUT, variable) &&
           !f8_checkpoint_has_port(program, "prepare", FP8C_INPUT, variable);
}

bool f8_checkpoint_is_needed(fp8c_program *program, int variable)
{
    const bool observed = fp8c_program_element(program, variable, 0, 0) &&
                          f8_checkpoint_has_port(program, "eval", FP8C_OUTPUT, variable);
    return f8_checkpoint_has_port(program, "eval", FP8C_INPUT, variable) && !observed &&
           !f8_checkpoint_is_computed(program, variable);
}

/* Whether a file tells the names of a state's elements. */
static bool is_listed(fp8c_program *program, int variable, bool all)
{
    return fp8c_program_element(program, variable, 0, 0) &&
           (all || f8_checkpoint_is_needed(program, variable));
}

/* The value as text. Takes over the reference. */
static char *dump(json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(value);
    return text;
}

char *f8_checkpoint_elements(fp8c_program *program, bool all)
{
    json_t *lists = json_object();
    fp8c_variable v;
    const char *name;
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++) {
        json_t *list = is_listed(program, i, all) ? json_array() : NULL;
        for (int64_t k = 0; list && (name = fp8c_program_element(program, i, k, 0)); k++)
            json_array_append_new(list, json_string(name));
        if (list)
            json_object_set_new(lists, v.name, list);
    }
    return dump(lists);
}

char *f8_checkpoint_stored(fp8c_program *program, int64_t *n)
{
    json_t *all = json_object();
    fp8c_stored s;
    fp8c_variable v;
    for (int k = 0; fp8c_program_stored(program, k, &s) == FP8C_OK; k++)
        if (fp8c_program_variable(program, s.variable, &v) == FP8C_OK)
            json_object_set_new(all, v.name, json_string(s.recipe));
    *n = (int64_t)json_object_size(all);
    return dump(all);
}

char *f8_checkpoint_aliases(fp8c_program *program, bool all)
{
    json_t *aliases = json_object();
    fp8c_variable v;
    const char *name, *alias;
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        for (int64_t k = 0;
             is_listed(program, i, all) && (name = fp8c_program_element(program, i, k, 0)); k++)
            for (int a = 1; (alias = fp8c_program_element(program, i, k, a)); a++)
                json_object_set_new(aliases, alias, json_string(name));
    return dump(aliases);
}

bool f8_checkpoint_has_aliases(const char *aliases)
{
    return strcmp(aliases, "{}") != 0;
}

size_t f8_checkpoint_count(const f8_checkpoint_names *names, const char *state)
{
    return json_array_size(json_object_get(names->elements, state));
}

static int64_t index_in(const json_t *list, const char *name)
{
    for (size_t i = 0; name && i < json_array_size(list); i++) {
        const char *at = json_string_value(json_array_get(list, i));
        if (at && !strcmp(at, name))
            return (int64_t)i;
    }
    return -1;
}

int64_t f8_checkpoint_element(const f8_checkpoint_names *names, const char *state, const char *name)
{
    const json_t *list = json_object_get(names->elements, state);
    const int64_t index = index_in(list, name);
    return index >= 0 ? index
                      : index_in(list, json_string_value(json_object_get(names->aliases, name)));
}

int64_t f8_checkpoint_find(const f8_checkpoint_names *names, fp8c_program *program, int variable,
                           int64_t index)
{
    fp8c_variable v;
    fp8c_program_variable(program, variable, &v);
    const char *name;
    for (int a = 0; (name = fp8c_program_element(program, variable, index, a)); a++) {
        const int64_t found = f8_checkpoint_element(names, v.name, name);
        if (found >= 0)
            return found;
    }
    return -1;
}

bool f8_checkpoint_fits(fp8c_program *program, int variable, const f8_st_tensor *t,
                        const f8_checkpoint_names *names)
{
    fp8c_variable v;
    fp8c_program_variable(program, variable, &v);
    const f8_st_tensor want = f8_checkpoint_tensor(&v);
    const bool named = fp8c_program_element(program, variable, 0, 0) != NULL;
    return f8_checkpoint_same_shape(t, &want, named) && t->dtype == want.dtype &&
           (!named || (t->rank >= 1 && (size_t)t->dim[0] == f8_checkpoint_count(names, v.name)));
}

void f8_checkpoint_gather(fp8c_program *program, int variable, const f8_checkpoint_names *names,
                          const void *bytes, void *to)
{
    fp8c_variable v;
    fp8c_program_variable(program, variable, &v);
    const size_t whole = (size_t)fp8c_type_bytes(&v.type);
    if (!fp8c_program_element(program, variable, 0, 0)) {
        memcpy(to, bytes, whole);
        return;
    }
    const size_t row = whole / (size_t)v.type.dim[0];
    for (int64_t k = 0; fp8c_program_element(program, variable, k, 0); k++)
        memcpy((char *)to + (size_t)k * row,
               (const char *)bytes + (size_t)f8_checkpoint_find(names, program, variable, k) * row,
               row);
}

/* ---- values ---- */

static float f16_to_f32(uint16_t h)
{
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                       : exponent     ? ldexpf((float)(mantissa | 1024), exponent - 25)
                                      : ldexpf((float)mantissa, -24);
    return h >> 15 ? -size : size;
}

void f8_checkpoint_widen(f8_st_dtype dtype, const uint16_t *from, float *to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t high = (uint32_t)from[i] << 16;
        if (dtype == F8_ST_BF16)
            memcpy(&to[i], &high, sizeof high);
        else
            to[i] = f16_to_f32(from[i]);
    }
}

/* ---- metadata ---- */

/* Parse the JSON under a key into *out, unless that has one. */
static f8_status read_json(const f8_st_file *f, const char *key, json_t **out, f8_diag *diag)
{
    const char *text = f8_st_metadata(f, key);
    json_t *value = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (text && !value)
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path, "its metadata '%s' is not JSON", key);
    if (*out)
        json_decref(value);
    else
        *out = value;
    return F8_OK;
}

f8_status f8_checkpoint_read_metadata(const f8_st_file *f, f8_checkpoint_names *names,
                                      f8_diag *diag)
{
    const char *version = f8_st_metadata(f, "fp8c.version");
    char shown[40];
    if (version && strcmp(version, f8_checkpoint_version))
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                            "its 'fp8c.version' is '%s', and this fp8c reads only %s",
                            f8_st_shown(version, shown, sizeof shown), f8_checkpoint_version);
    F8_TRY(read_json(f, "fp8c.elements", &names->elements, diag));
    return read_json(f, "fp8c.aliases", &names->aliases, diag);
}

void f8_checkpoint_release_names(f8_checkpoint_names *names)
{
    json_decref(names->elements);
    json_decref(names->aliases);
    *names = (f8_checkpoint_names){0};
}

/* ---- writing ---- */

/* The variables that files have, as tensors under their names there. NULL: `memory` failed. */
static f8_st_tensor *list_variables(fp8c_program *program, f8_arena *memory, size_t *n)
{
    fp8c_variable v;
    *n = (size_t)f8_file_variables(program);
    f8_st_tensor *tensor = F8_NEW_ARRAY(memory, f8_st_tensor, *n + 1);
    for (size_t i = 0; i < *n && !memory->failed; i++) {
        fp8c_program_variable(program, (int)i, &v);
        tensor[i] = f8_checkpoint_tensor(&v);
        if (!v.is_param)
            tensor[i].name = f8_arena_printf(memory, "%s%s", f8_checkpoint_prefix, v.name);
    }
    return tensor;
}

static f8_status write_all(fp8c_program *program, const char *path, const f8_st_pair *more,
                           size_t n_more, const char *elements, const char *aliases,
                           const char *stored, f8_arena *memory, f8_diag *diag)
{
    const bool has_aliases = f8_checkpoint_has_aliases(aliases);
    enum { OURS = 4 };
    f8_st_contents c = {.n_metadata = n_more + OURS + has_aliases + (stored != NULL),
                        .list = &program->ctx->temporaries};
    f8_st_pair *pair = F8_NEW_ARRAY(memory, f8_st_pair, c.n_metadata);
    c.tensor = list_variables(program, memory, &c.n);
    F8_TRY(f8_arena_status(memory, diag));
    c.metadata = pair;
    *pair++ = (f8_st_pair){"format", "pt"};
    *pair++ = (f8_st_pair){"fp8c.version", f8_checkpoint_version};
    *pair++ = (f8_st_pair){"fp8c.model", program->now->plan.module};
    for (size_t i = 0; i < n_more; i++)
        *pair++ = more[i];
    *pair++ = (f8_st_pair){"fp8c.elements", elements};
    if (has_aliases)
        *pair++ = (f8_st_pair){"fp8c.aliases", aliases};
    if (stored)
        *pair++ = (f8_st_pair){"fp8c.stored", stored};
    return f8_shared_write(program, path, &c, &memory->allocator, diag);
}

f8_status f8_checkpoint_write(fp8c_program *program, const char *path, const f8_st_pair *more,
                              size_t n_more, f8_diag *diag)
{
    f8_arena memory;
    f8_arena_init(&memory, &program->ctx->allocator);
    int64_t n;
    char *elements = f8_checkpoint_elements(program, true),
         *aliases = f8_checkpoint_aliases(program, true),
         *stored = f8_checkpoint_stored(program, &n);
    const f8_status status =
        elements && aliases && stored
            ? write_all(program, path, more, n_more, elements, aliases, n ? stored : NULL, &memory,
                        diag)
            : f8_file_fail(diag, F8_ERR_MEMORY, path, "out of memory for the metadata");
    free(elements);
    free(aliases);
    free(stored);
    f8_arena_end(&memory);
    return status;
}
