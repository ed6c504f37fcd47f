/* The checks of a plan that was read: see plan_file.h. */
#include "ir/place.h"
#include "runtime/plan_file.h"

#include <stdio.h>
#include <string.h>

#include "ir/base/format.h"
#include "ir/target.h"
#include "runtime/base/blob.h"
#include "runtime/base/cpu.h"

enum {
    MOST = INT32_MAX,
    INIT_KINDS = 5
}; /* MOST: of a size, so that a product of two fits int64 */

typedef struct checker {
    const f8_plan *plan;
    const f8_plan_func *func;
    const f8_step *step;
    f8_diag *diag;
    bool on_cpu; /* whether a CPU runs it: the target decides, whatever code the plan has */
    /* the collectives that the function has started and not yet waited for, by step */
    uint32_t under_way[F8_MOST_UNDER_WAY], n_under_way;
} checker;

/* Fails, and names the step, function or plan that is being checked. */
static f8_status __attribute__((format(printf, 2, 3))) wrong(const checker *c, const char *format,
                                                             ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    f8_vformat(text, sizeof text, format, args);
    va_end(args);
    if (c->step)
        return f8_fail(c->diag, F8_ERR_INPUT, F8_NOWHERE, "step '%s' of '%s': %s", c->step->name,
                       c->func->name, text);
    return f8_fail(c->diag, F8_ERR_INPUT, F8_NOWHERE, "%s%s%s: %s",
                   c->func ? "function '" : "the plan", c->func ? c->func->name : "",
                   c->func ? "'" : "", text);
}

/* ---- places ---- */

/* The variable that a place of the state is in, the last one that begins at or before it: any
 * variable may be the caller's memory, so the place must not reach beyond it. NULL: there is none.
 */
static const f8_plan_var *var_of(const f8_plan *p, const f8_arg *a)
{
    uint32_t low = 0, high = p->n_vars;
    while (high - low > 1) {
        const uint32_t mid = (low + high) / 2;
        if (p->var[mid].offset <= a->offset)
            low = mid;
        else
            high = mid;
    }
    return p->n_vars && p->var[low].offset <= a->offset ? &p->var[low] : NULL;
}

static int64_t var_end(const f8_plan_var *v)
{
    return v ? v->offset + f8_type_bytes(&v->type) : 0;
}

/* Where the bytes begin that a place may reach. */
static int64_t space_begin(const checker *c, const f8_arg *a)
{
    const f8_plan_var *v = a->space == F8_SPACE_STATE ? var_of(c->plan, a) : NULL;
    return v ? v->offset : 0;
}

/* Where they end; -1 if there is no such space. */
static int64_t space_end(const checker *c, const f8_arg *a)
{
    const f8_plan_func *f = c->func;
    switch (a->space) {
    case F8_SPACE_NONE: return 0;
    case F8_SPACE_ARENA: return f->arena_bytes;
    case F8_SPACE_STATE: return var_end(var_of(c->plan, a));
    case F8_SPACE_CONST: return c->plan->constants_bytes;
    case F8_SPACE_INPUT:
        return a->port >= 0 && (uint32_t)a->port < f->n_in ? f8_type_bytes(&f->in[a->port].type)
                                                           : -1;
    case F8_SPACE_OUTPUT:
        return a->port >= 0 && (uint32_t)a->port < f->n_out ? f8_type_bytes(&f->out[a->port].type)
                                                            : -1;
    }
    return -1;
}

/* ---- collectives under way ---- */

/* Whether bytes [offset - before, offset + bytes) of argument a lie among `other` bytes of b. */
static bool overlaps(const f8_arg *a, int64_t before, int64_t bytes, const f8_arg *b, int64_t other)
{
    const bool of_port = a->space == F8_SPACE_INPUT || a->space == F8_SPACE_OUTPUT;
    return a->space == b->space && (!of_port || a->port == b->port) &&
           a->offset - before < b->offset + other && b->offset < a->offset + bytes;
}

static bool is_written(const f8_step *s, uint32_t i)
{
    switch (s->kind) {
    case F8_STEP_GEMM: return i == F8_GEMM_C;
    case F8_STEP_COPY:
    case F8_STEP_COLLECTIVE: return i == 1;
    case F8_STEP_KERNEL: /* a plan does not say what its kernels write */
    case F8_STEP_ATTENTION:
    case F8_STEP_WAIT: break;
    }
    return false;
}

