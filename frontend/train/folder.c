/* The folder of a training run: see folder.h. */
#include "frontend/train/folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/doctor/doctor.h"
#include "frontend/records/records.h"

void f8_folder_close(f8_folder *f)
{
    if (f->path)
        f8_run_close(&f->run);
    json_decref(f->options);
    free(f->text);
    *f = (f8_folder){.run = F8_RUN_CLOSED};
}

bool f8_folder_module(f8_folder *f, const fp8c_module *module)
{
    if (!f->path)
        return true;
    free(f->text);
    f->text = f8_train_text(f->t, module, &f->n_text);
    if (!f->text)
        return false;
    f8_hash_text(f8_hash_bytes(f->text, f->n_text), f->at.module);
    f->parameters = f8_module_info(module).elements;
    const char *before = json_string_value(json_object_get(f->run.info, "module"));
    if (!f->resumed || (before && !strcmp(before, f->at.module)))
        return true;
    return f8_train_fail(f->t, F8_ERR_INPUT,
                         "%s: error: the model is not that of the run: its text has the hash %s, "
                         "and the run's had %s",
                         f->path, f->at.module, before ? before : "none");
}

/* ---- what run.json says ---- */

json_t *f8_folder_versions(f8_folder *f, fp8c_context *ctx, const fp8c_program *program)
{
    fp8c_doctor *doctor;
    fp8c_component component;
    json_t *all = json_pack("{ss}", "fp8c", fp8c_version());
    if (!f8_train_ok(f->t, ctx, f8_doctor_used(ctx, program, &doctor))) {
        json_decref(all);
        return NULL;
    }
    for (int i = 0; fp8c_doctor_component(doctor, i, &component) == FP8C_OK; i++)
        if (component.version)
            json_object_set_new(all, component.name, json_string(component.version));
    fp8c_doctor_destroy(doctor);
    return all;
}

char *f8_folder_decisions(f8_folder *f, const fp8c_program *program)
{
    fp8c_decision d;
    json_t *all = json_array();
    for (int i = 0; fp8c_program_decision(program, i, &d) == FP8C_OK; i++)
        json_array_append_new(all, f8_record_decision(json_object(), &d));
    char *text = f8_record_lines(all);
    if (!text)
        f8_train_no_memory(f->t);
    return text;
}

enum { TENSORS = 64 }; /* of plan.json */

/* As plan --json has it, with its largest tensors. */
char *f8_folder_plan(f8_folder *f, const fp8c_program *program)
{
    const int step = fp8c_program_function(program, "micro_step");
    json_t *memory, *tensor, *tensors = json_array();
    if (!f8_record_memory(program, step, f->t->options->recipe, f->parameters, &memory)) {
        json_decref(tensors);
        return strdup("");
    }
    for (int i = 0; i < TENSORS && f8_record_tensor_at(program, step, i, &tensor); i++)
        json_array_append_new(tensors, tensor);
    json_t *all = json_pack("{so so}", "memory", memory, "tensors", tensors);
    char *text = all ? json_dumps(all, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(all);
    if (!text)
        f8_train_no_memory(f->t);
    return text;
}

/* ---- while it trains ---- */

bool f8_folder_record(f8_folder *f, json_t *record)
{
    f8_diag diag = {0};
    if (f->path && !f->failed)
        f->failed = !f8_train_done(f->t, f8_run_record(&f->run, record, &diag), &diag);
    else
        json_decref(record);
    return !f->failed;
}

bool f8_folder_both(f8_folder *f, json_t *record)
{
    const bool told = f8_train_record(f->t, json_incref(record));
    return f8_folder_record(f, record) && told;
}

bool f8_folder_save(f8_folder *f, fp8c_program *program, int64_t step, uint64_t batch)
{
    f8_diag diag = {0};
    f8_run_position at = f->at;
    if (!f->path || f->failed || f->at.step == step)
        return !f->failed;
    at.step = step;
    at.batch = batch;
    at.recipe = f->t->options->recipe;
    if (f8_train_done(f->t, f8_run_save(&f->run, program, &at, &diag), &diag))
        f->at = at;
    else
        f->failed = true;
    return !f->failed;
}

bool f8_folder_put(f8_folder *f, const char *name, const char *text)
{
    f8_diag diag = {0};
    f->failed |= !f8_train_done(f->t, f8_run_put(&f->run, name, text, &diag), &diag);
    return !f->failed;
}

json_t *f8_folder_checksum(f8_folder *f, fp8c_program *program)
{
    f8_diag diag = {0};
    char text[F8_RUN_HASH];
    if (f8_train_done(f->t, f8_run_checksum(program, text, &diag), &diag))
        return json_string(text);
    f->failed = true;
    return NULL;
}

bool f8_folder_saves(const f8_folder *f, int64_t step, bool last)
{
    const int64_t every = f->t->options->save_every;
    return f->path && (last || (every && step % every == 0));
}

bool f8_folder_sums(const f8_folder *f, int64_t step, bool last)
{
    const int64_t every = f->t->options->checksum_every;
    return every ? f->path && step % every == 0 : f8_folder_saves(f, step, last);
}
