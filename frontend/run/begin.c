/* The first files of a run. */
#include "frontend/run/run.h"

f8_status f8_run_begin(f8_run *r, fp8c_program *program, const char *text, const char *decisions,
                       const char *plan, json_t *info, const f8_run_position *at, f8_diag *diag)
{
    r->info = json_pack("{ss si}", "format", f8_run_format, "version", (int)F8_RUN_VERSION);
    const bool whole = r->info && info && !json_object_update(r->info, info);
    json_decref(info);
    if (!whole)
        return f8_file_fail(diag, F8_ERR_MEMORY, r->folder, "out of memory");
    F8_TRY(f8_run_put(r, "module.f8", text, diag));
    F8_TRY(f8_run_put(r, "decisions.jsonl", decisions, diag));
    if (*plan)
        F8_TRY(f8_run_put(r, "plan.json", plan, diag));
    F8_TRY(f8_run_put(r, "steps.jsonl", "", diag));
    F8_TRY(f8_run_continue(r, 0, NULL, NULL, diag));
    F8_TRY(f8_run_save(r, program, at, diag));
    F8_TRY(f8_run_put_info(r, diag));
    r->unfinished = false;
    return F8_OK;
}