/* Checks that no byte of argument `i` is one that a collective under way still moves. Of a kernel's
 * argument only the first byte is known. */
static f8_status check_moving(const checker *c, uint32_t i, int64_t before, int64_t bytes)
{
    const f8_arg *a = &c->step->arg[i];
    const int64_t known = bytes ? bytes : 1;
    for (uint32_t k = 0; k < c->n_under_way; k++) {
        const f8_step *s = &c->func->step[c->under_way[k]];
        if (overlaps(a, before, known, &s->arg[1], f8_collective_result(&s->collective)))
            return wrong(c, "argument %u lies in what '%s' receives, which was not waited for", i,
                         s->name);
        if (is_written(c->step, i) &&
            overlaps(a, before, known, &s->arg[0], f8_collective_operand(&s->collective)))
            return wrong(c, "argument %u overwrites what '%s' sends, which was not waited for", i,
                         s->name);
    }
    return F8_OK;
}

/* Checks that bytes [offset - before, offset + bytes) of argument `i` lie in its space. A place may
 * be NONE only if may_be_none. */
static f8_status check_arg(const checker *c, uint32_t i, int64_t before, int64_t bytes,
                           bool may_be_none)
{
    const f8_arg *a = &c->step->arg[i];
    const int64_t room = space_end(c, a);
    if (a->space == F8_SPACE_NONE)
        return may_be_none ? F8_OK : wrong(c, "argument %u has no place", i);
    if (room < 0)
        return wrong(c, "argument %u names port %d, which the function does not have", i, a->port);
    const int64_t begin = space_begin(c, a);
    if (a->offset < begin || a->offset - begin < before || bytes < 0 || a->offset > room - bytes)
        return wrong(c, "argument %u lies at byte %lld of %lld, and %lld bytes from there are used",
                     i, (long long)a->offset, (long long)room, (long long)bytes);
    return check_moving(c, i, before, bytes);
}

static f8_status want_args(const checker *c, uint32_t n)
{
    return c->step->n_args == n ? F8_OK
                                : wrong(c, "it has %u arguments instead of %u", c->step->n_args, n);
}

/* ---- kernels ---- */

static f8_status check_launch(const checker *c, const f8_step_phase *p)
{
    const f8_launch *l = &p->launch;
    const f8_step *s = c->step;
    const uint64_t n = l->n_instances;
    if (!l->symbol || !*l->symbol || l->image >= c->plan->n_images)
        return wrong(c, "its kernel names an image that the plan does not have");
    if (l->threads < 1 || l->threads > 1024 || n < 1 || (n > 1 && !l->multi))
        return wrong(c, "a launch can't have %u threads and %u instances", l->threads,
                     l->n_instances);
    if (p->first_arg + n * l->n_args > s->n_args || p->first_int + n * l->n_ints > s->n_ints)
        return wrong(c, "a launch takes more arguments than the step has");
    if (n * ((uint64_t)l->n_args + l->n_ints) + l->multi > F8_MULTI_WORDS)
        return wrong(c, "a launch's arguments take more than %d words", F8_MULTI_WORDS);
    if (n > 1 && l->n_ints < 1)
        return wrong(c, "an instance of a launch has no integer for its tasks");
    return F8_OK;
}

/* Checks the counter of a launch's blocks: any number but zero would end it too early or never. */
static f8_status check_counter(const checker *c, const f8_step_phase *p)
{
    const f8_launch *l = &p->launch;
    const uint32_t i = p->first_arg + l->n_args - 1;
    const uint8_t zero[4] = {0};
    if (!l->counts)
        return F8_OK;
    if (l->n_instances != 1 || l->n_args < 1)
        return wrong(c, "a launch that counts its blocks has %u instances and %u arguments",
                     l->n_instances, l->n_args);
    const f8_arg *a = &c->step->arg[i];
    F8_TRY(check_arg(c, i, 0, sizeof zero, false));
    if (a->space != F8_SPACE_CONST || a->offset % (int64_t)sizeof zero ||
        memcmp(c->plan->constants + a->offset, zero, sizeof zero))
        return wrong(c, "argument %u is no word of zero to count blocks in", i);
    return F8_OK;
}

