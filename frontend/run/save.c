/* The checkpoints of a run: checkpoint-STEP.safetensors, each whole or not there; and the first
 * files of a run, of which the checkpoint of step 0 is one. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/checkpoint/shared.h"
#include "frontend/program.h"
#include "frontend/run/run.h"

/* ---- which there are ---- */

static const char *path_of(f8_run *r, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint-%" PRId64 ".safetensors", step);
    return f8_run_path(r, name);
}

/* The step of a file's name; -1: it is no checkpoint's. */
static int64_t step_of(const char *name)
{
    char again[64], *end;
    if (strncmp(name, "checkpoint-", 11))
        return -1;
    const int64_t step = strtoll(name + 11, &end, 10);
    snprintf(again, sizeof again, "checkpoint-%" PRId64 ".safetensors", step);
    return step >= 0 && !strcmp(name, again) ? step : -1;
}

/* The newest checkpoint of a step below `below`. *step: -1 if there is none. */
static f8_status newest(f8_run *r, int64_t below, int64_t *step, f8_diag *diag)
{
    DIR *d = opendir(r->folder);
    const struct dirent *e;
    *step = -1;
    if (!d)
        return f8_run_fail(r->folder, diag);
    while ((e = readdir(d))) {
        const int64_t at = step_of(e->d_name);
        if (at > *step && at < below)
            *step = at;
    }
    closedir(d);
    return F8_OK;
}

/* ---- writing ---- */

/* The newest checkpoint from before a step; if there is none, the oldest. *step: -1 if there is no
 * checkpoint. */
static f8_status newest_before(f8_run *r, int64_t before, int64_t *step, f8_diag *diag)
{
    F8_TRY(newest(r, before, step, diag));
    int64_t at = *step < 0 ? INT64_MAX : -1;
    while (at >= 0) {
        F8_TRY(newest(r, at, &at, diag));
        *step = at < 0 ? *step : at;
    }
    return F8_OK;
}

/* Remove checkpoints older than that of `step`, but for the newest keep - 1 and for the one from
 * before `before`, unless that is 0. */
static f8_status remove_old(f8_run *r, int64_t step, int64_t keep, int64_t before, f8_diag *diag)
{
    int64_t at = step, held = -1;
    if (before)
        F8_TRY(newest_before(r, before, &held, diag));
    for (int64_t i = 0; at >= 0; i++) {
        if (i >= keep && at != held && unlink(path_of(r, at)) && errno != ENOENT)
            return f8_run_fail(r->path, diag);
        F8_TRY(newest(r, at, &at, diag));
    }
    return F8_OK;
}

f8_status f8_run_save(f8_run *r, fp8c_program *program, const f8_run_position *at, f8_diag *diag)
{
    f8_run_marks marks;
    F8_TRY(f8_run_mark(program, at->step, at->seed, at->batch, &marks, diag));
    if (r->follows) /* rank 0 asks for what it lacks */
        return f8_shares(program)
                   ? f8_checkpoint_write(program, path_of(r, at->step), NULL, 0, diag)
                   : F8_OK;
    if (fsync(r->steps) && errno != EINVAL)
        return f8_run_fail(f8_run_path(r, "steps.jsonl"), diag);
    f8_st_pair more[F8_RUN_MARKS + 2] = {{"fp8c.recipe", at->recipe}, {"fp8c.module", at->module}};
    memcpy(more + 2, marks.pair, sizeof marks.pair);
    F8_TRY(
        f8_checkpoint_write(program, path_of(r, at->step), more, sizeof more / sizeof *more, diag));
    return remove_old(r, at->step, at->keep, at->before, diag);
}

/* ---- beginning ---- */

