/* The fields of a plan as bytes: see plan_file.h. plan_check.c checks their values. */
#include "runtime/plan_file.h"

/* ---- steps ---- */

static void wire_arg(f8_wire *w, void *element)
{
    f8_arg *a = element;
    F8_WIRE_ENUM(w, a->space, F8_SPACE_CONST + 1);
    f8_wire_i32(w, &a->port);
    f8_wire_i64(w, &a->offset);
}

static void wire_launch(f8_wire *w, f8_launch *l)
{
    f8_wire_text(w, &l->symbol);
    f8_wire_u32(w, &l->image);
    f8_wire_u32(w, &l->threads);
    f8_wire_u32(w, &l->shared);
    f8_wire_u32(w, &l->n_instances);
    f8_wire_u32(w, &l->n_args);
    f8_wire_u32(w, &l->n_ints);
    f8_wire_bool(w, &l->multi);
    f8_wire_bool(w, &l->counts);
    f8_wire_i64(w, &l->max_blocks);
}

static void wire_phase(f8_wire *w, void *element)
{
    f8_step_phase *p = element;
    f8_wire_u64(w, &p->entry);
    f8_wire_size(w, &p->n_tasks);
    f8_wire_size(w, &p->scratch);
    f8_wire_u32(w, &p->first_arg);
    f8_wire_u32(w, &p->first_int);
    f8_wire_u32(w, &p->choice);
    wire_launch(w, &p->launch);
}

static void wire_granularity(f8_wire *w, f8_granularity *g)
{
    f8_wire_size(w, &g->rows);
    f8_wire_size(w, &g->cols);
}

static void wire_tuning(f8_wire *w, f8_gemm_tuning *t)
{
    f8_wire_u16(w, &t->m_block);
    f8_wire_u16(w, &t->n_block);
    f8_wire_u8(w, &t->algorithm);
    f8_wire_u8(w, &t->share);
    f8_wire_bool(w, &t->packed);
    f8_wire_u32(w, &t->lt.id);
#define X(field, word, attribute, type) f8_wire_u32(w, &t->lt.field);
    F8_CUBLASLT_CONFIG(X)
#undef X
}

static void wire_gemm(f8_wire *w, f8_gemm_desc *d)
{
    int64_t *const sizes[] = {&d->m,   &d->n,     &d->k,        &d->lda,      &d->ldb,
                              &d->ldc, &d->batch, &d->stride_a, &d->stride_b, &d->stride_c};
    bool *const flags[] = {&d->trans_a,    &d->trans_b,   &d->round_a,         &d->round_b,
                           &d->accumulate, &d->has_alpha, &d->fast_accumulate, &d->bias};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        f8_wire_size(w, sizes[i]);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        f8_wire_bool(w, flags[i]);
    F8_WIRE_ENUM(w, d->a, F8_DTYPE_COUNT);
    F8_WIRE_ENUM(w, d->b, F8_DTYPE_COUNT);
    F8_WIRE_ENUM(w, d->c, F8_DTYPE_COUNT);
    F8_WIRE_ENUM(w, d->scale, F8_DTYPE_COUNT);
    F8_WIRE_ENUM(w, d->scale_layout, F8_SCALES_CUBLASLT + 1);
    wire_granularity(w, &d->scale_a);
    wire_granularity(w, &d->scale_b);
    f8_wire_u32(w, &d->algorithm);
    wire_tuning(w, &d->tuning);
}

static void wire_attention(f8_wire *w, f8_cudnn_attention_desc *d)
{
    int64_t *const sizes[] = {&d->B,        &d->T,           &d->H,         &d->Hkv,
                              &d->D,        &d->stride.q,    &d->stride.k,  &d->stride.v,
                              &d->stride.o, &d->stride.dout, &d->stride.dq, &d->stride.dk,
                              &d->stride.dv};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        f8_wire_size(w, sizes[i]);
    f8_wire_bool(w, &d->causal);
    f8_wire_bool(w, &d->backward);
    f8_wire_f32(w, &d->scale);
}

static void wire_copy(f8_wire *w, f8_step *s)
{
    uint32_t rank = (uint32_t)s->copy.rank;
    f8_wire_choice(w, &rank, F8_COPY_RANK + 1);
    s->copy.rank = (int32_t)rank;
    f8_wire_u32(w, &s->copy.element);
    for (uint32_t i = 0; i < rank; i++) {
        f8_wire_size(w, &s->copy.size[i]);
        f8_wire_i64(w, &s->copy.from[i]);
        f8_wire_i64(w, &s->copy.to[i]);
    }
}

static void wire_collective(f8_wire *w, f8_collective_desc *d)
{
    F8_WIRE_ENUM(w, d->kind, F8_COLLECTIVES);
    f8_wire_i32(w, &d->ranks);
    f8_wire_size(w, &d->bytes);
    f8_wire_size(w, &d->whole);
    F8_WIRE_ENUM(w, d->dtype, F8_DTYPE_COUNT);
}

