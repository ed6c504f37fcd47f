/* An optimizer step of a training and what follows it: see training.h. */
#include "frontend/train/loop.h"

#include <math.h>
#include <string.h>

#include "frontend/records/records.h"
#include "frontend/run/number.h"
#include "frontend/train/fingerprint.h"
#include "ir/base/clock.h"

/* The defaults of --check-ranks. A hash takes 8 GB a second; GPUs have shorter
 * steps, and their variables are copied to the host first. */
enum { CHECK = 100, CHECK_ON_GPUS = 1000 };

/* ---- functions ---- */

/* The scalar of that name that `update` gave last. */
static double of_update(const f8_training *r, const char *name)
{
    const float *value = f8_data_buffer(r->program, r->update, FP8C_OUTPUT, name);
    return value ? (double)*value : NAN;
}

/* Counts runs of a function of the plan. */
static void count(f8_training *r, int function, int64_t runs)
{
    int i = 0;
    while (i < r->n_ran && r->ran[i].function != function)
        i++;
    if (i == F8_TRAINING_RAN)
        return;
    r->n_ran = i < r->n_ran ? r->n_ran : i + 1;
    r->ran[i].function = function;
    r->ran[i].runs += runs;
}

static bool wants_fingerprint(const f8_training *r, int64_t step)
{
    const int64_t every = r->t->options->fingerprint_every;
    return r->folder->path && every && step % every == 0;
}

/* Runs a function of step `step`, from 1. With a fingerprint in the run's folder if the options ask
 * for one. */
static bool run_form(f8_training *r, int function, int64_t step, int64_t micro_step)
{
    f8_fingerprint f = {0};
    if (!wants_fingerprint(r, step))
        return f8_train_ok(r->t, r->ctx, fp8c_program_run(r->program, function));
    if (function == r->update)
        f8_fingerprint_variables(&f, r->program);
    const char *name = fp8c_program_function_name(r->program, function);
    const bool ok =
        f8_train_ok(r->t, r->ctx,
                    fp8c_program_run_witnessed(r->program, function, 0, f8_fingerprint_add, &f)) &&
        f8_folder_record(r->folder, f8_fingerprint_record(&f, name, step, micro_step));
    f8_fingerprint_free(&f);
    return ok;
}

static bool run_function(f8_training *r, int function, int64_t step, int64_t micro_step)
{
    int form;
    if (!f8_train_ok(r->t, r->ctx, fp8c_program_form(r->program, function, &form)) ||
        !run_form(r, function, step, micro_step))
        return false;
    count(r, form, 1);
    if (function != r->update)
        r->out->fp8_planned = fp8c_program_fp8_gemms(r->program, form);
    return true;
}

static bool fill(f8_training *r, int function, int64_t batch)
{
    f8_diag diag = {0};
    return f8_train_done(
        r->t, f8_data_fill(r->data, r->program, function, r->out->seed, (uint64_t)batch, &diag),
        &diag);
}

/* Micro-step `a` of step `step`, both from 0. */
static bool micro_step(f8_training *r, int64_t step, int64_t a, f8_train_step *f)
{
    const bool last = a + 1 == r->accumulate;
    const int function = last ? f8_watch_function(&r->watched, step + 1) : r->micro_step;
    const float *value = f8_data_buffer(r->program, function, FP8C_OUTPUT, "loss");
    if (!fill(r, function, step * r->accumulate + a))
        return false;
    f8_peers_step(r->t->ranks ? r->t->ranks->peers : NULL, step + 1, a + 1);
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    fp8c_program_info(r->program, &before);
    if (!run_function(r, function, step + 1, a + 1))
        return false;
    fp8c_program_info(r->program, &after);
    r->out->fp8_gemms = after.fp8_gemms_executed - before.fp8_gemms_executed;
    r->function = function;
    if (!f8_alarms_micro_step(&r->alarms, function, (double)*value))
        return false;
    f->loss += (double)*value / (double)r->accumulate;
    return f8_watch_record(&r->watched, function, r->recipe, r->out->seed, step + 1, r->folder);
}

/* One optimizer step: `accumulate` micro-steps each on a batch, then update. */
static bool train_step(f8_training *r, int64_t step, f8_train_step *f)
{
    *f = (f8_train_step){.step = step + 1};
    for (int64_t a = 0; a < r->accumulate; a++)
        if (!micro_step(r, step, a, f))
            return false;
    if (!run_function(r, r->update, step + 1, 0))
        return false;
    f->grad_norm = of_update(r, "grad_norm");
    f->lr = of_update(r, "lr");
    f->skipped = of_update(r, "skipped") == 1;
    return true;
}

/* Judges a step (from 0). Its gradients are gone: where their norm is not finite, its micro-steps
 * are run once more, and leave no trace. */
