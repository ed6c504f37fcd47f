/* Records of a program's steps: the data that they exchange, the time that they take. See
 * records.h. */
#include <string.h>

#include "frontend/program.h"
#include "frontend/records/records.h"

json_t *f8_record_collective(const fp8c_program *program, int function, int index,
                             const fp8c_step *s)
{
    const fp8c_collective *c = &s->collective;
    static const char *const computes[] = {"kernel", "gemm", "attention", "copy"};
    fp8c_step other;
    json_t *beside = json_array();
    for (int i = index + 1;
         i < c->wait && fp8c_program_step(program, function, i, &other) == FP8C_OK; i++)
        for (int k = 0; k < 4; k++)
            if (!strcmp(other.kind, computes[k]))
                json_array_append_new(beside,
                                      json_pack("{ss ss}", "kind", other.kind, "name", other.name));
    return json_pack("{ss ss si ss ss ss si sI sI so so}", "event", "collective", "function",
                     fp8c_program_function_name(program, function), "step", index, "op", c->op,
                     "name", s->name, "dtype", fp8c_name(FP8C_NAME_DTYPE, (int)c->dtype), "ranks",
                     (int)c->ranks, "bytes", (json_int_t)c->bytes, "bytes_sent",
                     (json_int_t)(c->bytes * (c->ranks - 1)), "wait",
                     c->wait ? json_integer(c->wait) : json_null(), "beside", beside);
}

double f8_step_drop_first(const fp8c_program *p, int function, int index, fp8c_step *s, double runs)
{
    const f8_instance *i = &p->now->instance;
    double gap = 0;
    if (!(runs > 1) || !i->kind || !i->kind->first_seconds)
        return runs;
    s->seconds -= i->kind->first_seconds(i, (uint32_t)function, (uint32_t)index, &gap);
    s->gap -= gap;
    return runs - 1;
}

double f8_step_mean(const fp8c_program *p, int function, int index, double runs)
{
    fp8c_step s;
    if (fp8c_program_step(p, function, index, &s) != FP8C_OK)
        return 0;
    const double counted = f8_step_drop_first(p, function, index, &s, runs);
    return s.seconds / counted;
}

json_t *f8_record_profile(const fp8c_program *program, int function, int index, double runs)
{
    fp8c_step s;
    if (fp8c_program_step(program, function, index, &s) != FP8C_OK)
        return NULL;
    json_t *record =
        json_pack("{ss ss ss ss sI sf sI sI ss?}", "event", "profile", "function",
                  fp8c_program_function_name(program, function), "kind", s.kind, "name", s.name,
                  "runs", (json_int_t)runs, "seconds", f8_step_mean(program, function, index, runs),
                  "bytes_read", (json_int_t)s.bytes_read, "bytes_written",
                  (json_int_t)s.bytes_written, "algorithm", s.algorithm);
    if (s.collective.goes_on)
        json_object_set_new(record, "queued", json_real(s.collective.queued / runs));
    return record;
}

json_t *f8_records_profile(const fp8c_program *program, f8_profile_runs runs, const void *user)
{
    fp8c_step s;
    json_t *all = json_array();
    for (int f = 0; fp8c_program_function_name(program, f); f++)
        for (int i = 0; fp8c_program_step(program, f, i, &s) == FP8C_OK; i++)
            if (s.seconds > 0 &&
                json_array_append_new(all, f8_record_profile(program, f, i, runs(user, f)))) {
                json_decref(all);
                return NULL;
            }
    return all;
}