static f8_status check_kernel(const checker *c)
{
    const f8_step *s = c->step;
    for (uint32_t i = 0; i < s->n_args; i++)
        F8_TRY(check_arg(c, i, 0, 0, true));
    for (uint32_t i = 0; i < s->n_phases; i++) {
        const f8_step_phase *p = &s->phase[i];
        if (p->first_arg > s->n_args || p->first_int > s->n_ints)
            return wrong(c, "phase %u begins after the last argument", i);
        if (p->choice > c->plan->n_choices)
            return wrong(c, "phase %u names a choice that the plan does not list", i);
        if (p->n_tasks > MOST * (int64_t)MOST || p->scratch > (int64_t)1 << 40)
            return wrong(c, "phase %u can't have %lld tasks and %lld bytes of scratch", i,
                         (long long)p->n_tasks, (long long)p->scratch);
        if (!c->on_cpu) {
            F8_TRY(check_launch(c, p));
            F8_TRY(check_counter(c, p));
        } else if (p->entry >= (uint64_t)c->plan->blob_code_bytes) {
            return wrong(c, "phase %u begins outside the code", i);
        }
    }
    return F8_OK;
}

/* ---- GEMMs ---- */

/* The bytes of one operand's scales; -1 if there can't be such scales. */
static int64_t scale_bytes(const f8_gemm_desc *d, bool is_a)
{
    const f8_scales s = {.grain = is_a ? d->scale_a : d->scale_b,
                         .dtype = d->scale,
                         .k_is_rows = is_a ? d->trans_a : !d->trans_b};
    const int64_t outer = is_a ? d->m : d->n;
    const f8_type codes = {.dtype = is_a ? d->a : d->b,
                           .rank = 2,
                           .dim = {s.k_is_rows ? d->k : outer, s.k_is_rows ? outer : d->k}};
    f8_type t;
    if (s.grain.rows > MOST || s.grain.cols > MOST ||
        !f8_scale_layout_type(d->scale_layout, &s, &codes, &t))
        return -1;
    return f8_type_bytes(&t);
}

/* Checks that a matrix [rows, cols] with this stride lies in its space, and those of its batch. */
static f8_status check_matrix(const checker *c, uint32_t i, int64_t rows, int64_t cols,
                              int64_t stride, int64_t next, f8_dtype dtype)
{
    const int64_t others = f8_gemm_batch(&c->step->gemm) - 1;
    if (stride < cols || stride > MOST)
        return wrong(c, "argument %u can't have rows of %lld elements, %lld apart", i,
                     (long long)cols, (long long)stride);
    int64_t bytes;
    if (__builtin_mul_overflow(rows - 1, stride, &bytes) ||
        __builtin_add_overflow(bytes, cols, &bytes) ||
        __builtin_add_overflow(bytes, others * next, &bytes) || /* f8_gemm_batch_ok */
        __builtin_mul_overflow(bytes, (int64_t)f8_dtype_size(dtype), &bytes))
        return wrong(c, "argument %u is too large", i);
    return check_arg(c, i, 0, bytes, false);
}

static bool is_operand(f8_dtype t)
{
    return t == F8_F32 || t == F8_BF16 || t == F8_E4M3 || t == F8_E5M2;
}

/* Checks what says whether C holds anything. */
static f8_status check_adds(const checker *c)
{
    const f8_arg *a = &c->step->arg[F8_GEMM_ADDS];
    const f8_plan_var *v = a->space == F8_SPACE_STATE ? var_of(c->plan, a) : NULL;
    if (a->space == F8_SPACE_NONE)
        return F8_OK;
    if (!c->step->gemm.accumulate)
        return wrong(c, "argument %d says whether C is added to, and it never is", F8_GEMM_ADDS);
    if (!c->on_cpu && (!v || strcmp(v->name, F8_COUNT_NAME)))
        return wrong(c, "argument %d is not the variable '%s'", F8_GEMM_ADDS, F8_COUNT_NAME);
    return check_arg(c, F8_GEMM_ADDS, 0, (int64_t)f8_dtype_size(c->on_cpu ? F8_BOOL : F8_F32),
                     false);
}

