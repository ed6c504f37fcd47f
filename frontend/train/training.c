/* A training, from its program to its last checkpoint: see training.h. loop.c has a step. */
#include "frontend/train/training.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/records/records.h"
#include "frontend/run/number.h"
#include "frontend/train/calibrate.h"
#include "frontend/train/loop.h"
#include "frontend/train/weights.h"
#include "ir/base/clock.h"

/* ---- the program ---- */

static bool find_functions(f8_training *r)
{
    static const char *const needed[] = {"micro_step", "update", "eval"};
    int *const index[] = {&r->micro_step, &r->update, &r->eval};
    for (int i = 0; i < 3; i++) {
        *index[i] = fp8c_program_function(r->program, needed[i]);
        if (*index[i] < 0)
            return f8_train_fail(r->t, F8_ERR_INPUT, "%s%serror: the module has no '%s'%s",
                                 r->t->file ? r->t->file : "", r->t->file ? ": " : "", needed[i],
                                 i == 1 ? ": it declares no optimizer" : "");
    }
    return true;
}

/* Whether all ranks have the same facts. Takes over the reference. */
static bool agree(f8_training *r, const char *what, json_t *facts)
{
    char *text = facts ? json_dumps(facts, JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    const bool ok = text ? f8_train_agree(r->t, what, text) : f8_train_no_memory(r->t);
    free(text);
    json_decref(facts);
    return ok;
}

/* Whether all ranks train on the same data, as often and from the same seeds and weights. */
static bool agree_data(f8_training *r)
{
    return !r->t->ranks || (agree(r, "the data", f8_data_facts(r->data)) &&
                            agree(r, "the content of --weights", f8_train_weights_facts(r->t, false)));
}

/* Whether timing each step of the plan costs next to nothing: on a CPU it is two looks at a clock.
 * A GPU would lose its graphs. */
static bool times_for_nothing(const f8_train_options *o)
{
    return !o->target || !strncmp(o->target, "cpu", 3);
}

f8_status f8_training_check(const f8_train_options *o, f8_diag *diag)
{
    if (o->fingerprint_every && o->target && !strcmp(o->target, "reference"))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "--fingerprint-every is of the steps of a plan, and --target reference has "
                       "none");
    F8_TRY(f8_train_weights_check(o, diag));
    F8_TRY(f8_watch_check(o, diag));
    return f8_alarms_check(o, diag);
}

/* Measures for recipe auto. *kept, which the caller destroys: what the compile needs of it. With a
 * folder that is nothing, as the module has the rules then. */
static bool measure(f8_training *r, fp8c_module *module, const fp8c_compile_options *options,
                    bool (*measured)(void *user, const fp8c_calibration *calibration), void *user,
                    fp8c_calibration **kept)
{
    *kept = f8_train_calibrate(r->t, r->ctx, module, options, r->data);
    if (!*kept || (measured && !measured(user, *kept)))
        return false;
    if (!r->folder->path)
        return true;
    const bool ok =
        f8_train_take_rules(r->t, r->ctx, module, *kept) && f8_folder_module(r->folder, module);
    fp8c_calibration_destroy(*kept);
    *kept = NULL;
    return ok;
}

bool f8_training_open(f8_training *r, fp8c_module *module, const char *recipe,
                      bool (*measured)(void *user, const fp8c_calibration *calibration), void *user)
{
    const f8_train_options *o = r->t->options;
    const fp8c_module_info info = f8_module_info(module);
    fp8c_compile_options options = f8_train_compile_options(o, recipe, info.needs_steps);
    fp8c_calibration *calibration = NULL;
    f8_diag diag = {0};
    options.comm = r->t->ranks ? &r->t->ranks->comm : NULL;
    r->recipe = recipe;
    r->accumulate = info.accumulate;
    bool ok = !f8_is_auto(recipe) || r->folder->resumed || /* the module has the rules */
              measure(r, module, &options, measured, user, &calibration);
    options.profile |= r->folder->path && times_for_nothing(o);
    options.witness = r->folder->path && o->fingerprint_every;
    options.calibration = calibration;
    ok = ok && f8_train_ok(r->t, r->ctx, fp8c_compile(module, &options, &r->program));
    fp8c_calibration_destroy(calibration);
    if (!ok || !find_functions(r))
        return false;
    f8_watch_begin(&r->watched, r->t, r->program, r->micro_step);
    return f8_train_done(r->t, f8_data_fit(r->data, module, r->program, r->micro_step, &diag),
                         &diag) &&
           agree_data(r);
}

void f8_training_close(f8_training *r)
{
    fp8c_program_destroy(r->program);
    r->program = NULL;
}

/* ---- a seed ---- */

