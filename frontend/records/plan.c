/* Records of what programs take: memory, launches, and the functions and targets of files. See
 * records.h. */
#include <string.h>

#include "frontend/records/records.h"

/* ---- launches ---- */

/* The kinds of steps that launch something, and what many are called. */
static const struct {
    const char *kind, *people, *record; /* in the text and in `memory`; in `plan` */
} launched[] = {{"kernel", "kernels", "kernels"},
                {"gemm", "GEMMs", "gemms"},
                {"copy", "copies", "copies"},
                {"attention", "attention", "attention"},
                {"collective", "collectives", "collectives"}};
enum { KINDS = sizeof launched / sizeof *launched };

/* A kernel of several phases is launched once for each: `phases` counts these. */
static json_t *launches(const fp8c_program *program, int function, bool phases)
{
    json_t *all = json_object();
    json_int_t n[KINDS] = {0};
    fp8c_step s;
    for (int i = 0; fp8c_program_step(program, function, i, &s) == FP8C_OK; i++)
        for (int k = 0; k < KINDS; k++)
            if (!strcmp(s.kind, launched[k].kind))
                n[k] += phases && k == 0 ? s.phases : 1;
    for (int k = 0; k < KINDS; k++)
        json_object_set_new(all, phases ? launched[k].record : launched[k].people,
                            json_integer(n[k]));
    return all;
}

json_t *f8_launches(const fp8c_program *program, int function)
{
    return launches(program, function, false);
}

/* ---- the whole program ---- */

int64_t f8_gemms_excluded(const fp8c_program *program)
{
    fp8c_decision d;
    int64_t n = 0;
    for (int i = 0; fp8c_program_decision(program, i, &d) == FP8C_OK; i++)
        n += d.fp8 ? 0 : d.count;
    return n;
}

json_t *f8_record_plan(const fp8c_program *program)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak = {0};
    fp8c_remat remat = {.struct_size = sizeof remat};
    const int micro_step = fp8c_program_function(program, "micro_step");
    fp8c_program_info(program, &info);
    fp8c_program_peak(program, micro_step, &peak);
    fp8c_program_remat(program, 0, 0, &remat);
    const int function = micro_step < 0 ? fp8c_program_function(program, "eval") : micro_step;
    return json_pack("{ss ss sI sI sI sI sI sf sI sI sI sI sI sf so}", "event", "plan", "target",
                     fp8c_program_target(program), "linears", (json_int_t)info.linears,
                     "fp8_gemms_planned", (json_int_t)info.fp8_gemms_planned, "gemms_excluded",
                     (json_int_t)f8_gemms_excluded(program), "distinct_kernels",
                     (json_int_t)info.distinct_kernels, "code_bytes", (json_int_t)info.code_bytes,
                     "compile_seconds", info.compile_seconds, "planned_peak_bytes",
                     (json_int_t)info.planned_bytes, "arena_bytes", (json_int_t)info.arena_bytes,
                     "arena_lower_bound", (json_int_t)info.arena_lower_bound, "activation_bytes",
                     (json_int_t)peak.activation_bytes, "recomputed", (json_int_t)remat.recomputed,
                     "extra_seconds", remat.extra_seconds, "launches",
                     launches(program, function, true));
}

/* ---- the memory of a function ---- */

