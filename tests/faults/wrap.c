/* Wrappers around functions of the library, which put the fault in: see fault.h. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c_diagnose.h"
#include "runtime/cpu/exec_internal.h"
#include "tests/faults/choose.h"
#include "tests/faults/damage.h"

fp8c_status __real_fp8c_compile(const fp8c_module *m, const fp8c_compile_options *o,
                                fp8c_program **out);
fp8c_status __wrap_fp8c_compile(const fp8c_module *m, const fp8c_compile_options *o,
                                fp8c_program **out);
void __real_fp8c_program_destroy(fp8c_program *p);
void __wrap_fp8c_program_destroy(fp8c_program *p);
fp8c_status __real_fp8c_program_run(fp8c_program *p, int function);
fp8c_status __wrap_fp8c_program_run(fp8c_program *p, int function);
fp8c_status __real_fp8c_program_run_witnessed(fp8c_program *p, int function, int32_t judge,
                                              fp8c_witness_fn fn, void *user);
fp8c_status __wrap_fp8c_program_run_witnessed(fp8c_program *p, int function, int32_t judge,
                                              fp8c_witness_fn fn, void *user);
f8_status __real_f8_exec_run_step(f8_exec *x, const f8_exec_step *l, f8_diag *diag);
f8_status __wrap_f8_exec_run_step(f8_exec *x, const f8_exec_step *l, f8_diag *diag);

/* A program that can have the fault, and the run that it is in. */
typedef struct victim {
    struct victim *next;
    fp8c_program *p;
    f8_fault fault; /* the one of its compile */
    int64_t runs;   /* of the fault's function, for modules without opt.step */
    int64_t step, micro;
    bool due;       /* in this run of the function */
    f8_arena arena; /* of this run: */
    f8_fault_values values;
    void **before; /* kind stale: what each value's variable had */
} victim;

/* Ranks may be threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static f8_fault now;
static bool known; /* a program can have it */
static char log_file[4096];
static int64_t changes;
static bool lists;
static victim *victims;

void f8_fault_use(const f8_fault *fault, const char *log)
{
    pthread_mutex_lock(&lock);
    now = fault ? *fault : (f8_fault){0};
    snprintf(log_file, sizeof log_file, "%s", log ? log : "");
    changes = 0;
    known = false;
    pthread_mutex_unlock(&lock);
}

int64_t f8_fault_count(void)
{
    pthread_mutex_lock(&lock);
    const int64_t n = changes;
    pthread_mutex_unlock(&lock);
    return n;
}

void f8_fault_list(void)
{
    lists = true;
}

static _Noreturn void refuse(const char *why)
{
    fprintf(stderr, "FP8C_FAULT: %s\n", why);
    exit(2);
}

/* ---- what happened ---- */

static json_t *json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

/* `value` and `of`, the name of the plan's step that made it, may be NULL. */
static void note(const victim *v, const char *function, const char *value, const char *variable,
                 int64_t plan_step, const char *of, const f8_fault_change *c)
{
    pthread_mutex_lock(&lock);
    changes++;
    FILE *to = *log_file ? fopen(log_file, "a") : NULL;
    json_t *line = json_pack("{ss ss ss sI sI sI ss? ss? sI ss? sI sI so so}", "event", "fault",
                             "kind", f8_fault_kind_name(v->fault.kind), "function", function,
                             "step", (json_int_t)v->step, "micro", (json_int_t)v->micro, "rank",
                             (json_int_t)v->p->given_comm.rank, "value", value, "variable",
                             variable, "plan_step", (json_int_t)plan_step, "of", of, "element",
                             (json_int_t)c->element, "elements", (json_int_t)c->elements, "old",
                             json_number(c->was), "new", json_number(c->is));
    if (to && line && json_dumpf(line, to, JSON_COMPACT) == 0)
        fputc('\n', to);
    if (*log_file && (!to || !line || fclose(to) != 0))
        refuse("the log can't be written");
    json_decref(line);
    pthread_mutex_unlock(&lock);
}

/* ---- when ---- */