static f8_status check_gemm(const checker *c)
{
    const f8_gemm_desc *d = &c->step->gemm;
    if (d->m < 1 || d->n < 1 || d->k < 1 || d->m > MOST || d->n > MOST || d->k > MOST)
        return wrong(c, "a GEMM can't have m = %lld, n = %lld, k = %lld", (long long)d->m,
                     (long long)d->n, (long long)d->k);
    if (!is_operand(d->a) || !is_operand(d->b) ||
        (d->c != F8_F32 && (d->c != F8_BF16 || c->on_cpu)))
        return wrong(c, "a GEMM can't multiply %s by %s to %s", f8_dtype_name(d->a),
                     f8_dtype_name(d->b), f8_dtype_name(d->c));
    if (c->step->fp8 < 0 || c->step->fp8 > 1)
        return wrong(c, "it counts as %lld FP8 GEMMs; a step is 0 or 1", (long long)c->step->fp8);
    if (d->bias && (d->c != F8_BF16 || d->accumulate))
        return wrong(c, "a bias is added where C is bf16 and overwritten");
    if (!f8_gemm_batch_ok(d))
        return wrong(c, "there is no batch of %lld GEMMs with matrices %lld, %lld, %lld apart",
                     (long long)d->batch, (long long)d->stride_a, (long long)d->stride_b,
                     (long long)d->stride_c);
    F8_TRY(want_args(c, F8_GEMM_ARGS));
    F8_TRY(check_matrix(c, F8_GEMM_A, d->trans_a ? d->k : d->m, d->trans_a ? d->m : d->k, d->lda,
                        d->stride_a, d->a));
    F8_TRY(check_matrix(c, F8_GEMM_B, d->trans_b ? d->n : d->k, d->trans_b ? d->k : d->n, d->ldb,
                        d->stride_b, d->b));
    F8_TRY(check_matrix(c, F8_GEMM_C, d->m, d->n, d->ldc, d->stride_c, d->c));
    for (uint32_t i = F8_GEMM_SCALE_A; i <= F8_GEMM_SCALE_B; i++) {
        const int64_t bytes =
            c->step->arg[i].space == F8_SPACE_NONE ? 0 : scale_bytes(d, i == F8_GEMM_SCALE_A);
        if (bytes < 0 || (bytes && !d->has_alpha) ||
            (bytes && d->scale != F8_F32 && d->scale != F8_E8M0))
            return wrong(c, "argument %u has scales that the GEMM does not allow", i);
        F8_TRY(check_arg(c, i, 0, bytes, true));
    }
    const bool given = c->step->arg[F8_GEMM_BIAS].space != F8_SPACE_NONE;
    if (given != d->bias)
        return wrong(c, "argument %d is a bias %s", F8_GEMM_BIAS,
                     given ? "that the GEMM does not add" : "that is missing");
    F8_TRY(check_arg(c, F8_GEMM_BIAS, 0, d->n * (int64_t)f8_dtype_size(F8_BF16), true));
    return check_adds(c);
}

/* ---- copies and attention ---- */

/* The bytes before and after the first element that strides reach. False if there are too many. */
static bool reach(const f8_step *s, const int64_t *stride, int64_t *before, int64_t *behind)
{
    *before = *behind = 0;
    for (int32_t i = 0; i < s->copy.rank; i++) {
        int64_t far, *side = stride[i] < 0 ? before : behind;
        if (stride[i] < -MOST || stride[i] > MOST || s->copy.size[i] < 1 || s->copy.size[i] > MOST)
            return false;
        far = (s->copy.size[i] - 1) * (stride[i] < 0 ? -stride[i] : stride[i]);
        if (__builtin_add_overflow(*side, far, side))
            return false;
    }
    const int64_t e = s->copy.element;
    return !__builtin_mul_overflow(*before, e, before) &&
           !__builtin_add_overflow(*behind, 1, behind) &&
           !__builtin_mul_overflow(*behind, e, behind);
}

