/* Statistics and dumps of a training: see watch.h. */
#include "frontend/train/watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/tensor_file.h"
#include "frontend/figures.h"
#include "frontend/records/records.h"

/* ---- which steps ---- */

/* Reads A:B. */
static bool read_steps(const char *text, int64_t *first, int64_t *last)
{
    char *end;
    *first = strtoll(text, &end, 10);
    if (end == text || *end != ':')
        return false;
    const char *second = end + 1;
    *last = strtoll(second, &end, 10);
    return end != second && !*end && *first >= 1 && *last >= *first;
}

f8_status f8_watch_check(const f8_train_options *o, f8_diag *diag)
{
    int64_t first, last;
    if (o->dump && !o->dump_steps)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "--dump needs --dump-steps FIRST:LAST");
    if (o->dump_steps && !o->dump)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "--dump-steps is for --dump PATTERN");
    if ((o->every || o->stats_recipe) && !o->stats)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s is for --stats PATTERN",
                       o->every ? "--every" : "--stats-recipe");
    if (o->dump_steps && !read_steps(o->dump_steps, &first, &last))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "--dump-steps %s: FIRST:LAST was expected, two steps from 1 on",
                       o->dump_steps);
    return F8_OK;
}

void f8_watch_begin(f8_watch *w, f8_train *t, fp8c_program *program, int step)
{
    const f8_train_options *o = t->options;
    *w = (f8_watch){.t = t, .program = program, .step = step, .last = -1};
    w->every = o->every ? o->every : F8_DEFAULT_EVERY;
    w->stats = fp8c_program_function(program, "micro_step.stats");
    w->dump = fp8c_program_function(program, "micro_step.dump");
    if (o->dump_steps)
        read_steps(o->dump_steps, &w->first, &w->last);
}

static bool is_watched(const f8_watch *w, int64_t step)
{
    return w->stats >= 0 && (step == 1 || step % w->every == 0);
}

int f8_watch_function(const f8_watch *w, int64_t step)
{
    if (w->dump >= 0 && step >= w->first && step <= w->last)
        return w->dump;
    return is_watched(w, step) ? w->stats : w->step;
}

/* ---- records ---- */

static json_t *record(const fp8c_statistic *s, const char *recipe, uint64_t seed, int64_t step)
{
    json_t *r = json_pack("{ss ss sI sI ss ss ss ss? sb ss? ss? sI}", "event", "stats", "recipe",
                          recipe, "seed", (json_int_t)seed, "step", (json_int_t)step, "tensor",
                          s->name, "linear", s->linear, "operand", s->operand, "quantized",
                          s->recipe, "what_if", (int)s->what_if, "format", s->format, "granularity",
                          s->recipe ? s->granularity : NULL, "elements", (json_int_t)s->elements);
    for (int i = 0; i < F8_FIGURES; i++) {
        const double x = f8_figure_of(s, i);
        json_object_set_new(r, f8_figures[i].name,
                            f8_figures[i].is_count ? json_integer((json_int_t)x)
                                                   : f8_json_number(x));
    }
    return r;
}

static bool record_figures(const f8_watch *w, int function, const char *recipe, uint64_t seed,
                           int64_t step, f8_folder *folder)
{
    fp8c_statistic s = {.struct_size = sizeof s};
    for (int i = 0; fp8c_program_statistic(w->program, function, i, &s) == FP8C_OK; i++) {
        if (!f8_folder_both(folder, record(&s, recipe, seed, step)))
            return false;
    }
    return true;
}

/* ---- dumps ---- */

/* The results that micro_step does not have, as tensors of one file. Returns how many. */
static size_t dumped(const f8_watch *w, char *path, f8_tensor_output *to)
{
    fp8c_port port;
    size_t n = 0;
    for (int i = 0; fp8c_program_port(w->program, w->dump, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        if (!strcmp(port.name, "stats") ||
            fp8c_program_find_port(w->program, w->step, FP8C_OUTPUT, port.name) >= 0)
            continue;
        if (to)
            to[n] = (f8_tensor_output){
                .file = {.name = (char *)port.name, .path = path, .tensor = port.name},
                .type = port.type,
                .bytes = fp8c_program_buffer(w->program, w->dump, FP8C_OUTPUT, i)};
        n++;
    }
    return n;
}

static bool dump(const f8_watch *w, int64_t step, f8_folder *folder)
{
    char name[48], path[PATH_MAX];
    f8_diag diag = {0};
    snprintf(name, sizeof name, "dump-%" PRId64 ".safetensors", step);
    snprintf(path, sizeof path, "%s", f8_run_path(&folder->run, name));
    const size_t n = dumped(w, path, NULL);
    f8_tensor_output *output = calloc(n + 1, sizeof *output);
    if (!output)
        return f8_train_no_memory(w->t);
    dumped(w, path, output);
    const bool ok = f8_train_done(w->t, f8_tensor_files_write(w->t->list, output, n, &diag), &diag);
    free(output);
    return ok;
}

bool f8_watch_record(f8_watch *w, int function, const char *recipe, uint64_t seed, int64_t step,
                     f8_folder *folder)
{
    if (function == w->step)
        return true;
    if (w->stats >= 0 && is_watched(w, step) &&
        !record_figures(w, function, recipe, seed, step, folder))
        return false;
    return function != w->dump || folder->run.follows || dump(w, step, folder);
}