static void wire_step(f8_wire *w, void *element)
{
    f8_step *s = element;
    F8_WIRE_ENUM(w, s->kind, F8_STEP_KINDS);
    f8_wire_name(w, &s->name);
    F8_WIRE_ARRAY(w, s->arg, s->n_args, wire_arg);
    F8_WIRE_ARRAY(w, s->ints, s->n_ints, f8_wire_i64s);
    F8_WIRE_ARRAY(w, s->phase, s->n_phases, wire_phase);
    f8_wire_size(w, &s->bytes_read);
    f8_wire_size(w, &s->bytes_written);
    f8_wire_u64(w, &s->hash);
    f8_wire_i64(w, &s->fp8);
    f8_wire_u32(w, &s->choice);
    f8_wire_bool(w, &s->branch);
    f8_wire_u32(w, &s->joins);
    F8_WIRE_ENUM(w, s->does, F8_STEP_DOES);
    f8_wire_f64(w, &s->seconds);
    f8_wire_f64(w, &s->flops);
    if (s->kind == F8_STEP_GEMM)
        wire_gemm(w, &s->gemm);
    else if (s->kind == F8_STEP_ATTENTION)
        wire_attention(w, &s->attention);
    else if (s->kind == F8_STEP_COPY)
        wire_copy(w, s);
    else if (s->kind == F8_STEP_COLLECTIVE)
        wire_collective(w, &s->collective);
    else if (s->kind == F8_STEP_WAIT)
        f8_wire_u32(w, &s->waits);
}

/* ---- functions, variables, code ---- */

static void wire_port(f8_wire *w, void *element)
{
    f8_plan_port *p = element;
    f8_wire_name(w, &p->name);
    f8_wire_type(w, &p->type);
    f8_wire_i32(w, &p->var);
}

static void wire_func(f8_wire *w, void *element)
{
    f8_plan_func *f = element;
    f8_wire_name(w, &f->name);
    F8_WIRE_ARRAY(w, f->in, f->n_in, wire_port);
    F8_WIRE_ARRAY(w, f->out, f->n_out, wire_port);
    F8_WIRE_ARRAY(w, f->step, f->n_steps, wire_step);
    f8_wire_size(w, &f->arena_bytes);
    f8_wire_size(w, &f->lower_bound);
    f8_wire_u32(w, &f->first);
}

static void wire_var(f8_wire *w, void *element)
{
    f8_plan_var *v = element;
    f8_wire_name(w, &v->name);
    f8_wire_type(w, &v->type);
    f8_wire_bool(w, &v->is_param);
    f8_wire_i32(w, &v->init);
    f8_wire_f64(w, &v->init_arg);
    f8_wire_size(w, &v->rows);
    f8_wire_size(w, &v->offset);
}

static void wire_image(f8_wire *w, void *element)
{
    f8_wire_size(w, &((f8_image *)element)->size);
}

static void wire_choice(f8_wire *w, void *element)
{
    f8_plan_choice *c = element;
    f8_wire_name(w, &c->problem);
    f8_wire_name(w, &c->candidate);
    F8_WIRE_ENUM(w, c->source, F8_CHOICE_SOURCES);
}

void f8_plan_wire_needs(f8_wire *w, f8_cpu_features *needs)
{
    const char *name;
    uint32_t n = 0;
    for (size_t i = 0; f8_cpu_feature_name(i); i++)
        n += f8_cpu_has(needs, i);
    f8_wire_u32(w, &n);
    for (size_t i = 0; !f8_wire_reads(w) && (name = f8_cpu_feature_name(i)); i++)
        if (f8_cpu_has(needs, i))
            f8_wire_name(w, &name);
    for (uint32_t i = 0; f8_wire_reads(w) && i < n && !w->wrong; i++) {
        f8_wire_name(w, &name);
        if (!f8_cpu_add(needs, name))
            f8_wire_refuse(w, "a CPU feature has an unknown name");
    }
}

void f8_plan_wire(f8_wire *w, f8_plan *plan)
{
    f8_wire_name(w, &plan->module);
    f8_wire_name(w, &plan->target);
    F8_WIRE_ARRAY(w, plan->var, plan->n_vars, wire_var);
    F8_WIRE_ARRAY(w, plan->func, plan->n_funcs, wire_func);
    f8_wire_size(w, &plan->state_bytes);
    f8_wire_size(w, &plan->constants_bytes);
    f8_wire_size(w, &plan->blob_bytes);
    f8_wire_size(w, &plan->blob_code_bytes);
    F8_WIRE_ARRAY(w, plan->image, plan->n_images, wire_image);
    f8_wire_u32(w, &plan->n_kernels);
    f8_wire_size(w, &plan->gemm_workspace);
    f8_wire_size(w, &plan->attention_workspace);
    F8_WIRE_ARRAY(w, plan->choice, plan->n_choices, wire_choice);
    f8_wire_i32(w, &plan->ranks);
    f8_wire_bool(w, &plan->dependent_launch);
}
