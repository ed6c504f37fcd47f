/* Statistics: what fp8c_statistic says, made of the sums that functions which watch compute
 * (passes/instrument). */
#include <stdio.h>
#include <string.h>

#include "frontend/figures.h"
#include "frontend/program.h"

/* ---- rows ---- */

/* Whether the value is among the figures of a function: those of micro_step.dump are
 * micro_step.stats's, and those of forward.first.stats are forward.stats's. */
static bool is_of(const f8_watched *w, const char *function)
{
    const size_t n = strlen(w->function);
    return !strncmp(function, w->function, n) && function[n] == '.';
}

const f8_watched *f8_program_watched(const fp8c_program *p, int function, int index)
{
    const f8_compile_report *report = &p->now->report;
    const char *name = fp8c_program_function_name(p, function);
    int row = 0;
    for (size_t i = 0; name && i < report->n_watched; i++)
        if (is_of(&report->watched[i], name) && row++ == index)
            return &report->watched[i];
    return NULL;
}

/* ---- the API ---- */

fp8c_status fp8c_program_statistic(fp8c_program *p, int function, int index, fp8c_statistic *out)
{
    const f8_watched *w = f8_program_watched(p, function, index);
    if (!w)
        return FP8C_ERR_INPUT;
    f8_diag diag = {0};
    const f8_status status = f8_program_has_memory(p, &diag);
    if (status != F8_OK)
        return f8_api_result(p->ctx, &diag, status);
    const float *row = fp8c_program_buffer(
        p, function, FP8C_OUTPUT, fp8c_program_find_port(p, function, FP8C_OUTPUT, F8_STATS));
    if (!row)
        return FP8C_ERR_INPUT;
    row += (size_t)index * F8_SUMS;
    fp8c_statistic own = {.struct_size = sizeof own,
                          .name = w->name,
                          .linear = w->linear,
                          .operand = f8_watched_kind_name[w->kind],
                          .recipe = w->quantized ? w->recipe.name : NULL,
                          .format = w->quantized ? f8_dtype_name(w->format) : NULL,
                          .what_if = w->what_if,
                          .elements = w->elements,
                          .gemms = w->gemms,
                          .aliases = w->alias};
    char text[sizeof own.granularity];
    if (w->quantized)
        snprintf(own.granularity, sizeof own.granularity, "%s",
                 f8_granularity_print(w->grain, text, sizeof text));
    f8_figures_fill(w, row, &own);
    f8_api_give(out, &own);
    return FP8C_OK;
}