static bool judge(f8_training *r, int64_t step, const f8_train_step *f)
{
    f8_alarms *a = &r->alarms;
    bool found = !f8_alarms_want_again(a, f->loss, f->grad_norm);
    for (int64_t k = 0; k < r->accumulate && !found; k++) {
        if (!fill(r, r->micro_step, step * r->accumulate + k))
            return false;
        found = f8_alarms_again(a, r->micro_step);
    }
    return f8_alarms_judge(a, step + 1, r->function, f->loss, f->grad_norm);
}

/* ---- records ---- */

int64_t f8_training_tail(const f8_train_options *o)
{
    return f8_run_tail(o->steps);
}

/* The rate's name in records. */
static const char *rate_name(const f8_training *r)
{
    return r->data->by_rows ? "rows_per_second" : "tokens_per_second";
}

static json_t *summary(f8_training *r)
{
    const f8_train_result *o = r->out;
    return json_pack(
        "{ss ss ss ss? sI so so so sf sI sI sI sI sI sf sI sI sf sI sI}", "event", "summary",
        "recipe", o->recipe, "target", o->target, "device", *o->device.name ? o->device.name : NULL,
        "steps", (json_int_t)r->t->options->steps, "final_loss", f8_json_number(o->final_loss),
        "heldout_loss", f8_json_number(o->heldout_loss), "unigram_entropy",
        f8_json_number(f8_data_unigram(r->data)), "compile_seconds", o->info.compile_seconds,
        "peak_bytes", (json_int_t)o->info.peak_bytes, "planned_peak_bytes",
        (json_int_t)o->info.planned_bytes, "arena_bytes", (json_int_t)o->info.arena_bytes,
        "activation_bytes", (json_int_t)o->peak.activation_bytes, "recomputed",
        (json_int_t)o->remat.recomputed, "extra_seconds", o->remat.extra_seconds,
        "fp8_gemms_planned", (json_int_t)o->fp8_planned, "fp8_gemms_executed",
        (json_int_t)o->fp8_gemms, rate_name(r), o->items_per_second, "seed", (json_int_t)o->seed,
        "skipped", (json_int_t)o->skipped);
}

static json_t *step_record(const f8_training *r, const f8_train_step *f, double rate)
{
    return json_pack("{ss ss sI sI so so so sb sf}", "event", "step", "recipe", r->out->recipe,
                     "seed", (json_int_t)r->out->seed, "step", (json_int_t)f->step, "loss",
                     f8_json_number(f->loss), "grad_norm", f8_json_number(f->grad_norm), "lr",
                     f8_json_number(f->lr), "skipped", (int)f->skipped, rate_name(r), rate);
}

/* The record of the run's folder has all bits, and after some steps a checksum. */
static bool record_in_folder(f8_training *r, const f8_train_step *f, double rate)
{
    char loss[40], norm[40];
    const bool last = f->step == r->end || r->stops;
    if (!r->folder->path)
        return true;
    json_t *all = step_record(r, f, rate);
    if (all)
        json_object_update_new(all, json_pack("{ss ss}", "loss_hex", f8_hex(f->loss, loss),
                                              "grad_norm_hex", f8_hex(f->grad_norm, norm)));
    if (all && f8_folder_sums(r->folder, f->step, last))
        json_object_set_new(all, "checksum", f8_folder_checksum(r->folder, r->program));
    return f8_folder_record(r->folder, all);
}

/* Tells a record of the device's health, and of which step it is. */
static bool tell_health(f8_training *r, json_t *record)
{
    json_t *at = json_pack("{ss sI sI}", "recipe", r->out->recipe, "seed", (json_int_t)r->out->seed,
                           "step", (json_int_t)r->out->done);
    json_object_update_missing(record, at);
    json_decref(at);
    return f8_folder_both(r->folder, record);
}

bool f8_training_tell_health(f8_training *r, bool last)
{
    fp8c_health_event e;
    f8_device_health *h = &r->health;
    bool ok = true;
    if (last && h->health)
        fp8c_health_report(h->health, 1, NULL);
    while (f8_device_health_next(h, &e)) {
        f8_train_say(r->t, "fp8c: warning: %s: %s", h->device, e.text);
        ok &= tell_health(r, f8_device_health_record(h, &e));
    }
    json_t *summary = last ? f8_device_health_summary(h) : NULL;
    return (!summary || tell_health(r, summary)) && ok;
}

/* Tells of a step that took so many seconds. */
static bool report(f8_training *r, const f8_train_step *f, double seconds)
{
    const double rate = (double)(r->accumulate * f8_data_items(r->data)) / seconds;
    if (!f8_train_record(r->t, step_record(r, f, rate)) || !record_in_folder(r, f, rate))
        return false;
    return f8_training_tell_health(r, false) &&
           f8_alarms_report(&r->alarms, f->step, r->out->recipe, r->out->seed, f->loss, r->folder);
}