/* What all seeds of a recipe share. */
static void describe(f8_training *r, f8_train_result *out)
{
    f8_format(out->target, sizeof out->target, "%s", fp8c_program_target(r->program));
    out->device.struct_size = sizeof out->device;
    fp8c_program_device(r->program, &out->device); /* fails if there is no device */
    out->remat.struct_size = sizeof out->remat;
    fp8c_program_remat(r->program, 0, 0, &out->remat);
    fp8c_program_peak(r->program, r->micro_step, &out->peak);
    out->fp8_planned = fp8c_program_fp8_gemms(r->program, r->micro_step);
}

/* Takes the record of a step that was trained before the run went on. */
static void replay(void *training, const json_t *record)
{
    f8_training *r = training;
    const f8_train_options *o = r->t->options;
    f8_alarms_replay(&r->alarms, record);
    if (strcmp(json_string_value(json_object_get(record, "event")), "step"))
        return;
    if (json_integer_value(json_object_get(record, "step")) > o->steps - f8_training_tail(o))
        r->tail_sum += f8_of_hex(record, "loss_hex");
    r->out->skipped += json_is_true(json_object_get(record, "skipped"));
}

static bool tell_folder(f8_training *r)
{
    f8_diag diag = {0};
    return !r->t->ranks ||
           f8_train_ranks_done(r->t, f8_peers_folder(r->t->ranks->peers, r->folder->path, &diag),
                               &diag);
}

/* A run that goes on has its values in its folder. */
static bool begin_values(f8_training *r, uint64_t seed)
{
    return r->folder->resumed ? f8_train_ok(r->t, r->ctx, fp8c_program_initialize(r->program, seed))
                              : f8_train_initialize(r->t, r->ctx, r->program, r->recipe, seed);
}

bool f8_training_begin(f8_training *r, uint64_t seed, f8_train_result *out)
{
    f8_train *t = r->t;
    const f8_train_options *o = t->options;
    r->out = out;
    out->recipe = r->recipe;
    out->seed = seed;
    r->tail_sum = 0;
    r->evaluated = 0;
    r->failed = true; /* until all of this has succeeded */
    describe(r, out);
    if (!begin_values(r, seed) || !f8_alarms_begin(&r->alarms, t, r->ctx, r->program) ||
        !f8_folder_start(r->folder, r->ctx, r->program, r->data, replay, r) || !tell_folder(r))
        return false;
    out->saved = r->folder->path != NULL;
    out->done = r->begin = r->folder->path ? r->folder->at.step : 0;
    r->end = o->stop_at && o->stop_at < o->steps ? o->stop_at : o->steps;
    f8_device_health_begin_of(&r->health, r->ctx, r->program, o->device);
    r->stops = f8_train_stops(t, NULL);
    r->start = f8_seconds_now();
    r->failed =
        r->begin == r->end && !r->stops && !f8_training_finish(r) && t->failure != F8_ERR_CANCELLED;
    return !r->failed;
}

bool f8_training_goes_on(const f8_training *r)
{
    return !r->failed && !r->stops && r->out->done < r->end;
}

bool f8_training_end(f8_training *r)
{
    f8_training_tell_health(r, true); /* after a failure above all */
    f8_device_health_end(&r->health);
    bool ok = !r->failed;
    if (r->alarms.stopped) {
        r->left = -1;
        if (r->folder->path)
            f8_alarms_stop(&r->alarms, r->folder, &r->left);
        if (r->t->ranks)
            r->t->ranks->common = true; /* rank 0 has said why */
        ok = false;
    }
    f8_alarms_end(&r->alarms);
    return ok && f8_folder_save(r->folder, r->program, r->out->done,
                                (uint64_t)(r->out->done * r->accumulate));
}

/* ---- the time of each step of the plan ---- */

static int64_t count_of(const f8_training *r, int function)
{
    int64_t runs = 0;
    for (int i = 0; i < r->n_ran; i++)
        runs += r->ran[i].function == function ? r->ran[i].runs : 0;
    return runs;
}

/* Those that are not counted ran once. */
double f8_training_runs(const void *training, int function)
{
    const int64_t runs = count_of(training, function);
    return runs > 0 ? (double)runs : 1;
}

double f8_training_steps(const f8_training *r)
{
    return (double)count_of(r, r->update);
}

bool f8_training_put_profile(f8_training *r)
{
    if (!r->folder->path || !count_of(r, r->update))
        return true;
    char *text = f8_record_lines(f8_records_profile(r->program, f8_training_runs, r));
    const bool ok =
        text ? !*text || f8_folder_put(r->folder, "profile.jsonl", text) : f8_train_no_memory(r->t);
    free(text);
    return ok;
}