static f8_status check_copy(const checker *c)
{
    const f8_step *s = c->step;
    int64_t before, behind;
    F8_TRY(want_args(c, 2));
    if (s->copy.element != 1 && s->copy.element != 2 && s->copy.element != 4)
        return wrong(c, "a copy can't have elements of %u bytes", s->copy.element);
    for (uint32_t i = 0; i < 2; i++) {
        if (!reach(s, i ? s->copy.to : s->copy.from, &before, &behind))
            return wrong(c, "a copy has sizes or strides out of range");
        F8_TRY(check_arg(c, i, before, behind, false));
    }
    return F8_OK;
}

static f8_status check_attention(const checker *c)
{
    const f8_cudnn_attention_desc *d = &c->step->attention;
    const int64_t stride[] = {d->stride.q,    d->stride.k,  d->stride.v,  d->stride.o, 0,
                              d->stride.dout, d->stride.dq, d->stride.dk, d->stride.dv};
    const int64_t sizes[] = {d->B, d->T, d->H, d->Hkv, d->D};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1 || sizes[i] > 1 << 20)
            return wrong(c, "an attention has sizes out of range");
    F8_TRY(want_args(c, f8_attention_args(d)));
    for (uint32_t i = 0; i < c->step->n_args; i++) {
        const bool of_keys =
            i == F8_CUDNN_K || i == F8_CUDNN_V || i == F8_CUDNN_DK || i == F8_CUDNN_DV;
        if (i == F8_CUDNN_LSE)
            F8_TRY(check_matrix(c, i, d->B * d->H, d->T, d->T, 0, F8_F32));
        else
            F8_TRY(check_matrix(c, i, d->B * d->T, (of_keys ? d->Hkv : d->H) * d->D, stride[i], 0,
                                F8_BF16));
    }
    return F8_OK;
}

static f8_status check_collective(checker *c)
{
    const f8_collective_desc *d = &c->step->collective;
    F8_TRY(want_args(c, 2));
    if (d->ranks != (c->plan->ranks ? c->plan->ranks : 1))
        return wrong(c, "a collective has other ranks than the plan");
    if (d->bytes < 1 || d->bytes > ((int64_t)1 << 44) / d->ranks)
        return wrong(c, "a collective has bytes out of range");
    if (d->kind == F8_COLLECTIVE_ALL_SLICE ? d->whole < 1 || d->bytes < d->whole / d->ranks
                                           : d->whole != 0)
        return wrong(c, "the whole of which an all_slice takes a part has bytes out of range");
    if (f8_collective_adds(d->kind) && (d->dtype != F8_F32 || d->bytes % (int64_t)sizeof(float)))
        return wrong(c, "a collective adds what is not f32");
    F8_TRY(check_arg(c, 0, 0, f8_collective_operand(d), false));
    F8_TRY(check_arg(c, 1, 0, f8_collective_result(d), false));
    if (!f8_collective_travels(d->kind))
        return F8_OK;
    if (overlaps(&c->step->arg[0], 0, f8_collective_operand(d), &c->step->arg[1],
                 f8_collective_result(d)))
        return wrong(c, "a collective receives where it sends from");
    if (c->n_under_way == F8_MOST_UNDER_WAY)
        return wrong(c, "more than %d collectives are under way", F8_MOST_UNDER_WAY);
    c->under_way[c->n_under_way++] = (uint32_t)(c->step - c->func->step);
    return F8_OK;
}

static f8_status check_wait(checker *c)
{
    F8_TRY(want_args(c, 0));
    for (uint32_t k = 0; k < c->n_under_way; k++)
        if (c->under_way[k] == c->step->waits) {
            c->under_way[k] = c->under_way[--c->n_under_way];
            return F8_OK;
        }
    return wrong(c, "it waits for step %u, which is no collective under way", c->step->waits);
}

/* No collective outlives the run that started it. */
static f8_status check_end(checker *c)
{
    if (!c->n_under_way)
        return F8_OK;
    c->step = &c->func->step[c->under_way[0]];
    return wrong(c, "nothing waits for the collective");
}

