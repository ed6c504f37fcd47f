/* Statistics and dumps of `fp8c train`: see cmd_stats.h. */
#include "frontend/cli/cmd_stats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/tensor_file.h"

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

bool cli_stats_refused(const cli *c)
{
    int64_t first, last;
    if (c->dump && !c->dump_steps)
        fprintf(stderr, "fp8c train: --dump needs --dump-steps FIRST:LAST\n");
    else if (c->dump_steps && !c->dump)
        fprintf(stderr, "fp8c train: --dump-steps is for --dump PATTERN\n");
    else if ((c->every || c->stats_recipe) && !c->stats)
        fprintf(stderr, "fp8c train: %s is for --stats PATTERN\n",
                c->every ? "--every" : "--stats-recipe");
    else if (c->dump_steps && !read_steps(c->dump_steps, &first, &last))
        fprintf(stderr,
                "fp8c train: --dump-steps %s: FIRST:LAST was expected, two steps from 1 on\n",
                c->dump_steps);
    else
        return false;
    return true;
}

void cli_stats_begin(cli_stats *w, const cli *c, fp8c_program *program, int step)
{
    *w = (cli_stats){.c = c, .program = program, .step = step, .last = -1};
    w->every = c->every ? c->every : CLI_EVERY;
    w->stats = fp8c_program_function(program, "micro_step.stats");
    w->dump = fp8c_program_function(program, "micro_step.dump");
    if (c->dump_steps)
        read_steps(c->dump_steps, &w->first, &w->last);
}

static bool is_watched(const cli_stats *w, int64_t step)
{
    return w->stats >= 0 && (step == 1 || step % w->every == 0);
}

int cli_stats_function(const cli_stats *w, int64_t step)
{
    if (w->dump >= 0 && step >= w->first && step <= w->last)
        return w->dump;
    return is_watched(w, step) ? w->stats : w->step;
}

/* ---- records ---- */

static json_t *record(const fp8c_statistic *s, const char *recipe, uint64_t seed, int64_t step)
{
    return json_pack(
        "{ss ss sI sI ss ss ss ss? sb ss? ss? sI so so so sI so so so so so so so so}", "event",
        "stats", "recipe", recipe, "seed", (json_int_t)seed, "step", (json_int_t)step, "tensor",
        s->name, "linear", s->linear, "operand", s->operand, "quantized", s->recipe, "what_if",
        (int)s->what_if, "format", s->format, "granularity", s->recipe ? s->granularity : NULL,
        "elements", (json_int_t)s->elements, "amin", cli_json_number(s->amin), "amax",
        cli_json_number(s->amax), "range", cli_json_number(s->range), "nonfinite",
        (json_int_t)s->nonfinite, "underflow", cli_json_number(s->underflow), "overflow",
        cli_json_number(s->overflow), "mse", cli_json_number(s->mse), "cosine",
        cli_json_number(s->cosine), "sqnr", cli_json_number(s->sqnr), "used",
        cli_json_number(s->used), "scale", cli_json_number(s->scale), "scale_wanted",
        cli_json_number(s->scale_wanted));
}

static bool record_figures(const cli_stats *w, int function, const char *recipe, uint64_t seed,
                           int64_t step, cli_json *json, cli_folder *folder)
{
    fp8c_statistic s = {.struct_size = sizeof s};
    for (int i = 0; fp8c_program_statistic(w->program, function, i, &s) == FP8C_OK; i++) {
        json_t *r = record(&s, recipe, seed, step);
        cli_json_record(json, json_incref(r));
        if (!cli_folder_record(folder, r))
            return false;
    }
    return !json->failed;
}

/* ---- dumps ---- */

/* The results that micro_step does not have, as tensors of one file. Returns how many. */
static size_t dumped(const cli_stats *w, char *path, f8_tensor_output *to)
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

static bool dump(const cli_stats *w, int64_t step, cli_folder *folder)
{
    char name[48], path[PATH_MAX];
    f8_diag diag = {0};
    snprintf(name, sizeof name, "dump-%" PRId64 ".safetensors", step);
    snprintf(path, sizeof path, "%s", f8_run_path(&folder->run, name));
    const size_t n = dumped(w, path, NULL);
    f8_tensor_output *output = calloc(n + 1, sizeof *output);
    if (!output) {
        fprintf(stderr, "%s: error: out of memory\n", path);
        return false;
    }
    dumped(w, path, output);
    const bool ok =
        f8_tensor_files_write(cli_temporaries(), output, n, &diag) == F8_OK || cli_file_fail(&diag);
    free(output);
    return ok;
}

bool cli_stats_record(cli_stats *w, int function, const char *recipe, uint64_t seed, int64_t step,
                      cli_json *json, cli_folder *folder)
{
    if (function == w->step)
        return true;
    if (w->stats >= 0 && is_watched(w, step) &&
        !record_figures(w, function, recipe, seed, step, json, folder))
        return false;
    return function != w->dump || folder->run.follows || dump(w, step, folder);
}
