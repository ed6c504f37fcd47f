/* Going on with a run: its options, its checkpoint, what has changed since. See folder.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/train/calibrate.h"
#include "frontend/train/folder.h"
#include "ir/base/format.h"

/* ---- options ---- */

/* Says that an option differs from what the run has. */
static bool refuse(f8_folder *f, const char *name, const json_t *now, const json_t *before)
{
    char *here = json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT),
         *there = json_dumps(before, JSON_ENCODE_ANY | JSON_COMPACT);
    f8_train_fail(f->t, F8_ERR_INPUT,
                  "%s: error: %s is %s, and the run has %s: it can't go on with another", f->path,
                  name, here ? here : "?", there ? there : "?");
    free(here);
    free(there);
    return false;
}

/* Gives the options one of the run, or checks the one that was given. */
static bool merge(f8_folder *f, int at, const json_t *all)
{
    const f8_train_option *row = &f8_train_option_rows[at];
    f8_train_options *o = f->t->options;
    const json_t *before = json_object_get(all, row->name);
    if (!before)
        return f8_train_fail(f->t, F8_ERR_INPUT, "%s: error: its options lack %s", f->run.path,
                             row->name);
    if (!o->given[at])
        return json_is_null(before) || f8_train_option_set(o, at, before) ||
               f8_train_fail(f->t, F8_ERR_INPUT, "%s: error: its option %s has no such value",
                             f->run.path, row->name);
    json_t *now = f8_train_option_json(o, at);
    const bool ok =
        row->goes_on != RUN_KEPT || json_equal(now, before) || refuse(f, row->name, now, before);
    json_decref(now);
    return ok;
}

/* The module is that of the folder unless FILE.f8 is given. module.f8 has the dims and the rules,
 * but its shapes are numbers: ranks, who divide B, need the text as it was given. */
static void take_text(f8_folder *f)
{
    f8_train *t = f->t;
    if (t->file)
        return;
    f8_format(f->file, sizeof f->file, "%s",
              f8_run_path(&f->run, t->ranks ? "source.f8" : "module.f8"));
    t->file = f->file;
    if (!t->ranks)
        t->options->dims.n = t->options->rules.n = 0;
}

/* Whether a run goes on from recipe auto to another or from another to auto, or under auto with
 * ranks, which it can't. A run under auto has a rule for each GEMM, and rules win. They are in
 * module.f8 alone, which ranks do not read. */
static bool keeps_auto(f8_folder *f)
{
    f8_train *t = f->t;
    const char *before = json_string_value(json_object_get(f->run.info, "recipe")),
               *now = t->options->recipe;
    if (t->ranks && f8_is_auto(before) && f8_is_auto(now))
        return f8_train_fail(t, F8_ERR_INPUT,
                             "%s: error: recipe auto has chosen a recipe for each GEMM of this run "
                             "in one process: it can't go on with %d ranks",
                             f->path, f8_train_ranks(t));
    if (f8_is_auto(before) == f8_is_auto(now))
        return true;
    if (f8_is_auto(before))
        return f8_train_fail(
            t, F8_ERR_INPUT,
            "%s: error: recipe auto has chosen a recipe for each GEMM of this run: "
            "it can't go on under %s",
            f->path, now);
    return f8_train_fail(t, F8_ERR_INPUT,
                         "%s: error: the run is under %s: recipe auto would have to measure, which "
                         "it does when a run begins",
                         f->path, before);
}

bool f8_folder_take_options(f8_folder *f)
{
    /* a copy: run.json's own values change as the run goes on */
    const json_t *all = f->options = json_deep_copy(json_object_get(f->run.info, "resolved"));
    for (int at = 0; at < F8_TRAIN_OPTIONS; at++)
        if (f8_train_option_rows[at].goes_on != RUN_OWN && !merge(f, at, all))
            return false;
    f->steps = json_integer_value(json_object_get(all, "--steps"));
    take_text(f);
    return keeps_auto(f);
}

/* ---- going on ---- */