f8_status f8_run_begin(f8_run *r, fp8c_program *program, const f8_run_texts *texts, json_t *info,
                       const f8_run_position *at, f8_diag *diag)
{
    r->info = json_pack("{ss si}", "format", f8_run_format, "version", (int)F8_RUN_VERSION);
    const bool whole = r->info && info && !json_object_update(r->info, info);
    json_decref(info);
    if (!whole)
        return f8_file_fail(diag, F8_ERR_MEMORY, r->folder, "out of memory");
    F8_TRY(f8_run_put(r, "module.f8", texts->module, diag));
    F8_TRY(f8_run_put(r, "source.f8", texts->source, diag));
    F8_TRY(f8_run_put(r, "decisions.jsonl", texts->decisions, diag));
    if (*texts->plan)
        F8_TRY(f8_run_put(r, "plan.json", texts->plan, diag));
    F8_TRY(f8_run_put(r, "steps.jsonl", "", diag));
    F8_TRY(f8_run_continue(r, 0, NULL, NULL, diag));
    F8_TRY(f8_run_save(r, program, at, diag));
    F8_TRY(f8_run_put_info(r, diag));
    r->unfinished = false;
    return F8_OK;
}

/* ---- reading ---- */

/* Read what the metadata say. The checkpoint of another model is no damage: *wrong. */
static f8_status read_position(f8_run *r, const f8_weights *files, int64_t step,
                               f8_run_position *at, bool *wrong, f8_diag *diag)
{
    int64_t steps;
    const char *module = f8_weights_metadata(files, "fp8c.module");
    if (!module || !f8_run_read_marks(files, &steps, &at->seed, &at->batch) || steps != step ||
        !f8_weights_metadata(files, "fp8c.recipe"))
        return f8_file_fail(diag, F8_ERR_INPUT, r->path,
                            "it is no checkpoint that a run wrote at step %" PRId64, step);
    at->step = step;
    if (!strcmp(module, at->module))
        return F8_OK;
    *wrong = true;
    return f8_file_fail(diag, F8_ERR_INPUT, r->path, "it is of another model than the run's");
}

/* ---- ranks ---- */

/* What all ranks have. */
static f8_status gather(fp8c_program *program, int64_t mine, int64_t all[F8_MAX_RANKS],
                        f8_diag *diag)
{
    const f8_comm *comm = f8_program_comm(program);
    all[0] = mine;
    return comm ? comm->all_gather(comm->user, &mine, all, sizeof mine, diag) : F8_OK;
}

/* One file system may show a rank an older folder: all take what rank 0 sees. */
static f8_status agree_on(fp8c_program *program, int64_t *step, f8_diag *diag)
{
    int64_t all[F8_MAX_RANKS];
    F8_TRY(gather(program, *step, all, diag));
    *step = all[0];
    return F8_OK;
}

/* A failure here, or that of another rank. */
static f8_status agree_all_read(fp8c_program *program, const char *path, f8_status status,
                                f8_diag *diag)
{
    int64_t all[F8_MAX_RANKS];
    f8_diag lost = {0};
    const f8_comm *comm = f8_program_comm(program);
    const f8_status told = gather(program, status, all, status == F8_OK ? diag : &lost);
    if (status != F8_OK || told != F8_OK)
        return status != F8_OK ? status : told;
    for (int i = 0; comm && i < comm->ranks; i++)
        if (all[i] != F8_OK)
            return f8_file_fail(diag, F8_ERR_INPUT, path, "rank %d can't load it", i);
    return F8_OK;
}

/* ---- loading ---- */

void f8_run_lend_folder(const f8_run *r, fp8c_program *program)
{
    program->aside = r->folder;
}

