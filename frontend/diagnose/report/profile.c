/* Records of the time that steps took: see report.h. */
#include "frontend/fp8c_diagnose.h"
#include "frontend/diagnose/report/report.h"

json_t *f8_report_profile(const fp8c_program *program, int function, int index, double runs)
{
    fp8c_step s;
    if (fp8c_program_step(program, function, index, &s) != FP8C_OK)
        return NULL;
    json_t *record = json_pack(
        "{ss ss ss ss sI sf sI sI ss?}", "event", "profile", "function",
        fp8c_program_function_name(program, function), "kind", s.kind, "name", s.name, "runs",
        (json_int_t)runs, "seconds", s.seconds / runs, "bytes_read", (json_int_t)s.bytes_read,
        "bytes_written", (json_int_t)s.bytes_written, "algorithm", s.algorithm);
    if (s.collective.goes_on)
        json_object_set_new(record, "queued", json_real(s.collective.queued / runs));
    return record;
}