bool f8_folder_fits(f8_folder *f, fp8c_context *ctx, const fp8c_program *program,
                    const f8_data *data)
{
    const json_t *info = f->run.info, *before = json_object_get(info, "versions");
    const char *target = json_string_value(json_object_get(info, "target")), *name;
    if (!target || strcmp(target, fp8c_program_target(program)))
        return f8_train_fail(f->t, F8_ERR_INPUT,
                             "%s: error: the run was compiled for %s, and this machine would "
                             "compile for %s",
                             f->path, target ? target : "?", fp8c_program_target(program));
    json_t *facts = f8_data_facts(data), *now = f8_folder_versions(f, ctx, program), *version;
    bool ok = facts && now;
    const json_t *had = json_object_get(info, "data");
    const bool old = json_object_size(had) && !json_object_get(had, "hash");
    if (ok && !json_equal(facts, had))
        ok = refuse(f, old ? "the data (an older fp8c kept no hash of the data)" : "the data",
                    facts, had);
    json_object_foreach (now, name, version) {
        const char *other = json_string_value(json_object_get(before, name));
        if (ok && (!other || strcmp(other, json_string_value(version))))
            f8_train_say(f->t,
                         "fp8c: warning: %s is %s, and was %s when the run began: its bits may "
                         "differ",
                         name, json_string_value(version), other ? other : "not there");
    }
    json_decref(facts);
    json_decref(now);
    return ok;
}

/* ---- the checkpoint ---- */

/* What a change of recipe does to the states, line by line. */
typedef struct dropped {
    f8_folder *f;
    FILE *to;
} dropped;

static void say_skipped(void *user, const f8_diag *why)
{
    const dropped *d = user;
    f8_train_say(d->f->t, "%s: warning: passed over: %s", why->file ? why->file : "", why->text);
}

/* A state that the checkpoint has and the program has not, or the other way round. */
static void note_state(void *user, const fp8c_load_item *item)
{
    const dropped *d = user;
    char shown[512], line[1024];
    const char *name = item->variable ? item->variable : item->tensor;
    const size_t prefix = strlen(f8_checkpoint_prefix);
    if (item->fate == FP8C_LOAD_TAKEN)
        return;
    if (!strncmp(name, f8_checkpoint_prefix, prefix))
        name += prefix;
    f8_format(line, sizeof line, "\n  %s  %s  %s",
              item->fate == FP8C_LOAD_IGNORED ? "dropped    " : "begun anew ",
              f8_st_shown(name, shown, sizeof shown), item->detail);
    fputs(line, d->to);
}

/* Loads the newest checkpoint. *told: what a change of recipe dropped; the caller frees it. */
static bool load(f8_folder *f, fp8c_program *program, bool *same, char **told)
{
    f8_diag diag = {0};
    size_t n;
    const uint64_t seed = f->t->options->seed;
    dropped d = {f, open_memstream(told, &n)};
    f8_status status =
        d.to ? f8_run_load(&f->run, program, &f->at, same, note_state, say_skipped, &d, &diag)
             : F8_ERR_MEMORY;
    if (!d.to || (fclose(d.to) && status == F8_OK))
        return f8_train_no_memory(f->t);
    if (status == F8_OK && f->at.seed != seed)
        status =
            f8_file_fail(&diag, F8_ERR_INPUT, f->run.path,
                         "it is of seed %" PRIu64 ", and the run's is %" PRIu64, f->at.seed, seed);
    return f8_train_done(f->t, status, &diag);
}

/* ---- what has changed ---- */

static bool check_steps(f8_folder *f)
{
    const f8_train_options *o = f->t->options;
    const int64_t end = o->stop_at && o->stop_at < o->steps ? o->stop_at : o->steps;
    if (f->at.step > end)
        return f8_train_fail(f->t, F8_ERR_INPUT,
                             "%s: error: the run is at step %" PRId64 " already, after %s %" PRId64,
                             f->path, f->at.step, end == o->steps ? "--steps" : "--stop-at", end);
    if (o->steps != f->steps)
        f8_train_say(f->t,
                     "%s: --steps is %" PRId64 ", and was %" PRId64
                     ": the schedule has the new length from step %" PRId64 " on",
                     f->path, o->steps, f->steps, f->at.step + 1);
    return true;
}

/* Whether the plan is another: it has the same bits, and the fingerprints have other values. */
static bool is_planned_anew(const f8_folder *f)
{
    const json_t *all = json_object_get(f->run.info, "resolved");
    bool anew = false;
    for (int at = 0; at < F8_TRAIN_OPTIONS; at++) {
        if (f8_train_option_rows[at].goes_on != RUN_PLANS)
            continue;
        json_t *now = f8_train_option_json(f->t->options, at);
        anew |= !json_equal(now, json_object_get(all, f8_train_option_rows[at].name));
        json_decref(now);
    }
    return anew && json_integer_value(json_object_get(all, "--fingerprint-every")) > 0;
}

