/* Answers of cuBLASLt's heuristic that no compile takes, since they are not deterministic: parts of
 * a sum are added in the order in which they arrive, or are rounded to the result's type. They are
 * measured as peers. Such a program is compiled as the model says, and its plan says so; then its
 * executor is told to run the other algorithm. See session.h. */
#include <string.h>

#include "frontend/measure/session.h"

f8_status f8_measure_find_answers(const f8_measure_session *s, const fp8c_tuning *t,
                                  f8_measure_answers *out, f8_diag *diag)
{
    const tune_problem *p = &t->problem[0];
    f8_gemm_tuning all[F8_CUBLASLT_ANSWERS];
    int n;
    *out = (f8_measure_answers){0};
    if (!s->how.peers || t->base->target->kind != F8_TARGET_CUDA)
        return F8_OK;
    F8_TRY(f8_cublaslt_candidates(t->base->cuda, &s->ctx->allocator, &p->desc, 16,
                                  t->base->now->plan.gemm_workspace, true, p->name, all, &n, diag));
    for (int i = 0; i < n; i++) {
        char text[F8_CANDIDATE_TEXT];
        f8_gemm_desc d = p->desc;
        if (f8_gemm_tuning_again(all, i))
            continue;
        d.tuning = all[i];
        f8_gemm_candidate_text(&d, d.algorithm, text);
        out->name[out->n] = f8_arena_printf(&s->set->arena, "%s (not deterministic)", text);
        out->config[out->n++] = all[i].lt;
    }
    return f8_arena_status(&s->set->arena, diag);
}

f8_status f8_measure_take_answer(const fp8c_program *p, const tune_problem *problem, int function,
                                 const f8_cublaslt_config *answer, f8_diag *diag)
{
    const f8_plan *plan = &p->now->plan;
    const f8_plan_func *f = &plan->func[function];
    for (uint32_t i = 0; i < f->n_steps; i++) {
        const uint32_t choice = f->step[i].choice;
        if (choice && !strcmp(plan->choice[choice - 1].problem, problem->text))
            F8_TRY(f8_cuda_exec_loosen_gemm(p->now->instance.cuda, (uint32_t)function, i, answer,
                                            diag));
    }
    return F8_OK;
}