/* A number that the program counts in; -1: it has none of that name. */
static int64_t counter(fp8c_program *p, const char *name)
{
    union {
        float f;
        int32_t i;
        int64_t l;
        uint8_t room[64];
    } value = {0};
    f8_instance *i = &p->now->instance;
    for (uint32_t v = 0; v < p->now->plan.n_vars; v++) {
        const f8_type *t = &p->now->plan.var[v].type;
        if (strcmp(p->now->plan.var[v].name, name) != 0 || f8_type_bytes(t) > 64 ||
            i->kind->read(i, v, &value, &(f8_diag){0}) != F8_OK)
            continue;
        return t->dtype == F8_F32 ? (int64_t)value.f : t->dtype == F8_I64 ? value.l : value.i;
    }
    return -1;
}

static int64_t rank_of(const fp8c_program *p)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank ? strtoll(rank, NULL, 10) : p->given_comm.rank;
}

/* Reads the clock at the start of a function, and says whether the fault is due in it. */
static bool is_due(victim *v, const char *function)
{
    const f8_fault *f = &v->fault;
    if (!f8_fault_has_function(f, function))
        return false;
    const int64_t done = counter(v->p, "opt.step"), micro = counter(v->p, "opt.micro_steps");
    v->runs++;
    v->step = done < 0 ? v->runs : done + (strncmp(function, "eval", 4) != 0);
    const bool in_micro_step = !strncmp(function, "micro_step", 10);
    v->micro = micro < 0 ? 1 : micro + in_micro_step;
    if (f->rank >= 0 && f->rank != rank_of(v->p))
        return false;
    if (f->micro && in_micro_step && f->micro != v->micro)
        return false;
    return f->always ? v->step >= f->step : v->step == f->step && !f8_fault_count();
}

static victim *victim_of(const fp8c_program *p)
{
    pthread_mutex_lock(&lock);
    victim *v = victims;
    while (v && v->p != p)
        v = v->next;
    pthread_mutex_unlock(&lock);
    return v;
}

