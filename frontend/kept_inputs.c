/* Inputs that are kept: a ring of copies of what a function's last runs were given. See
 * fp8c_diagnose.h. */
#include <inttypes.h>
#include <string.h>

#include "frontend/program.h"

/* Of one function. In a row of `data` the inputs follow one another, each at its offset. */
struct f8_kept {
    struct f8_kept *next;
    int function;
    int32_t room, n;   /* rows; how many of them are filled */
    int64_t row, runs; /* bytes of a row; runs so far */
    size_t bytes;      /* of the struct with its data */
    _Alignas(64) uint8_t data[];
};

static f8_kept **find(fp8c_program *p, int function)
{
    f8_kept **at = &p->kept;
    while (*at && (*at)->function != function)
        at = &(*at)->next;
    return at;
}

/* Where an input begins in a row; the bytes of the whole row for index n_in. */
static int64_t offset_of(const f8_plan_func *f, uint32_t index)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < index; i++)
        if (f->in[i].var < 0)
            at += f8_aligned(f8_type_bytes(&f->in[i].type), 64);
    return at;
}

static const f8_plan_func *function_of(const fp8c_program *p, int function)
{
    const f8_plan *plan = &p->now->plan;
    return function >= 0 && (uint32_t)function < plan->n_funcs ? &plan->func[function] : NULL;
}

static void drop(fp8c_program *p, f8_kept **at)
{
    f8_kept *gone = *at;
    if (!gone)
        return;
    const f8_allocator *a = &p->ctx->allocator;
    *at = gone->next;
    a->free(a->user, gone, gone->bytes);
}

void f8_program_drop_kept(fp8c_program *p)
{
    while (p->kept)
        drop(p, &p->kept);
}

f8_status f8_program_keep_runs(fp8c_program *p, int function, int32_t runs, f8_diag *diag)
{
    const f8_plan_func *f = function_of(p, function);
    if (!f || runs < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       f ? "keep_inputs: %d runs can't be kept" : "the program has no function %d",
                       f ? runs : function);
    if (p->bounds.n)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "keep_inputs: the program has dims that are bounds, so its inputs have no "
                       "fixed size");
    drop(p, find(p, function));
    if (runs == 0)
        return F8_OK;
    const int64_t row = offset_of(f, f->n_in);
    if (row > (PTRDIFF_MAX - (int64_t)sizeof(f8_kept)) / runs)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: inputs of %d runs were to be kept, of %" PRId64
                       " bytes each",
                       runs, row);
    const size_t bytes = sizeof(f8_kept) + (size_t)row * (size_t)runs;
    const f8_allocator *a = &p->ctx->allocator;
    f8_kept *k = a->alloc(a->user, bytes, 64);
    if (!k)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted to keep inputs", bytes);
    *k = (f8_kept){.next = p->kept, .function = function, .room = runs, .row = row, .bytes = bytes};
    p->kept = k;
    return F8_OK;
}

/* An input where it is bound, in host memory or in the GPU's. */
static f8_status copy_input(fp8c_program *p, int function, uint32_t index, void *to, f8_diag *diag)
{
    f8_instance *i = &p->now->instance;
    const int64_t bytes = f8_type_bytes(&p->now->plan.func[function].in[index].type);
    const void *at = i->kind->port(i, (uint32_t)function, FP8C_INPUT, index);
    bool on_device = false;
    if (!bytes)
        return F8_OK;
    if (i->cuda)
        F8_TRY(f8_cuda_exec_is_device(i->cuda, at, &on_device, diag));
    const f8_arg from = {F8_SPACE_INPUT, (int32_t)index, 0};
    if (on_device)
        return i->kind->fetch(i, (uint32_t)function, &from, bytes, to, diag);
    memcpy(to, at, (size_t)bytes);
    return F8_OK;
}

/* Whether the run will be refused: an input has no memory. */
static bool lacks_input(fp8c_program *p, int function, const f8_plan_func *f)
{
    f8_instance *i = &p->now->instance;
    for (uint32_t k = 0; k < f->n_in; k++)
        if (f->in[k].var < 0 && f8_type_bytes(&f->in[k].type) &&
            !i->kind->port(i, (uint32_t)function, FP8C_INPUT, k))
            return true;
    return false;
}

f8_status f8_program_keep(fp8c_program *p, int function, f8_diag *diag)
{
    f8_kept *k = *find(p, function);
    const f8_plan_func *f = function_of(p, function);
    if (!k || lacks_input(p, function, f))
        return F8_OK;
    uint8_t *row = k->data + k->runs % k->room * k->row;
    for (uint32_t i = 0; i < f->n_in; i++)
        if (f->in[i].var < 0)
            F8_TRY(copy_input(p, function, i, row + offset_of(f, i), diag));
    k->runs++;
    k->n += k->n < k->room;
    return F8_OK;
}

const void *f8_program_kept(fp8c_program *p, int function, int32_t back, int index)
{
    const f8_plan_func *f = function_of(p, function);
    const f8_kept *k = f ? *find(p, function) : NULL;
    if (!k || back < 0 || back >= k->n || index < 0 || (uint32_t)index >= f->n_in ||
        f->in[index].var >= 0)
        return NULL;
    return k->data + (k->runs - 1 - back) % k->room * k->row + offset_of(f, (uint32_t)index);
}
