/* fp8c_program_save and fp8c_program_load: see checkpoint.h. */
#include <string.h>

#include "frontend/checkpoint/checkpoint.h"
#include "frontend/program.h"
#include "ir/base/format.h"

enum { LIST = 640 }; /* bytes of the list of what is wrong; the rest is only counted */

/* A load in progress: where each variable's value is in the file, and all values in memory. So a
 * file that can't be read changes nothing. */
typedef struct loader {
    fp8c_program *program;
    bool params_only;
    f8_st_file file;
    json_t *elements;
    f8_arena memory;
    const f8_st_tensor **from; /* by variable; NULL: it keeps its value, or is computed */
    bool *used;                /* by tensor of the file */
    void **value;              /* by variable */
    int n;
    bool compute;    /* the file lacks a state that prepare computes */
    char text[LIST]; /* what is wrong, as "'w' is missing; ..." */
    size_t length;
    int n_wrong, n_shown;
    f8_diag *diag;
} loader;

/* ---- matching ---- */

static void wrong(loader *l, const char *name, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void wrong(loader *l, const char *name, const char *what, const char *format, ...)
{
    char shown[200], more[200], one[440];
    va_list args;
    va_start(args, format);
    f8_vformat(more, sizeof more, format, args);
    va_end(args);
    l->n_wrong++;
    const int n = snprintf(one, sizeof one, "%s'%s' %s%s", l->n_shown ? "; " : "",
                           f8_st_shown(name, shown, sizeof shown), what, more);
    if (l->n_shown + 1 != l->n_wrong || l->length + (size_t)n >= sizeof l->text)
        return;
    memcpy(l->text + l->length, one, (size_t)n + 1);
    l->length += (size_t)n;
    l->n_shown++;
}

static const f8_st_tensor *find(loader *l, const fp8c_variable *v)
{
    char name[1024]; /* names of a module have at most 511 bytes */
    snprintf(name, sizeof name, "%s%s", v->is_param ? "" : f8_checkpoint_prefix, v->name);
    return f8_st_find(&l->file, name);
}

static void match_variable(loader *l, int i, const fp8c_variable *v)
{
    char here[128], there[128];
    const char *element;
    const f8_st_tensor want = f8_checkpoint_tensor(v), *t = find(l, v);
    const json_t *list = json_object_get(l->elements, v->name);
    f8_st_type_text(&want, here, sizeof here);
    if (!t && !v->is_param && f8_checkpoint_is_computed(l->program, i)) {
        l->compute = true;
        return;
    }
    if (!t) {
        wrong(l, v->name, "is missing: ", "%s", here);
        return;
    }
    l->used[t - l->file.tensor] = true;
    if (!f8_checkpoint_fits(l->program, i, t, list)) {
        wrong(l, t->name, "is ", "%s, not %s", f8_st_type_text(t, there, sizeof there), here);
        return;
    }
    l->from[i] = t;
    for (int64_t k = 0; (element = fp8c_program_element(l->program, i, k)); k++)
        if (f8_checkpoint_element(list, element) < 0)
            wrong(l, element, "is missing in ", "%s", t->name);
}

static f8_status match(loader *l)
{
    const size_t prefix = strlen(f8_checkpoint_prefix);
    char type[128];
    fp8c_variable v;
    for (int i = 0; i < l->n && fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++)
        if (v.is_param || !l->params_only)
            match_variable(l, i, &v);
    for (size_t i = 0; i < l->file.n; i++) {
        const f8_st_tensor *t = &l->file.tensor[i];
        if (!l->used[i] && strncmp(t->name, f8_checkpoint_prefix, prefix))
            wrong(l, t->name, "is not a variable of the program: ", "%s",
                  f8_st_type_text(t, type, sizeof type));
    }
    if (!l->n_wrong)
        return F8_OK;
    char more[40] = "";
    if (l->n_wrong > l->n_shown)
        snprintf(more, sizeof more, "; and %d more", l->n_wrong - l->n_shown);
    return f8_file_fail(l->diag, F8_ERR_INPUT, l->file.in.path, "it does not fit the program: %s%s",
                        l->text, more);
}

/* ---- values ---- */

static f8_status read_values(loader *l)
{
    fp8c_variable v;
    for (int i = 0; i < l->n; i++) {
        if (!l->from[i])
            continue;
        fp8c_program_variable(l->program, i, &v);
        l->value[i] = f8_arena_array(&l->memory, 1, (size_t)fp8c_type_bytes(&v.type));
        const bool gather = fp8c_program_element(l->program, i, 0) != NULL;
        void *bytes =
            gather ? f8_arena_array(&l->memory, 1, (size_t)l->from[i]->bytes) : l->value[i];
        F8_TRY(f8_arena_status(&l->memory, l->diag));
        F8_TRY(f8_st_read(&l->file, l->from[i], bytes, l->diag));
        if (gather)
            f8_checkpoint_gather(l->program, i, json_object_get(l->elements, v.name), bytes,
                                 l->value[i]);
    }
    return F8_OK;
}

static f8_status write_values(loader *l, bool params)
{
    f8_instance *instance = &l->program->now->instance;
    const f8_plan *plan = &l->program->now->plan;
    for (int i = 0; i < l->n; i++)
        if (l->value[i] && plan->var[i].is_param == params)
            F8_TRY(instance->kind->write(instance, (uint32_t)i, l->value[i], l->diag));
    return F8_OK;
}

static f8_status run_prepare(loader *l)
{
    f8_instance *instance = &l->program->now->instance;
    const int prepare = fp8c_program_function(l->program, "prepare");
    return prepare < 0 ? F8_OK : instance->kind->run(instance, (uint32_t)prepare, l->diag);
}

/* Write the parameters, then run what follows from them, then write the states: prepare may change
 * only a part of one. */
static f8_status put_values(loader *l)
{
    F8_TRY(write_values(l, true));
    l->program->initialized = true;
    if (l->params_only || l->compute)
        F8_TRY(run_prepare(l));
    return write_values(l, false);
}

/* ---- the calls ---- */

static f8_status load(loader *l, const char *path)
{
    const f8_plan *plan = &l->program->now->plan;
    l->n = (int)plan->n_vars;
    for (uint32_t i = 0; l->params_only && !l->program->initialized && i < plan->n_vars; i++)
        if (!plan->var[i].is_param && !f8_checkpoint_is_computed(l->program, (int)i))
            return f8_fail(
                l->diag, F8_ERR_INPUT, F8_NOWHERE,
                "the state '%s' has no value, and only parameters are to be loaded: call "
                "fp8c_program_initialize first",
                plan->var[i].name);
    F8_TRY(f8_st_open(&l->file, path, &l->program->ctx->allocator, l->diag));
    F8_TRY(f8_checkpoint_read_metadata(&l->file, &l->elements, l->diag));
    l->from = F8_NEW_ARRAY(&l->memory, const f8_st_tensor *, (size_t)l->n + 1);
    l->value = F8_NEW_ARRAY(&l->memory, void *, (size_t)l->n + 1);
    l->used = F8_NEW_ARRAY(&l->memory, bool, l->file.n + 1);
    F8_TRY(f8_arena_status(&l->memory, l->diag));
    F8_TRY(match(l));
    F8_TRY(read_values(l));
    return put_values(l);
}

fp8c_status fp8c_program_load(fp8c_program *p, const char *path, int32_t params_only)
{
    f8_diag diag = {0};
    loader l = {.program = p, .params_only = params_only != 0, .diag = &diag};
    f8_arena_init(&l.memory, &p->ctx->allocator);
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK)
        status = load(&l, path);
    json_decref(l.elements);
    f8_st_close(&l.file);
    f8_arena_end(&l.memory);
    return f8_api_result(p->ctx, &diag, status);
}

fp8c_status fp8c_program_save(fp8c_program *p, const char *path)
{
    f8_diag diag = {0};
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK && !p->initialized)
        status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                         "the variables have no values: there is nothing to save");
    if (status == F8_OK)
        status = f8_checkpoint_write(p, path, NULL, 0, &diag);
    return f8_api_result(p->ctx, &diag, status);
}