/* ---- after a step ---- */

/* The held-out loss after `step` steps, and a record if --eval-every asks for it. */
static bool evaluate(f8_training *r, int64_t step)
{
    f8_train_result *o = r->out;
    const int64_t every = r->t->options->eval_every;
    int64_t batches = 0;
    f8_diag diag = {0};
    const fp8c_status status =
        f8_data_held_out(r->data, r->program, r->eval, &o->heldout_loss, &batches, &diag);
    count(r, r->eval, batches);
    if (diag.status != F8_OK)
        return f8_train_done(r->t, diag.status, &diag);
    if (status == FP8C_ERR_CANCELLED)
        return r->stops = true;
    if (!f8_train_ok(r->t, r->ctx, status))
        return false;
    r->evaluated = step;
    if (!every || step % every)
        return true;
    json_t *what = json_pack("{ss ss sI sI so sI}", "event", "eval", "recipe", o->recipe, "seed",
                             (json_int_t)o->seed, "step", (json_int_t)step, "loss",
                             f8_json_number(o->heldout_loss), "batches", (json_int_t)batches);
    /* the folder has it if the run has gone on there */
    return step > r->begin ? f8_folder_both(r->folder, what) : f8_train_record(r->t, what);
}

/* Compares what all ranks have, where --check-ranks asks for it, or the values are to be saved. If
 * they differ, all ranks have the message. */
static bool check_ranks(f8_training *r, int64_t step)
{
    const f8_train_options *o = r->t->options;
    const int64_t usual = f8_train_on_gpus(o) ? CHECK_ON_GPUS : CHECK,
                  every = o->check_ranks ? o->check_ranks : usual;
    const bool saves = step == r->end || r->stops || f8_folder_saves(r->folder, step, false);
    if (!r->t->ranks || every <= 0 || !(saves || step % every == 0))
        return true;
    const fp8c_status status = fp8c_program_check_ranks(r->program);
    r->t->ranks->common |= status == FP8C_ERR_IO;
    return f8_train_ok(r->t, r->ctx, status);
}

/* The held-out loss and a checkpoint, where they are due. They move r->start on. */
static bool after_step(f8_training *r, int64_t step)
{
    const double begin = f8_seconds_now();
    const f8_train_options *o = r->t->options;
    const bool saves = step < r->end && f8_folder_saves(r->folder, step, false),
               evaluates = o->eval_every && step % o->eval_every == 0 && step < o->steps;
    if (evaluates && !evaluate(r, step))
        return false;
    if (saves && !r->stops &&
        !f8_folder_save(r->folder, r->program, step, (uint64_t)(step * r->accumulate)))
        return false;
    if ((evaluates || saves) && !r->stops) /* it took long */
        r->stops = f8_train_stops(r->t, NULL);
    r->start += f8_seconds_now() - begin;
    return true;
}

bool f8_training_finish(f8_training *r)
{
    const f8_train_options *o = r->t->options;
    f8_train_result *out = r->out;
    if (r->end < o->steps)
        return true;
    const int64_t items = r->accumulate * f8_data_items(r->data), n = r->end - r->begin;
    out->final_loss = r->tail_sum / (double)f8_training_tail(o);
    out->items_per_second = n > 0 ? (double)(items * n) / (f8_seconds_now() - r->start) : 0;
    if (!evaluate(r, o->steps))
        return false;
    out->info.struct_size = sizeof out->info;
    fp8c_program_info(r->program, &out->info);
    return r->stops || f8_train_record(r->t, summary(r));
}

/* A step whose number is r->out->done. */
static bool one_step(f8_training *r, f8_train_step *f)
{
    const int64_t step = r->out->done;
    const double begin = f8_seconds_now();
    if (!train_step(r, step, f))
        return false;
    const double end = f8_seconds_now();
    if (!judge(r, step, f))
        return false;
    r->stops = f8_train_stops(r->t, &r->alarms.any); /* before what a last step does */
    if (!check_ranks(r, step + 1))
        return false;
    r->out->done = step + 1;
    if (step >= r->t->options->steps - f8_training_tail(r->t->options))
        r->tail_sum += f->loss;
    r->out->skipped += f->skipped;
    f->seconds = end - r->start;
    return report(r, f, end - begin) && !r->alarms.stopped && after_step(r, step + 1);
}

bool f8_training_step(f8_training *r, f8_train_step *f)
{
    const bool ok = one_step(r, f) && (r->out->done < r->end || r->stops || f8_training_finish(r));
    f->evaluated = r->evaluated == f->step;
    r->failed = !ok && !r->alarms.stopped && r->t->failure != F8_ERR_CANCELLED;
    r->stops |= !ok;
    return ok;
}