/* Whether the steps from now on have other records than they would have had. */
static bool is_changed(const f8_folder *f)
{
    const f8_train_options *o = f->t->options;
    const char *recipe = json_string_value(json_object_get(f->run.info, "recipe"));
    return is_planned_anew(f) || o->steps != f->steps || !recipe || strcmp(recipe, o->recipe) ||
           json_integer_value(json_object_get(f->run.info, "ranks")) != f8_train_ranks(f->t);
}

/* Keeps the options that the run goes on with, and where it did. */
static bool update(f8_folder *f, const fp8c_program *program, bool same)
{
    f8_diag diag = {0};
    const f8_train_options *o = f->t->options;
    const int ranks = f8_train_ranks(f->t);
    json_t *info = f->run.info, *all = json_object_get(info, "resolved");
    json_t *mark = json_pack("{sI ss sI sb}", "step", (json_int_t)f->at.step, "recipe", o->recipe,
                             "ranks", (json_int_t)ranks, "changed", (int)is_changed(f));
    bool ok = !json_array_append_new(json_object_get(info, "resumed"), mark);
    for (int at = 0; at < F8_TRAIN_OPTIONS; at++)
        if (f8_train_option_rows[at].goes_on == RUN_FREE ||
            f8_train_option_rows[at].goes_on == RUN_PLANS)
            ok = ok && !json_object_set_new(all, f8_train_option_rows[at].name,
                                            f8_train_option_json(o, at));
    ok = ok && !json_object_set_new(info, "recipe", json_string(o->recipe)) &&
         !json_object_set_new(info, "ranks", json_integer(ranks));
    if (!ok)
        return f8_train_fail(f->t, F8_ERR_IO, "%s: error: run.json can't be updated", f->path);
    char *decided = same ? NULL : f8_folder_decisions(f, program), *planned = NULL;
    ok = (same || (decided && f8_folder_put(f, "decisions.jsonl", decided))) &&
         (planned = f8_folder_plan(f, program)) && /* --memory may be another */
         (!*planned || f8_folder_put(f, "plan.json", planned));
    free(decided);
    free(planned);
    return ok && f8_train_done(f->t, f8_run_put_info(&f->run, &diag), &diag);
}

/* Waits until every rank has loaded the checkpoint: rank 0 may remove it from then on. */
static bool all_have_loaded(f8_folder *f)
{
    char text[24];
    f8_format(text, sizeof text, "%" PRId64, f->at.step);
    return f8_train_agree(f->t, "the step of the checkpoint", text);
}

/* The losses of another number of ranks have other bits. */
static void note_ranks(f8_folder *f)
{
    const json_t *before = json_object_get(f->run.info, "ranks");
    const int ranks = f8_train_ranks(f->t);
    if (before && json_integer_value(before) != ranks)
        f8_train_say(f->t,
                     "%s: from step %" PRId64 " on with %d rank%s, and with %" JSON_INTEGER_FORMAT
                     " before: gradients are added up in another order",
                     f->path, f->at.step + 1, ranks, ranks == 1 ? "" : "s",
                     json_integer_value(before));
}

bool f8_folder_go_on(f8_folder *f, fp8c_context *ctx, fp8c_program *program, const f8_data *data,
                     f8_folder_each each, void *user)
{
    f8_diag diag = {0};
    char *told = NULL;
    bool same = true;
    bool ok = f8_folder_fits(f, ctx, program, data) && load(f, program, &same, &told) &&
              all_have_loaded(f) && check_steps(f);
    if (f->run.follows) {
        free(told);
        return ok;
    }
    if (ok && !same)
        f8_train_say(
            f->t, "%s: from step %" PRId64 " on under %s; the checkpoint is of another recipe:%s",
            f->path, f->at.step + 1, f->t->options->recipe, told);
    free(told);
    if (ok)
        note_ranks(f);
    return ok &&
           f8_train_done(f->t, f8_run_continue(&f->run, f->at.step, each, user, &diag), &diag) &&
           update(f, program, same);
}