static f8_status check_step(checker *c)
{
    const f8_step *s = c->step;
    if (s->choice > c->plan->n_choices)
        return wrong(c, "it names a choice that the plan does not list");
    if (s->bytes_read > (int64_t)1 << 44 || s->bytes_written > (int64_t)1 << 44)
        return wrong(c, "it says that it moves too many bytes");
    if (s->branch && (s->kind != F8_STEP_GEMM || c->on_cpu || s->joins))
        return wrong(c, "it runs beside others, but it is no GEMM of a GPU");
    if (s->joins && (s->joins > s - c->func->step || !c->func->step[s->joins - 1].branch))
        return wrong(c, "it waits for step %u, which is none before it that runs beside others",
                     s->joins - 1);
    if (s->n_phases && s->kind != F8_STEP_KERNEL)
        return wrong(c, "it has phases, but it is not a kernel");
    switch (c->step->kind) {
    case F8_STEP_KERNEL: return check_kernel(c);
    case F8_STEP_GEMM: return check_gemm(c);
    case F8_STEP_COPY: return check_copy(c);
    case F8_STEP_ATTENTION: return check_attention(c);
    case F8_STEP_COLLECTIVE: return check_collective(c);
    case F8_STEP_WAIT: return check_wait(c);
    }
    return wrong(c, "the kind of the step is unknown");
}

/* ---- the whole ---- */

/* Variables lie in order and none overlaps another, so their bytes add up to no more than the
 * state's. */
static f8_status check_vars(const checker *c)
{
    const f8_plan *p = c->plan;
    int64_t end = 0;
    for (uint32_t i = 0; i < p->n_vars; i++) {
        const f8_plan_var *v = &p->var[i];
        if (v->init < 0 || v->init >= INIT_KINDS)
            return wrong(c, "the initial value of variable '%s' is of an unknown kind", v->name);
        if (v->rows && (v->type.rank == 0 || p->ranks < 2 ||
                        v->type.dim[0] != f8_shard_rows(v->rows, p->ranks)))
            return wrong(c, "variable '%s' is not a rank's part of its rows", v->name);
        const int64_t bytes = f8_type_bytes(&v->type);
        if (v->offset % 64 || v->offset < end || v->offset > p->state_bytes || bytes < 0 ||
            bytes > p->state_bytes - v->offset)
            return wrong(c, "variable '%s' lies outside the state, or overlaps another variable",
                         v->name);
        end = v->offset + bytes;
    }
    return F8_OK;
}

static f8_status check_ports(const checker *c, const f8_plan_port *port, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (port[i].var < -1 || (port[i].var >= 0 && (uint32_t)port[i].var >= c->plan->n_vars) ||
            (port[i].var >= 0 && !f8_type_equal(&port[i].type, &c->plan->var[port[i].var].type)))
            return wrong(c, "port '%s' carries no variable of its type", port[i].name);
    return F8_OK;
}

/* Checks that the sum of what the steps of a function say they move stays within int64. */
static f8_status check_traffic(const checker *c)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < c->func->n_steps && bytes <= (int64_t)1 << 60; i++)
        bytes += c->func->step[i].bytes_read + c->func->step[i].bytes_written;
    return bytes <= (int64_t)1 << 60 ? F8_OK
                                     : wrong(c, "its steps say that they move too many bytes");
}

static f8_status check_target(checker *c)
{
    const char *name = c->plan->target;
    const f8_target *t = f8_target_by_name(name);
    c->on_cpu = f8_cpu_level_by_target(name) || (t && t->kind == F8_TARGET_CPU);
    return c->on_cpu || (t && t->kind == F8_TARGET_CUDA)
               ? F8_OK
               : wrong(c, "there is no code for target '%s'", name);
}

static f8_status check_code(const checker *c)
{
    const f8_plan *p = c->plan;
    if (p->blob_code_bytes > p->blob_bytes || p->blob_code_bytes % F8_BLOB_PAGE)
        return wrong(c, "%lld bytes of code in a blob of %lld", (long long)p->blob_code_bytes,
                     (long long)p->blob_bytes);
    if (c->on_cpu ? p->n_images > 0 : p->blob_bytes > 0)
        return wrong(c, "it has code of a %s for target %s", c->on_cpu ? "GPU" : "CPU", p->target);
    for (uint32_t i = 0; i < p->n_images; i++)
        if (p->image[i].size < 1)
            return wrong(c, "image %u is empty", i);
    if (p->dependent_launch && (c->on_cpu || f8_target_by_name(p->target)->sm < 90))
        return wrong(c, "it has dependent launches for target %s", p->target);
    return F8_OK;
}