/* Load one checkpoint. *wrong: its failure is no damage. */
static f8_status load_one(f8_run *r, fp8c_program *program, int64_t step, f8_run_position *at,
                          bool *same, fp8c_load_options *o, bool *wrong, f8_diag *diag)
{
    const char *path = path_of(r, step);
    f8_weights files = {0};
    f8_load l = {.program = program, .weights = &files, .o = o, .exact = true, .diag = diag};
    o->files = &path;
    o->n_files = 1;
    f8_status status = f8_weights_open(&files, o, &program->ctx->allocator, diag);
    if (status == F8_OK)
        status = read_position(r, &files, step, at, wrong, diag);
    if (status == F8_OK) {
        *same = !strcmp(f8_weights_metadata(&files, "fp8c.recipe"), at->recipe);
        l.states = *same ? F8_LOAD_ALL_STATES : F8_LOAD_FITTING_STATES;
        if (*same)
            o->report = NULL;
        else /* what the program has then is not all that the checksum is of */
            status = f8_run_check_file(&files, r->path, diag);
    }
    if (status == F8_OK) {
        status = f8_load_match(&l);
        /* a byte of the header may be damaged, and give a variable another name */
        *wrong |= status != F8_OK && f8_run_check_file(&files, r->path, &(f8_diag){0}) == F8_OK;
        if (status == F8_OK)
            status = f8_load_values(&l);
    }
    status = agree_all_read(program, r->path, status, diag);
    if (status == F8_OK && *same)
        status = f8_run_check_sum(program, &files, r->path, diag);
    if (diag->file && status != F8_OK)
        diag->file = r->path; /* it may be the files' own */
    f8_load_end(&l);
    f8_weights_close(&files);
    return status;
}

/* The run goes on from `step`. Newer checkpoints get another name, so that they are never taken for
 * its steps. */
static f8_status set_aside(f8_run *r, int64_t step, const char *suffix, f8_diag *diag)
{
    char as[PATH_MAX + 16];
    int64_t at;
    F8_TRY(newest(r, INT64_MAX, &at, diag));
    while (at > step) {
        snprintf(as, sizeof as, "%s.%s", path_of(r, at), suffix);
        if (rename(r->path, as) && errno != ENOENT)
            return f8_run_fail(r->path, diag);
        F8_TRY(newest(r, at, &at, diag));
    }
    return F8_OK;
}

/* How a checkpoint is looked for. */
typedef struct search {
    int64_t below; /* of a step below this one */
    void (*report)(void *user, const fp8c_load_item *item);
    void (*skipped)(void *user, const f8_diag *why);
    void *user;
} search;

static f8_status load_newest(f8_run *r, fp8c_program *program, const search *s, f8_run_position *at,
                             bool *same, int64_t *step, f8_diag *diag)
{
    *step = s->below;
    for (;;) {
        f8_diag why = {0};
        bool wrong = false;
        fp8c_load_options o = {.struct_size = sizeof o, .report = s->report, .user = s->user};
        F8_TRY(newest(r, *step, step, diag));
        F8_TRY(agree_on(program, step, diag));
        if (*step < 0)
            return f8_file_fail(diag, F8_ERR_INPUT, r->folder,
                                "it has no checkpoint that is whole%s: there is nothing to go on "
                                "from",
                                s->below == INT64_MAX ? "" : ", of before that step");
        const f8_status status = load_one(r, program, *step, at, same, &o, &wrong, &why);
        if (status == F8_OK)
            return F8_OK;
        if (status == F8_ERR_MEMORY || wrong) {
            *diag = why;
            return status;
        }
        s->skipped(s->user, &why);
    }
}

f8_status f8_run_load(f8_run *r, fp8c_program *program, f8_run_position *at, bool *same,
                      void (*report)(void *user, const fp8c_load_item *item),
                      void (*skipped)(void *user, const f8_diag *why), void *user, f8_diag *diag)
{
    int64_t step;
    const search s = {INT64_MAX, report, skipped, user};
    F8_TRY(load_newest(r, program, &s, at, same, &step, diag));
    return r->follows ? F8_OK : set_aside(r, step, "damaged", diag);
}

f8_status f8_run_load_before(f8_run *r, fp8c_program *program, int64_t below, f8_run_position *at,
                             bool *same, void (*skipped)(void *user, const f8_diag *why),
                             void *user, f8_diag *diag)
{
    int64_t step;
    const search s = {below, NULL, skipped, user};
    return load_newest(r, program, &s, at, same, &step, diag);
}

f8_status f8_run_suspect(f8_run *r, int64_t before, int64_t *step, f8_diag *diag)
{
    F8_TRY(newest_before(r, before, step, diag));
    return r->follows ? F8_OK : set_aside(r, *step, "suspect", diag);
}
