/* Runs under observation, and what a bad run needs to be made again: see
 * fp8c_diagnose.h, "the witness". */
#include "codegen/witness/witness.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/program.h"
#include "ir/base/hash.h"
#include "passes/memory/report.h"

typedef struct watch {
    fp8c_program *p;
    int called;
    uint32_t func; /* its form that runs */
    const f8_plan_func *plan;
    int64_t constants; /* where those of the function begin in the plan's */
    f8_witness witness;
    uint32_t group, step; /* those that run, or have run last */
    bool nameless; /* there was no memory for the names of a value, which was not reported */
    fp8c_witness_fn fn;
    void *user;
} watch;

/* ---- values ---- */

static f8_arg arg_of(const watch *w, const f8_place *at)
{
    const int64_t base = at->space == F8_SPACE_CONST ? w->constants : 0;
    return (f8_arg){at->space, at->port, at->offset + base};
}

static f8_status fetch(void *user, const f8_place *from, int64_t bytes, void *to, f8_diag *diag)
{
    const watch *w = user;
    f8_instance *i = &w->p->now->instance;
    const f8_arg arg = arg_of(w, from);
    return i->kind->fetch(i, w->func, &arg, bytes, to, diag);
}

static const void *look(void *user, const f8_place *at)
{
    const watch *w = user;
    f8_instance *i = &w->p->now->instance;
    const f8_arg arg = arg_of(w, at);
    return i->kind->look ? i->kind->look(i, w->func, &arg) : NULL;
}

/* A new file without a name; -1: none could be made. A file system without O_TMPFILE gets a file
 * that loses its name at once. */
static int nameless_file(const char *folder)
{
    char path[PATH_MAX];
    const int fd = folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 || !folder ||
        snprintf(path, sizeof path, "%s/.aside-XXXXXX", folder) >= (int)sizeof path)
        return fd;
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0)
        unlink(path);
    return named;
}

/* Copies bytes to a nameless file in the folder that the program was lent, and maps it. */
static const void *put_aside(void *user, const void *data, int64_t bytes)
{
    const watch *w = user;
    const char *from = data;
    const int fd = nameless_file(w->p->aside);
    int64_t done = 0;
    ssize_t n = 1;
    while (fd >= 0 && done < bytes && n > 0) {
        n = write(fd, from + done, (size_t)(bytes - done));
        done += n > 0 ? n : 0;
    }
    void *map = done > 0 && done == bytes ? mmap(NULL, (size_t)done, PROT_READ, MAP_SHARED, fd, 0)
                                          : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? NULL : map;
}

static void unload(void *user, const void *aside, int64_t bytes)
{
    (void)user;
    madvise((void *)(uintptr_t)aside, (size_t)bytes, MADV_DONTNEED); /* the file still has them */
}

static void end_aside(void *user, const void *aside, int64_t bytes)
{
    (void)user;
    munmap((void *)(uintptr_t)aside, (size_t)bytes);
}

/* A result without a name of its own is called by its port: "loss", "fp8.scale". The gradient of a
 * linear keeps its GEMM's name. */
const char *f8_program_value_name(const f8_func *f, f8_ref r, f8_arena *arena)
{
    const f8_graph *g = f->graph;
    const bool named = g->name[r] || f8_op_facts(f8_at(g, r)->op)->cls == F8_GEMM;
    for (size_t i = 0; i < f->n_out && !named; i++)
        if (f->out[i].ref == r)
            return f->out[i].name;
    return f8_memory_name(f, r, arena);
}

static void say(void *user, const f8_witnessed *v)
{
    watch *w = user;
    const f8_graph *g = w->witness.f->graph;
    const f8_judgement *j = &v->judgement;
    f8_arena names;
    fp8c_step step = {0};
    f8_arena_init(&names, &w->p->ctx->allocator);
    fp8c_program_step(w->p, (int)w->func, (int)w->step, &step);
    fp8c_witnessed out = {
        .struct_size = sizeof out,
        .function = (int32_t)w->func,
        .step = (int32_t)w->step,
        .kind = step.kind,
        .name = step.name,
        .value = f8_program_value_name(w->witness.f, v->ref, &names),
        .type = f8_api_type_out(&v->type),
        .data = v->bytes,
        .hash = f8_hash_bytes(v->bytes, (size_t)f8_type_bytes(&v->type)).lo,
        .verdict = !v->judged ? FP8C_NOT_JUDGED
                   : j->ok    ? FP8C_RIGHT
                              : FP8C_WRONG,
        .at = -1,
        .nonfinite = v->nonfinite,
        .nonfinite_at = v->first,
        .nonfinite_input = v->from ? f8_memory_name(w->witness.f, v->from, &names) : NULL,
        .nonfinite_op = v->made ? f8_op_facts(f8_at(g, v->made)->op)->name : NULL};
    if (out.verdict == FP8C_WRONG) {
        out.wrong = j->off;
        out.at = j->at;
        out.got = j->got;
        out.want = j->want;
        out.allowed = j->allowed;
    }
    w->nameless |= f8_arena_status(&names, NULL) != F8_OK;
    if (!w->nameless)
        w->fn(w->user, &out);
    f8_arena_end(&names);
}

