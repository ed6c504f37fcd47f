/* Names of the elements of scale states, and fp8c_program_carry, which copies what one program has
 * observed of its operands to another one. See fp8c.h.
 *
 * Histories and pending amaxes are copied. Scales are not: `prepare` of the program that takes them
 * makes its scales anew from the histories, by its own recipes. */
#include <math.h>
#include <string.h>

#include "frontend/program.h"

/* ---- elements ---- */

static const char *name_of(const f8_elements *e, int64_t index, int number)
{
    if (!e || index < 0 || index >= e->n || number < 0)
        return NULL;
    if (number == 0)
        return e->name[index];
    for (int64_t i = 0; i < e->n_aliases; i++)
        if (e->alias[i].element == index && --number == 0)
            return e->alias[i].name;
    return NULL;
}

const char *fp8c_program_element(const fp8c_program *p, int variable, int64_t index, int number)
{
    return name_of(f8_elements_of(&p->now->report, variable), index, number);
}

/* The element of that name or, if none has it, of that alias; -1: there is none. */
static int64_t find_name(const f8_elements *e, const char *name)
{
    for (int64_t i = 0; i < e->n; i++)
        if (!strcmp(e->name[i], name))
            return i;
    for (int64_t i = 0; i < e->n_aliases; i++)
        if (!strcmp(e->alias[i].name, name))
            return e->alias[i].element;
    return -1;
}

static int64_t match(const f8_elements *e, int64_t index, const f8_elements *its)
{
    const char *name;
    for (int i = 0; (name = name_of(e, index, i)); i++) {
        const int64_t found = find_name(its, name);
        if (found >= 0)
            return found;
    }
    return -1;
}

int64_t f8_program_match_element(const fp8c_program *p, int variable, int64_t index,
                                 const fp8c_program *other, int its)
{
    const f8_elements *e = f8_elements_of(&p->now->report, variable),
                      *o = f8_elements_of(&other->now->report, its);
    return e && o ? match(e, index, o) : -1;
}

/* ---- one side of a carry ---- */

/* The operands of a program that have amax histories, and what it has observed of them. */
typedef struct side {
    const fp8c_program *program;
    const f8_elements *of;    /* NULL: there are none */
    int scale, amax, history; /* variables */
    int64_t n, columns;
    float *scales, *amaxes, *histories; /* [n], [n], [n, columns] */
    bool observes; /* eval keeps amaxes, and no update takes them into the histories */
} side;

/* What has been observed has memory and values. Parameters may lie nowhere: FSDP has freed them. */
static f8_status check_observed(const side *s, bool *valued, f8_diag *diag)
{
    const int variable[] = {s->scale, s->amax, s->history};
    const fp8c_program *p = s->program;
    *valued = true;
    for (int i = 0; i < 3; i++) {
        if (!f8_variable_memory(p, (uint32_t)variable[i]))
            return f8_unbound_variable(p->now->plan.var[variable[i]].name, diag);
        *valued &= p->var[variable[i]].valued;
    }
    return F8_OK;
}

/* The program that is carried to runs `prepare`, and so needs all of its variables. */
static f8_status check_usable(const side *s, bool whole, f8_diag *diag)
{
    const fp8c_program *p = s->program;
    const char *which = whole ? "to" : "from";
    bool valued = true;
    if (!p->now->instance.kind)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program to carry %s was compiled with %s: it has no memory", which,
                       p->plan_only ? "plan_only" : "no_device");
    if (s->of && !whole) {
        F8_TRY(check_observed(s, &valued, diag));
    } else {
        F8_TRY(f8_variables_bound(p, diag));
        valued = f8_variables_valued(p);
    }
    return valued ? F8_OK
                  : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                            "the variables of the program to carry %s have no values: call "
                            "fp8c_program_initialize",
                            which);
}

static bool has_type(const fp8c_program *p, int variable, int rank, int64_t n)
{
    if (variable < 0)
        return false;
    const f8_type *t = &p->now->plan.var[variable].type;
    return t->dtype == F8_F32 && t->rank == rank && t->dim[0] == n;
}

static bool eval_replaces(const fp8c_program *p, int variable)
{
    fp8c_port port;
    const int eval = fp8c_program_function(p, "eval");
    for (int i = 0; fp8c_program_port(p, eval, FP8C_OUTPUT, i, &port) == FP8C_OK; i++)
        if (port.variable == variable)
            return true;
    return false;
}

static f8_status read_variable(const side *s, int variable, f8_arena *memory, float **out,
                               f8_diag *diag)
{
    f8_instance *instance = &s->program->now->instance;
    const f8_type *t = &s->program->now->plan.var[variable].type;
    *out = F8_NEW_ARRAY(memory, float, (size_t)f8_type_elements(t));
    F8_TRY(f8_arena_status(memory, diag));
    return instance->kind->read(instance, (uint32_t)variable, *out, diag);
}