/* The one that runs on an executor; *variant: of its program. */
static victim *victim_on(const f8_exec *x, const f8_variant **variant)
{
    pthread_mutex_lock(&lock);
    for (victim *v = victims; v; v = v->next)
        for (const f8_variant *a = v->p->first; a; a = a->next)
            if (a->instance.cpu == x && a->lowered) {
                *variant = a;
                pthread_mutex_unlock(&lock);
                return v;
            }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- before a function ---- */

static void damage_variable(victim *v, const char *function)
{
    f8_instance *i = &v->p->now->instance;
    const int at = fp8c_program_find_variable(v->p, v->fault.value);
    const f8_plan_var *var = &v->p->now->plan.var[at];
    const f8_fault_memory m = {malloc((size_t)f8_type_bytes(&var->type)), var->type,
                               f8_type_columns(&var->type)};
    f8_diag diag = {0};
    if (!m.at || i->kind->read(i, (uint32_t)at, m.at, &diag) != F8_OK)
        refuse("a variable can't be read");
    const f8_fault_change c = f8_fault_damage(&v->fault, &m);
    if (c.elements && i->kind->write(i, (uint32_t)at, m.at, &diag) != F8_OK)
        refuse("a variable can't be written");
    if (c.elements)
        note(v, function, NULL, var->name, -1, NULL, &c);
    free(m.at);
}

/* The input that gets a NaN; -1: there is none. */
static int float_input(const fp8c_program *p, uint32_t func, const f8_fault *f)
{
    const f8_plan_func *plan = &p->now->plan.func[func];
    for (uint32_t k = 0; k < plan->n_in; k++)
        if (plan->in[k].var < 0 && !f8_fault_misfit(f, &plan->in[k].type) &&
            (!*f->value || !strcmp(plan->in[k].name, f->value)))
            return (int)k;
    return -1;
}

static void damage_input(victim *v, int function)
{
    const f8_plan_func *plan = &v->p->now->plan.func[function];
    const int k = float_input(v->p, (uint32_t)function, &v->fault);
    void *at = k < 0 ? NULL : fp8c_program_buffer(v->p, function, FP8C_INPUT, k);
    if (!at)
        return;
    const f8_type *t = &plan->in[k].type;
    const f8_fault_memory m = {at, *t, f8_type_columns(t)};
    const f8_fault_change c = f8_fault_damage(&v->fault, &m);
    if (c.elements)
        note(v, plan->name, plan->in[k].name, NULL, -1, NULL, &c);
}

static void before_run(fp8c_program *p, int function)
{
    victim *v = victim_of(p);
    const char *name = fp8c_program_function_name(p, function);
    if (!v || !name || !f8_fault_is_between(&v->fault) || !is_due(v, name))
        return;
    if (v->fault.kind == F8_FAULT_NAN)
        damage_input(v, function);
    else
        damage_variable(v, name);
}

fp8c_status __wrap_fp8c_program_run(fp8c_program *p, int function)
{
    before_run(p, function);
    return __real_fp8c_program_run(p, function);
}

fp8c_status __wrap_fp8c_program_run_witnessed(fp8c_program *p, int function, int32_t judge,
                                              fp8c_witness_fn fn, void *user)
{
    before_run(p, function);
    return __real_fp8c_program_run_witnessed(p, function, judge, fn, user);
}

/* ---- inside a function ---- */

static f8_fault_memory memory_of(const f8_exec *x, uint32_t func, const f8_fault_value *v)
{
    const f8_arg at = {v->place.space, v->place.port, v->place.offset};
    return (f8_fault_memory){(uint8_t *)f8_home_address(&x->tenant, func, &at), v->type,
                             v->place.stride};
}

static void begin(victim *v, const f8_variant *variant, const f8_exec *x, uint32_t func)
{
    char why[F8_FAULT_WHY];
    v->due = !f8_fault_is_between(&v->fault) && is_due(v, variant->plan.func[func].name);
    if (!v->due)
        return;
    f8_arena_end(&v->arena);
    f8_arena_init(&v->arena, NULL);
    v->due = f8_fault_choose(&v->fault, variant, func, &v->arena, &v->values, why) == F8_OK;
    if (!v->due) /* there are other values in micro_step.stats */
        return;
    v->before = F8_NEW_ARRAY(&v->arena, void *, v->values.n);
    for (size_t i = 0; i < v->values.n && v->fault.kind == F8_FAULT_STALE; i++) {
        const f8_fault_memory m = memory_of(x, func, &v->values.value[i]);
        v->before[i] = f8_arena_array(&v->arena, 1, (size_t)f8_type_bytes(&m.type));
        f8_fault_get(&m, v->before[i]);
    }
}

static void after_step(victim *v, const f8_exec *x, uint32_t func, uint32_t step)
{
    const f8_plan_func *plan = &x->plan->func[func];
    for (size_t i = 0; i < v->values.n; i++) {
        const f8_fault_value *value = &v->values.value[i];
        if (value->step != step)
            continue;
        const f8_fault_memory m = memory_of(x, func, value);
        const f8_fault_change c =
            v->before[i] ? f8_fault_put(&m, v->before[i]) : f8_fault_damage(&v->fault, &m);
        if (c.elements)
            note(v, plan->name, value->name, value->variable, step, plan->step[step].name, &c);
    }
}

static bool find_step(const f8_exec *x, const f8_exec_step *l, uint32_t *func, uint32_t *step)
{
    for (*func = 0; *func < x->plan->n_funcs; (*func)++) {
        const f8_exec_step *first = x->func[*func].step;
        *step = (uint32_t)(l - first);
        if (l >= first && l < first + x->plan->func[*func].n_steps)
            return true;
    }
    return false;
}

f8_status __wrap_f8_exec_run_step(f8_exec *x, const f8_exec_step *l, f8_diag *diag)
{
    const f8_variant *variant;
    uint32_t func, step;
    victim *v = victim_on(x, &variant);
    if (!v || !find_step(x, l, &func, &step))
        return __real_f8_exec_run_step(x, l, diag);
    if (step == 0)
        begin(v, variant, x, func);
    const f8_status status = __real_f8_exec_run_step(x, l, diag);
    if (status == F8_OK && v->due)
        after_step(v, x, func, step);
    return status;
}

/* ---- programs ---- */

static void print_values(const f8_variant *v, uint32_t func)
{
    f8_arena arena;
    f8_fault_values all;
    f8_arena_init(&arena, NULL);
    if (f8_fault_values_of(v, func, &arena, &all) != F8_OK)
        refuse("out of memory");
    for (size_t i = 0; i < all.n; i++) {
        const f8_fault_value *x = &all.value[i];
        const f8_plan_func *plan = &v->plan.func[func];
        json_t *line = json_pack(
            "{ss ss sI sI ss ss ss? ss sI sb}", "event", "value", "function", plan->name, "index",
            (json_int_t)i, "plan_step", (json_int_t)x->step, "of", plan->step[x->step].name,
            "value", x->name, "variable", x->variable, "dtype", f8_dtype_name(x->type.dtype),
            "elements", (json_int_t)f8_type_elements(&x->type), "gemm", (int)x->product);
        json_dumpf(line, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(line);
    }
    f8_arena_end(&arena);
}

/* NULL, or why the fault is not possible between runs. */
static const char *misfit_between(const fp8c_program *p, const f8_fault *f, uint32_t func)
{
    const int var = fp8c_program_find_variable(p, f->value);
    if (f->kind == F8_FAULT_NAN)
        return float_input(p, func, f) < 0 ? "no such input of f32, bf16 or f16" : NULL;
    return var < 0 ? "no such variable" : f8_fault_misfit(f, &p->now->plan.var[var].type);
}

static bool is_possible(const fp8c_program *p, f8_fault *f, uint32_t func, char why[F8_FAULT_WHY])
{
    f8_arena arena;
    f8_fault_values values;
    if (f8_fault_is_between(f)) {
        const char *misfit = misfit_between(p, f, func);
        if (misfit)
            snprintf(why, F8_FAULT_WHY, "kind=%s,value=%s: %s", f8_fault_kind_name(f->kind),
                     f->value, misfit);
        return !misfit;
    }
    f8_arena_init(&arena, NULL);
    bool ok = *f->value != '#' || f8_fault_pin(f, p->now, func) == F8_OK;
    ok = ok && f8_fault_choose(f, p->now, func, &arena, &values, why) == F8_OK;
    f8_arena_end(&arena);
    return ok;
}

/* The first program with the function must be able to have the fault. In later ones, such as one
 * under another recipe, the value may be missing. */
static bool can_have(const fp8c_program *p, f8_fault *f)
{
    char why[F8_FAULT_WHY] = "out of memory";
    const int func = fp8c_program_function(p, f->function);
    if (func < 0)
        return false;
    const bool possible = is_possible(p, f, (uint32_t)func, why);
    pthread_mutex_lock(&lock);
    if (!known && !possible)
        refuse(why);
    known = true;
    snprintf(now.value, sizeof now.value, "%s", f->value);
    now.nth = f->nth;
    pthread_mutex_unlock(&lock);
    return possible;
}

static void add_victim(fp8c_program *p, f8_fault f)
{
    if (!can_have(p, &f))
        return;
    victim *v = calloc(1, sizeof *v);
    if (!v)
        refuse("out of memory");
    v->p = p;
    v->fault = f;
    f8_arena_init(&v->arena, NULL);
    pthread_mutex_lock(&lock);
    v->next = victims;
    victims = v;
    pthread_mutex_unlock(&lock);
}

static bool is_meant(const f8_fault *f, const fp8c_compile_options *o)
{
    const char *target = o->target ? o->target : "cpu", *wanted = *f->target ? f->target : "cpu";
    const bool cpu = !strncmp(target, "cpu", 3), reference = !strcmp(target, "reference");
    if (o->plan_only || o->no_device || reference || cpu != !strcmp(wanted, "cpu"))
        return false;
    return !*f->recipe || !strcmp(f->recipe, o->recipe ? o->recipe : "bf16");
}

fp8c_status __wrap_fp8c_compile(const fp8c_module *m, const fp8c_compile_options *o,
                                fp8c_program **out)
{
    pthread_mutex_lock(&lock);
    const f8_fault f = now;
    pthread_mutex_unlock(&lock);
    if ((!f.kind && !lists) || !o || o->struct_size != sizeof *o || !is_meant(&f, o))
        return __real_fp8c_compile(m, o, out);
    fp8c_compile_options own = *o;
    own.witness |= !f8_fault_is_between(&f); /* on a CPU it changes no bit */
    const fp8c_status status = __real_fp8c_compile(m, &own, out);
    if (status != FP8C_OK)
        return status;
    for (uint32_t i = 0; lists && i < (*out)->now->plan.n_funcs; i++)
        print_values((*out)->now, i);
    if (lists)
        exit(0);
    add_victim(*out, f);
    return status;
}

void __wrap_fp8c_program_destroy(fp8c_program *p)
{
    pthread_mutex_lock(&lock);
    for (victim **link = &victims, *v = *link; v; v = *link) {
        if (v->p != p) {
            link = &v->next;
            continue;
        }
        *link = v->next;
        f8_arena_end(&v->arena);
        free(v);
    }
    pthread_mutex_unlock(&lock);
    __real_fp8c_program_destroy(p);
}