/* ---- steps ---- */

static f8_status before(void *user, uint32_t step, f8_diag *diag)
{
    watch *w = user;
    const uint32_t group = w->plan->step[step].group;
    if (!group || group == w->group)
        return F8_OK;
    w->group = group;
    return f8_witness_before(&w->witness, group, diag);
}

/* The group of the next step that has one; waits for collectives have none. */
static uint32_t next_group(const watch *w, uint32_t step)
{
    while (++step < w->plan->n_steps)
        if (w->plan->step[step].group)
            return w->plan->step[step].group;
    return 0;
}

/* A group is done with the last of its steps. */
static f8_status after(void *user, uint32_t step, f8_diag *diag)
{
    watch *w = user;
    const uint32_t group = w->plan->step[step].group;
    if (!group || next_group(w, step) == group)
        return F8_OK;
    w->step = step;
    F8_TRY(f8_witness_after(&w->witness, group, diag));
    return !w->nameless ? F8_OK
                        : f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                                  "out of memory: a value's name was wanted");
}

/* ---- the run ---- */

/* Of the functions of a plan, each has its constants behind those of the ones before it. */
static int64_t constants_of(const f8_module *m, const f8_func *f)
{
    int64_t base = 0;
    for (const f8_func *k = m->func; k < f; k++)
        if (k->lowered)
            base += f8_aligned(k->lowered->constants_bytes, F8_ARENA_ALIGN);
    return base;
}

static f8_sums sums_of(const f8_target *t)
{
    return t->kind == F8_TARGET_CUDA ? F8_SUMS_GPU : F8_SUMS_F32;
}

static f8_status begin(watch *w, bool judges, f8_diag *diag)
{
    fp8c_program *p = w->p;
    const f8_module *m = p->now->lowered;
    if (!m)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program was compiled without `witness`: no step can be judged");
    w->plan = &p->now->plan.func[w->func];
    const f8_func *f = f8_module_find_func(m, w->plan->name);
    w->constants = constants_of(m, f);
    w->witness = (f8_witness){.f = f,
                              .judges = judges,
                              .sums = sums_of(p->target),
                              .allocator = &p->ctx->allocator,
                              .fetch = fetch,
                              .look = look,
                              .put_aside = put_aside,
                              .unload = unload,
                              .end_aside = end_aside,
                              .report = say,
                              .user = w};
    return f8_witness_begin(&w->witness, diag);
}

static f8_status run(watch *w, f8_diag *diag)
{
    fp8c_program *p = w->p;
    f8_instance *i = &p->now->instance;
    const f8_observer observer = {before, after, w};
    F8_TRY(f8_program_meet(p, w->called, diag));
    i->kind->observe(i, &observer);
    p->watched = true;
    f8_status status = f8_codes_run(p, w->func, diag);
    if (status == F8_OK)
        status = i->kind->wait(i, diag);
    p->watched = false;
    i->kind->observe(i, NULL);
    return status;
}

fp8c_status fp8c_program_run_witnessed(fp8c_program *p, int function, int32_t judge,
                                       fp8c_witness_fn fn, void *user)
{
    f8_diag diag = {0};
    watch w = {.p = p, .called = function, .fn = fn, .user = user};
    f8_status status = f8_program_can_run(p, function, &diag);
    if (status == F8_OK && !fn)
        status = f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                         "fp8c_program_run_witnessed needs a callback: `fn` is NULL");
    if (status == F8_OK)
        status = f8_program_form(p, function, &w.func, &diag);
    if (status == F8_OK)
        status = begin(&w, judge != 0, &diag);
    if (status == F8_OK) {
        f8_program_own_ports(p, function);
        status = run(&w, &diag);
    }
    f8_witness_end(&w.witness);
    return f8_api_result(p->ctx, &diag, status);
}
