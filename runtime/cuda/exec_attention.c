/* The CUDA executor's ATTENTION steps, which cuDNN computes. cuDNN is searched and prepared only if
 * a plan has any. */
#include "runtime/cuda/exec_internal.h"

#include <string.h>

/* The failure of a step: which one, and why. */
static f8_status failed(const f8_plan_func *func, const f8_step *s, f8_status status,
                        const f8_diag *why, f8_diag *diag)
{
    return f8_fail(diag, status, F8_NOWHERE, "attention '%s' in %s: %s", s->name, func->name,
                   why->text);
}

/* cuDNN is not here, or refuses the problem: what else the user can do. */
static f8_status impossible(const f8_plan_func *func, const f8_step *s, f8_status status,
                            const f8_diag *why, f8_diag *diag)
{
    f8_diag d = {0};
    f8_fail(&d, status, F8_NOWHERE, "%s; compiled with attention 'own', it needs no cuDNN",
            why->text);
    return failed(func, s, status, &d, diag);
}

static bool same_problem(const f8_cudnn_attention_desc *a, const f8_cudnn_attention_desc *b)
{
    return a->B == b->B && a->T == b->T && a->H == b->H && a->Hkv == b->Hkv && a->D == b->D &&
           a->causal == b->causal && a->backward == b->backward && a->scale == b->scale &&
           !memcmp(&a->stride, &b->stride, sizeof a->stride);
}

static f8_status prepare(f8_cuda_exec *x, const f8_cudnn_attention_desc *desc,
                         f8_live_attention **out, f8_diag *diag)
{
    for (*out = x->home->attentions; *out; *out = (*out)->next)
        if (same_problem(&(*out)->desc, desc))
            return F8_OK;
    if (!x->home->cudnn.handle) {
        F8_TRY(f8_cudnn_find(x->cuda, &x->home->cudnn, diag));
        F8_TRY(f8_cudnn_start(&x->home->cudnn, diag));
    }
    f8_live_attention *a = F8_NEW(&x->home->memory, f8_live_attention);
    F8_TRY(f8_arena_status(&x->home->memory, diag));
    F8_TRY(
        f8_cudnn_attention_prepare(&x->home->cudnn, desc, NULL, &x->allocator, &a->problem, diag));
    a->desc = *desc;
    a->next = x->home->attentions;
    x->home->attentions = a;
    f8_cudnn_attention_text(a->problem, a->text);
    *out = a;
    return F8_OK;
}

f8_status f8_cuda_exec_prepare_attentions(f8_cuda_exec *x, f8_diag *diag)
{
    x->workspace_bytes = x->plan->gemm_workspace;
    for (uint32_t k = 0; k < x->plan->n_funcs; k++)
        for (uint32_t i = 0; i < x->plan->func[k].n_steps; i++) {
            f8_live_step *l = &x->func[k].step[i];
            f8_diag d = {0};
            if (l->step->kind != F8_STEP_ATTENTION)
                continue;
            const f8_status s = prepare(x, &l->step->attention, &l->attention, &d);
            if (s != F8_OK)
                return impossible(&x->plan->func[k], l->step, s, &d, diag);
            const int64_t bytes = f8_cudnn_attention_workspace(l->attention->problem);
            if (bytes > x->workspace_bytes)
                x->workspace_bytes = bytes;
        }
    return F8_OK;
}

f8_status f8_cuda_exec_run_attention(f8_cuda_exec *x, const f8_live_func *f, f8_live_step *l,
                                     CUstream stream, f8_diag *diag)
{
    const f8_cudnn_attention *a = l->attention->problem;
    f8_diag d = {0};
    f8_status s = F8_OK;
    if (!l->arguments) {
        void *pointers[F8_CUDNN_DV + 1] = {0};
        for (uint32_t i = 0; i < l->step->n_args && i <= F8_CUDNN_DV; i++)
            pointers[i] = (void *)(uintptr_t)l->arg[i];
        s = f8_cudnn_attention_bind(a, pointers, (void *)(uintptr_t)x->home->home.workspace.at,
                                    &l->arguments, &d);
    }
    if (s == F8_OK)
        s = f8_cudnn_attention_run(a, l->arguments, stream, &d);
    return s == F8_OK ? F8_OK : failed(f->func, l->step, s, &d, diag);
}

void f8_cuda_exec_forget_arguments(f8_cuda_exec *x)
{
    for (uint32_t k = 0; x->func && k < x->plan->n_funcs; k++)
        for (uint32_t i = 0; x->func[k].step && i < x->plan->func[k].n_steps; i++)
            f8_cudnn_destroy(&x->home->cudnn, &x->func[k].step[i].arguments);
}

void f8_cuda_exec_release_attentions(f8_cuda_home *home)
{
    for (f8_live_attention *a = home->attentions; a; a = a->next)
        f8_cudnn_attention_destroy(a->problem);
    f8_cudnn_close(&home->cudnn);
}
