/* Chooses the algorithm of a GEMM and the configuration of a kernel: from the options' choices,
 * else from the model. The plan records both. */
#include "codegen/plan/parts.h"

#include <string.h>

#include "codegen/kernel/config.h"
#include "runtime/base/gemm_desc.h"

/* The index + 1 of the problem's entry in the plan's table of choices; the entry is made at its
 * first use. */
static f8_status record(f8_build *b, const char *problem, const char *candidate,
                        f8_choice_source source, uint32_t *choice)
{
    f8_plan *p = b->plan;
    for (uint32_t i = 0; i < p->n_choices; i++)
        if (!strcmp(p->choice[i].problem, problem)) {
            *choice = i + 1;
            return F8_OK;
        }
    f8_plan_choice *grown = f8_arena_grow(b->arena, p->choice, p->n_choices, &b->choice_room,
                                          p->n_choices + 1, sizeof *grown);
    if (!grown)
        return f8_build_memory(b);
    p->choice = grown;
    grown[p->n_choices++] = (f8_plan_choice){.problem = f8_arena_strdup(b->arena, problem),
                                             .candidate = f8_arena_strdup(b->arena, candidate),
                                             .source = source};
    *choice = p->n_choices;
    return f8_build_memory(b);
}

static const char *find(const f8_build *b, const f8_build_problem *problem,
                        f8_choice_source *source)
{
    const f8_build_choices *c = b->options->choices;
    *source = F8_CHOICE_MODEL;
    return c ? c->find(c->user, problem, source) : NULL;
}

f8_status f8_build_choose_gemm(f8_build *b, const char *name, f8_gemm_desc *d, uint32_t *choice)
{
    char problem[F8_GEMM_PROBLEM_TEXT];
    const uint32_t model = d->algorithm;
    f8_gemm_problem_text(d, problem);
    f8_choice_source source;
    const char *text =
        find(b, &(f8_build_problem){.text = problem, .name = name, .gemm = d, .target = b->facts},
             &source);
    f8_gemm_desc chosen = *d;
    const bool cuda = b->facts->kind == F8_TARGET_CUDA;
    const bool tuned = text && f8_gemm_candidate_parse(text, &chosen) &&
                       (chosen.algorithm == F8_GEMM_CUBLASLT) == cuda;
    if (tuned) {
        d->tuning = chosen.tuning;
        if (chosen.algorithm != model)
            /* used where the CPU that runs the plan has it */
            d->tuning.algorithm = (uint8_t)chosen.algorithm;
    }
    return record(b, problem, tuned ? text : "model", tuned ? source : F8_CHOICE_MODEL, choice);
}

f8_status f8_build_choose_kernel(f8_build *b, const char *name, f8_kernel *k, int64_t extent,
                                 f8_kernel **out, uint32_t *choice)
{
    char problem[F8_KERNEL_PROBLEM_TEXT];
    f8_kernel_config v = {0};
    f8_kernel_problem_text(k, extent, problem);
    f8_choice_source source;
    const char *text =
        find(b, &(f8_build_problem){.text = problem, .name = name, .kernel = k, .target = b->facts},
             &source);
    const bool tuned = text && f8_kernel_config_parse(text, &v);
    *out = k;
    if (tuned)
        F8_TRY(f8_kernel_with_config(k, &v, b->arena, out, b->diag));
    return record(b, problem, tuned ? text : "model", tuned ? source : F8_CHOICE_MODEL, choice);
}