static json_t *categories(const fp8c_program *program, int function)
{
    json_t *all = json_object();
    fp8c_memory m;
    for (int i = 0; fp8c_program_memory(program, function, i, &m) == FP8C_OK; i++)
        if (json_object_set_new(all, m.category, json_integer(m.bytes))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

bool f8_record_memory(const fp8c_program *program, int function, const char *recipe,
                      int64_t parameters, json_t **record)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak;
    if (fp8c_program_peak(program, function, &peak) != FP8C_OK)
        return false;
    fp8c_program_info(program, &info);
    *record = json_pack(
        "{ss ss ss sI ss ss si si sI sI sI sI sf so so}", "event", "memory", "target",
        fp8c_program_target(program), "recipe", recipe, "parameters", (json_int_t)parameters,
        "function", fp8c_program_function_name(program, function), "step", peak.step, "position",
        (int)peak.position, "positions", (int)peak.positions, "planned_bytes",
        (json_int_t)info.planned_bytes, "arena_bytes", (json_int_t)peak.arena_bytes, "alive_bytes",
        (json_int_t)peak.alive_bytes, "activation_bytes", (json_int_t)peak.activation_bytes,
        "seconds", peak.seconds, "bytes", categories(program, function), "launches",
        f8_launches(program, function));
    return true;
}

bool f8_record_tensor_at(const fp8c_program *program, int function, int index, json_t **record)
{
    fp8c_tensor t;
    if (fp8c_program_tensor(program, function, index, &t) != FP8C_OK)
        return false;
    *record = f8_record_tensor(
        json_pack("{ss}", "function", fp8c_program_function_name(program, function)), &t);
    return true;
}

json_t *f8_record_budget(double share, int64_t planned_bytes, const fp8c_remat *remat,
                         double seconds, double more)
{
    return json_pack(
        "{ss sf sI sI sI sI sI sI sf sf sf}", "event", "budget", "share", share, "planned_bytes",
        (json_int_t)planned_bytes, "arena_bytes", (json_int_t)remat->arena_after, "arena_budget",
        (json_int_t)remat->arena_budget, "activation_bytes", (json_int_t)remat->activations_after,
        "recomputed", (json_int_t)remat->recomputed, "fp8_gemms_recomputed",
        (json_int_t)remat->fp8_gemms, "seconds", seconds + more, "extra_seconds",
        remat->extra_seconds, "extra", more / seconds);
}

/* ---- kernels, and files ---- */

json_t *f8_record_kernels(const fp8c_program *program, int64_t launches)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(program, &info);
    return json_pack(
        "{ss ss sI sI sI sf}", "event", "kernels", "target", fp8c_program_target(program),
        "distinct_kernels", (json_int_t)info.distinct_kernels, "launches", (json_int_t)launches,
        "code_bytes", (json_int_t)info.code_bytes, "compile_seconds", info.compile_seconds);
}

json_t *f8_record_function(const fp8c_program *program, int function)
{
    fp8c_step s;
    fp8c_peak peak = {.step = ""};
    json_t *gemms = json_object();
    int steps = 0;
    for (; fp8c_program_step(program, function, steps, &s) == FP8C_OK; steps++) {
        const char *how = s.algorithm ? s.algorithm : "?";
        if (!strcmp(s.kind, "gemm"))
            json_object_set_new(gemms, how,
                                json_integer(json_integer_value(json_object_get(gemms, how)) + 1));
    }
    fp8c_program_peak(program, function, &peak);
    return json_pack(
        "{ss ss ss si sI sI so}", "event", "function", "target", fp8c_program_target(program),
        "name", fp8c_program_function_name(program, function), "steps", steps, "arena_bytes",
        (json_int_t)peak.arena_bytes, "peak_bytes", (json_int_t)peak.alive_bytes, "gemms", gemms);
}

static json_t *values(const fp8c_program *program)
{
    int64_t value[FP8C_MAX_BOUNDS];
    fp8c_program_dim dim;
    json_t *sets = json_array();
    for (int i = 0; fp8c_program_values(program, i, value) == FP8C_OK; i++) {
        json_t *set = json_object();
        for (int k = 0; fp8c_program_dims(program, k, &dim) == FP8C_OK; k++)
            json_object_set_new(set, dim.name, json_integer(value[k]));
        json_array_append_new(sets, set);
    }
    return sets;
}

json_t *f8_record_target(const fp8c_program *program, const fp8c_file_info *target)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(program, &info);
    return json_pack("{ss ss ss ss si so sI sI sI sI sI}", "event", "target", "target",
                     target->target, "missing", target->missing, "dims", target->dims, "variants",
                     (int)target->variants, "values", values(program), "kernels",
                     (json_int_t)info.distinct_kernels, "code_bytes", (json_int_t)info.code_bytes,
                     "planned_bytes", (json_int_t)info.planned_bytes, "linears",
                     (json_int_t)info.linears, "fp8_gemms", (json_int_t)info.fp8_gemms_planned);
}