/* Checks that the sum of what an executor allocates stays within int64. */
static f8_status check_sizes(const checker *c)
{
    enum { MOST_BITS = 48 }; /* of an address */
    const int64_t most = (int64_t)1 << MOST_BITS;
    const f8_plan *p = c->plan;
    int64_t ports = 0;
    bool fits =
        p->state_bytes <= most && p->gemm_workspace <= most && p->attention_workspace <= most;
    for (uint32_t i = 0; i < p->n_funcs; i++) {
        const f8_plan_func *f = &p->func[i];
        fits = fits && f->arena_bytes <= most;
        for (uint32_t k = 0; fits && k < f->n_in + f->n_out; k++) {
            const int64_t bytes =
                f8_type_bytes(k < f->n_in ? &f->in[k].type : &f->out[k - f->n_in].type);
            fits = bytes >= 0 && bytes <= most && (ports += bytes) <= most;
        }
    }
    return fits ? F8_OK : wrong(c, "it asks for more memory than there are addresses");
}

/* Ports that carry a variable have no buffer, and may be of another variable. */
static bool same_buffers(const f8_plan_port *a, const f8_plan_port *b, uint32_t n)
{
    bool same = true;
    for (uint32_t i = 0; same && i < n; i++)
        same = (a[i].var >= 0 && b[i].var >= 0) ||
               (a[i].var == b[i].var && !strcmp(a[i].name, b[i].name) &&
                f8_type_equal(&a[i].type, &b[i].type));
    return same;
}

/* The form of a function for an empty history: no other function has it, it has none itself, and
 * the buffers of the function are its own. */
static f8_status check_first(const checker *c, uint32_t func)
{
    const f8_plan *p = c->plan;
    const f8_plan_func *f = &p->func[func];
    if (!f->first)
        return F8_OK;
    const f8_plan_func *form = f->first <= p->n_funcs ? &p->func[f->first - 1] : NULL;
    bool fits = form && !form->first && f8_plan_base(p->func, p->n_funcs, f->first - 1) == func &&
                form->n_in >= f->n_in && form->n_out == f->n_out &&
                same_buffers(form->in, f->in, f->n_in) && same_buffers(form->out, f->out, f->n_out);
    for (uint32_t i = f->n_in; fits && i < form->n_in; i++)
        fits = form->in[i].var >= 0;
    return fits ? F8_OK : wrong(c, "a function's form for an empty history does not belong to it");
}

f8_status f8_plan_check(const f8_plan *plan, f8_diag *diag)
{
    checker c = {.plan = plan, .diag = diag};
    if (!plan->n_funcs)
        return wrong(&c, "it has no function");
    if (plan->ranks < 0 || plan->ranks > F8_MAX_RANKS)
        return wrong(&c, "its ranks are out of range");
    F8_TRY(check_target(&c));
    F8_TRY(check_code(&c));
    F8_TRY(check_vars(&c));
    F8_TRY(check_sizes(&c));
    for (uint32_t i = 0; i < plan->n_funcs; i++) {
        c.func = &plan->func[i];
        c.step = NULL;
        c.n_under_way = 0;
        F8_TRY(check_ports(&c, c.func->in, c.func->n_in));
        F8_TRY(check_ports(&c, c.func->out, c.func->n_out));
        F8_TRY(check_first(&c, i));
        for (uint32_t k = 0; k < c.func->n_steps; k++) {
            c.step = &c.func->step[k];
            F8_TRY(check_step(&c));
        }
        F8_TRY(check_end(&c));
        c.step = NULL;
        F8_TRY(check_traffic(&c));
    }
    return F8_OK;
}

bool f8_plan_same_variables(const f8_plan *a, const f8_plan *b)
{
    bool same = a->n_vars == b->n_vars && a->state_bytes == b->state_bytes;
    for (uint32_t i = 0; same && i < a->n_vars; i++) {
        const f8_plan_var *x = &a->var[i], *y = &b->var[i];
        same = !strcmp(x->name, y->name) && f8_type_equal(&x->type, &y->type) &&
               x->offset == y->offset && x->is_param == y->is_param;
    }
    return same;
}