static side side_of(const fp8c_program *p)
{
    side s = (side){.program = p,
                    .scale = fp8c_program_find_variable(p, "fp8.scale"),
                    .amax = fp8c_program_find_variable(p, "fp8.amax"),
                    .history = fp8c_program_find_variable(p, "fp8.amax_history")};
    const f8_elements *of = f8_elements_of(&p->now->report, s.history);
    if (!of || !has_type(p, s.scale, 1, of->n) || !has_type(p, s.amax, 1, of->n) ||
        !has_type(p, s.history, 2, of->n))
        return s;
    s.of = of;
    s.n = of->n;
    s.columns = p->now->plan.var[s.history].type.dim[1];
    s.observes = eval_replaces(p, s.amax);
    return s;
}

static f8_status read_side(side *s, f8_arena *memory, f8_diag *diag)
{
    if (!s->of)
        return F8_OK;
    F8_TRY(read_variable(s, s->scale, memory, &s->scales, diag));
    F8_TRY(read_variable(s, s->amax, memory, &s->amaxes, diag));
    return read_variable(s, s->history, memory, &s->histories, diag);
}

/* ---- a carry ---- */

/* What `from` has observed of its element `its` becomes what `to` has observed of element `own`.
 * Where `from` observes and `to` does not, the amax that was seen becomes the newest entry of the
 * history. */
static f8_status carry_element(const side *to, int64_t own, const side *from, int64_t its,
                               f8_diag *diag)
{
    float *row = to->histories + own * to->columns;
    const float *old = from->histories + its * from->columns, amax = from->amaxes[its];
    const bool push = from->observes && !to->observes && amax != 0;
    if (push && !isfinite(amax))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "'%s' is not finite: no scale follows from it", from->of->name[its]);
    int64_t n = 0;
    if (push)
        row[n++] = amax;
    for (int64_t i = 0; i < from->columns && n < to->columns; i++)
        row[n++] = old[i];
    for (; n < to->columns; n++)
        row[n] = 0;
    to->amaxes[own] = push ? 0 : amax;
    /* `prepare` keeps a scale for which the history has nothing. */
    if (f8_recipe_equal(&to->of->recipe[own], &from->of->recipe[its]))
        to->scales[own] = from->scales[its];
    return F8_OK;
}

/* "'fc.x' and 5 more" */
static const char *some_of(const side *s, f8_arena *memory)
{
    const char *text = !s->of      ? "none"
                       : s->n == 1 ? f8_arena_printf(memory, "'%s'", s->of->name[0])
                                   : f8_arena_printf(memory, "'%s' and %lld more", s->of->name[0],
                                                     (long long)s->n - 1);
    return text ? text : "";
}

static f8_status carry_all(const side *to, const side *from, f8_arena *memory, fp8c_carried *out,
                           f8_diag *diag)
{
    bool *taken = F8_NEW_ARRAY(memory, bool, (size_t)from->n);
    F8_TRY(f8_arena_status(memory, diag));
    for (int64_t i = 0; i < to->n; i++) {
        const int64_t its = from->of ? match(to->of, i, from->of) : -1;
        if (its < 0)
            continue;
        F8_TRY(carry_element(to, i, from, its, diag));
        taken[its] = true;
        out->carried++;
    }
    out->missing = to->n - out->carried;
    for (int64_t i = 0; i < from->n; i++)
        out->left += !taken[i];
    return out->carried || (!to->n && !from->n)
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         "nothing was carried: of operands with amax histories, the program to "
                         "carry to has %s, and the one to carry from has %s; their names must "
                         "agree",
                         some_of(to, memory), some_of(from, memory));
}

static f8_status write_side(const side *s, f8_diag *diag)
{
    f8_instance *instance = &s->program->now->instance;
    if (!s->of)
        return F8_OK;
    F8_TRY(instance->kind->write(instance, (uint32_t)s->scale, s->scales, diag));
    F8_TRY(instance->kind->write(instance, (uint32_t)s->amax, s->amaxes, diag));
    return instance->kind->write(instance, (uint32_t)s->history, s->histories, diag);
}

static f8_status carry(fp8c_program *to, const fp8c_program *from, f8_arena *memory,
                       fp8c_carried *out, f8_diag *diag)
{
    side into = side_of(to), source = side_of(from);
    F8_TRY(check_usable(&into, true, diag));
    F8_TRY(check_usable(&source, false, diag));
    F8_TRY(f8_program_may_change(to, "fp8c_program_carry", diag));
    if (to == from)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a program can't carry to itself");
    F8_TRY(read_side(&into, memory, diag));
    F8_TRY(read_side(&source, memory, diag));
    F8_TRY(carry_all(&into, &source, memory, out, diag));
    F8_TRY(write_side(&into, diag));
    if (into.of)
        f8_variable_set(to, (uint32_t)into.history);
    const int prepare = fp8c_program_function(to, "prepare");
    return prepare < 0 ? F8_OK : f8_codes_run(to, (uint32_t)prepare, diag);
}

fp8c_status fp8c_program_carry(fp8c_program *to, const fp8c_program *from, fp8c_carried *out)
{
    f8_diag diag = {0};
    fp8c_carried own = {.struct_size = sizeof own};
    f8_arena memory;
    f8_arena_init(&memory, &to->ctx->allocator);
    const f8_status status = carry(to, from, &memory, &own, &diag);
    f8_arena_end(&memory);
    if (out && status == F8_OK)
        f8_api_give(out, &own);
    return f8_api_result(to->ctx, &diag, status);
}
