/* The folder of a run: see cmd_folder.h. */
#include "frontend/cli/cmd_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/cli/cmd_calibrate.h"
#include "frontend/cli/cmd_options.h"
#include "frontend/cli/cmd_plan.h"
#include "frontend/diagnose/doctor/doctor.h"

/* ---- options ---- */

bool cli_folder_refused(const cli *c)
{
    const char *with = c->run ? "--run" : "--resume";
    if (!c->run && !c->resume)
        return false;
    if (c->run && c->resume)
        fprintf(stderr, "fp8c train: --run begins a run, and --resume goes on with one: give one "
                        "of the two\n");
    else if (c->compare.n || c->given[CLI_AT_seeds])
        fprintf(stderr,
                "fp8c train: %s keeps one run: --%s makes several; give each its own folder\n",
                with, c->compare.n ? "compare" : "seeds");
    else
        return false;
    return true;
}

/* Says that an option differs from what the run has. */
static bool refuse(const cli_folder *f, const char *name, const json_t *now, const json_t *before)
{
    char *here = json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT),
         *there = json_dumps(before, JSON_ENCODE_ANY | JSON_COMPACT);
    fprintf(stderr, "%s: error: %s is %s, and the run has %s: it can't go on with another\n",
            f->path, name, here ? here : "?", there ? there : "?");
    free(here);
    free(there);
    return false;
}

/* Gives `c` one option of the run, or checks the one that was given. */
static bool merge(const cli_folder *f, cli *c, int at, const json_t *all)
{
    const char *name = cli_option_name(at);
    const json_t *before = json_object_get(all, name);
    if (!before) {
        fprintf(stderr, "%s: error: its options lack %s\n", f->run.path, name);
        return false;
    }
    if (!c->given[at]) {
        if (json_is_null(before) || cli_option_set(c, at, before))
            return true;
        fprintf(stderr, "%s: error: its option %s has no such value\n", f->run.path, name);
        return false;
    }
    json_t *now = cli_option_json(c, at);
    const bool ok = cli_options[at].goes_on == RUN_FREE || json_equal(now, before) ||
                    refuse(f, name, now, before);
    json_decref(now);
    return ok;
}

/* The module is that of the folder unless FILE.f8 is given. module.f8 has the dims and the rules,
 * but its shapes are numbers: ranks, who divide B, need the text as it was given. */
static void take_text(cli_folder *f, cli *c)
{
    if (c->file)
        return;
    snprintf(f->file, sizeof f->file, "%s",
             f8_run_path(&f->run, c->ranks ? "source.f8" : "module.f8"));
    c->file = f->file;
    if (!c->ranks)
        c->dims.n = c->rules.n = 0;
}

/* Whether a run goes on from recipe auto to another or from another to auto, or under auto with
 * ranks; a message on stderr says why it can't. A run under auto has a rule for each GEMM, and
 * rules win. They are in module.f8 alone, which ranks do not read. */
static bool auto_refused(const cli_folder *f, const cli *c)
{
    const char *before = json_string_value(json_object_get(f->run.info, "recipe"));
    if (c->ranks && cli_is_auto(before) && cli_is_auto(c->recipe)) {
        fprintf(
            stderr,
            "%s: error: recipe auto has chosen a recipe for each GEMM of this run in one process: "
            "it can't go on with %d ranks\n",
            f->path, (int)c->ranks->comm.ranks);
        return true;
    }
    if (cli_is_auto(before) == cli_is_auto(c->recipe))
        return false;
    if (cli_is_auto(before))
        fprintf(stderr,
                "%s: error: recipe auto has chosen a recipe for each GEMM of this run: it can't go "
                "on under %s\n",
                f->path, c->recipe);
    else
        fprintf(stderr,
                "%s: error: the run is under %s: recipe auto would have to measure, which it does "
                "when a run begins\n",
                f->path, before);
    return true;
}

static bool take_options(cli_folder *f, cli *c)
{
    /* a copy: run.json's own values change as the run goes on */
    const json_t *all = f->options = json_deep_copy(json_object_get(f->run.info, "resolved"));
    for (int at = 0; at < CLI_N_OPTIONS; at++)
        if ((cli_options[at].goes_on == RUN_KEPT || cli_options[at].goes_on == RUN_FREE) &&
            !merge(f, c, at, all))
            return false;
    f->steps = json_integer_value(json_object_get(all, "--steps"));
    take_text(f, c);
    return !auto_refused(f, c);
}

bool cli_folder_open(cli_folder *f, cli *c)
{
    f8_diag diag = {0};
    *f = (cli_folder){
        .path = c->run ? c->run : c->resume, .resumed = c->resume, .run = F8_RUN_CLOSED};
    if (!f->path)
        return true;
    if (f8_ranks_follows(c->ranks)) {
        if (f8_run_follow(&f->run, f->path, f->resumed, &diag) != F8_OK)
            return cli_file_fail(&diag);
        return c->run || take_options(f, c);
    }
    if (c->run)
        return f8_run_free(&f->run, f->path, &diag) == F8_OK || cli_file_fail(&diag);
    if (f8_run_open(&f->run, f->path, cli_temporaries(), &diag) != F8_OK)
        return cli_file_fail(&diag);
    return take_options(f, c);
}

bool cli_folder_look(cli_folder *f, cli *c, const char *path)
{
    f8_diag diag = {0};
    *f = (cli_folder){.path = path, .resumed = true, .run = F8_RUN_CLOSED};
    if (f8_run_look(&f->run, path, &diag) != F8_OK)
        return cli_file_fail(&diag);
    return take_options(f, c);
}

void cli_folder_close(cli_folder *f)
{
    if (f->path)
        f8_run_close(&f->run);
    json_decref(f->options);
    free(f->text);
    *f = (cli_folder){.run = F8_RUN_CLOSED};
}

/* ---- the module ---- */

bool cli_folder_module(cli_folder *f, const fp8c_module *module)
{
    if (!f->path)
        return true;
    free(f->text);
    f->text = NULL;
    FILE *to = open_memstream(&f->text, &f->n_text);
    const bool printed = to && fp8c_module_print(module, cli_write_file, to) == FP8C_OK;
    if ((to && fclose(to)) || !printed) {
        fprintf(stderr, "error: out of memory\n");
        return false;
    }
    f8_hash_text(f8_hash_bytes(f->text, f->n_text), f->at.module);
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(module, &info);
    f->parameters = info.elements;
    const char *before = json_string_value(json_object_get(f->run.info, "module"));
    if (!f->resumed || (before && !strcmp(before, f->at.module)))
        return true;
    fprintf(stderr,
            "%s: error: the model is not that of the run: its text has the hash %s, and the run's "
            "had %s\n",
            f->path, f->at.module, before ? before : "none");
    return false;
}

/* ---- what run.json says ---- */

/* {"fp8c": "0.1.0", "LLVM 19": "19.1.7, for znver4", ...}: of the components that the target
 * uses. */
static json_t *versions(fp8c_context *ctx, const fp8c_program *program)
{
    fp8c_doctor *doctor;
    fp8c_component component;
    json_t *all = json_pack("{ss}", "fp8c", fp8c_version());
    if (f8_doctor_used(ctx, program, &doctor) != FP8C_OK) {
        cli_fail(ctx);
        json_decref(all);
        return NULL;
    }
    for (int i = 0; fp8c_doctor_component(doctor, i, &component) == FP8C_OK; i++)
        if (component.version)
            json_object_set_new(all, component.name, json_string(component.version));
    fp8c_doctor_destroy(doctor);
    return all;
}

/* The decisions as explain --json has them. NULL after a message on stderr. */
static char *decisions(const fp8c_program *program)
{
    char *text = NULL;
    size_t n;
    cli_json json = {.file = open_memstream(&text, &n), .path = "decisions.jsonl"};
    if (json.file)
        cli_print_decisions(program, NULL, &json);
    else
        fprintf(stderr, "error: out of memory\n");
    if (json.file && cli_json_close(&json))
        return text;
    free(text);
    return NULL;
}

enum { TENSORS = 64 }; /* of plan.json */

/* The memory of a step as plan --json has it, with its largest tensors, or "" for target reference,
 * which has no plan. NULL after a message on stderr. */
static char *plan(const cli_folder *f, const cli *c, const fp8c_program *program)
{
    const int step = fp8c_program_function(program, "micro_step");
    json_t *memory, *tensor, *tensors = json_array();
    if (!cli_memory_record(program, step, c->recipe, f->parameters, &memory)) {
        json_decref(tensors);
        return strdup("");
    }
    for (int i = 0; i < TENSORS && cli_tensor_record(program, step, i, &tensor); i++)
        json_array_append_new(tensors, tensor);
    json_t *all = json_pack("{so so}", "memory", memory, "tensors", tensors);
    char *text = all ? json_dumps(all, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(all);
    if (!text)
        fprintf(stderr, "error: out of memory\n");
    return text;
}

static int ranks_of(const cli *c)
{
    return c->ranks ? c->ranks->comm.ranks : 1;
}

/* false after a message on stderr. */
static bool describe(const cli *c, const cli_folder *f, fp8c_context *ctx, fp8c_program *program,
                     const f8_data *data, json_t **info)
{
    char begun[40] = "";
    const time_t now = time(NULL);
    struct tm utc;
    fp8c_device device = {.struct_size = sizeof device};
    json_t *components = versions(ctx, program);
    if (!components)
        return false;
    fp8c_program_device(program, &device); /* fails if there is none */
    if (gmtime_r(&now, &utc))
        strftime(begun, sizeof begun, "%Y-%m-%dT%H:%M:%SZ", &utc);
    *info = json_pack("{ss so ss? ss ss ss ss? sI so so so s[]}", "begun", begun, "versions",
                      components, "file", c->file, "module", f->at.module, "recipe", c->recipe,
                      "target", fp8c_program_target(program), "device",
                      *device.name ? device.name : NULL, "ranks", (json_int_t)ranks_of(c),
                      "options", cli_options_json(c, ON_TRAIN, true), "resolved",
                      cli_options_json(c, ON_TRAIN, false), "data", f8_data_facts(data), "resumed");
    return true;
}

static bool begin(cli_folder *f, const cli *c, fp8c_context *ctx, fp8c_program *program,
                  const f8_data *data)
{
    f8_diag diag = {0};
    f->at.seed = c->seed;
    if (f->run.follows)
        return f8_run_save(&f->run, program, &f->at, &diag) == F8_OK || cli_file_fail(&diag);
    size_t size;
    json_t *info = NULL;
    char *source = cli_read_file(c->file, &size), *decided = source ? decisions(program) : NULL,
         *planned = decided ? plan(f, c, program) : NULL;
    const f8_run_texts texts = {f->text, source, decided, planned};
    bool ok = planned && describe(c, f, ctx, program, data, &info);
    if (ok)
        ok = (f8_run_create(&f->run, f->path, cli_temporaries(), &diag) == F8_OK &&
              f8_run_begin(&f->run, program, &texts, json_incref(info), &f->at, &diag) == F8_OK) ||
             cli_file_fail(&diag);
    json_decref(info);
    free(source);
    free(decided);
    free(planned);
    return ok;
}

/* ---- going on ---- */

bool cli_folder_fits(const cli_folder *f, fp8c_context *ctx, const fp8c_program *program,
                     const f8_data *data)
{
    const json_t *info = f->run.info, *before = json_object_get(info, "versions");
    const char *target = json_string_value(json_object_get(info, "target")), *name;
    if (!target || strcmp(target, fp8c_program_target(program))) {
        fprintf(stderr,
                "%s: error: the run was compiled for %s, and this machine would compile "
                "for %s\n",
                f->path, target ? target : "?", fp8c_program_target(program));
        return false;
    }
    json_t *facts = f8_data_facts(data), *now = versions(ctx, program), *version;
    bool ok = facts && now;
    const json_t *had = json_object_get(info, "data");
    const bool old = json_object_size(had) && !json_object_get(had, "hash");
    if (ok && !json_equal(facts, had))
        ok = refuse(f, old ? "the data (an older fp8c kept no hash of the data)" : "the data",
                    facts, had);
    json_object_foreach (now, name, version) {
        const char *other = json_string_value(json_object_get(before, name));
        if (ok && (!other || strcmp(other, json_string_value(version))))
            fprintf(stderr,
                    "fp8c: warning: %s is %s, and was %s when the run began: its bits may differ\n",
                    name, json_string_value(version), other ? other : "not there");
    }
    json_decref(facts);
    json_decref(now);
    return ok;
}

static void say_skipped(void *user, const f8_diag *why)
{
    (void)user;
    fprintf(stderr, "%s: warning: passed over: %s\n", why->file ? why->file : "", why->text);
}

/* A state that the checkpoint has and the program has not, or the other way round. */
static void note_state(void *user, const fp8c_load_item *item)
{
    cli_folder *f = user;
    char shown[512];
    const char *name = item->variable ? item->variable : item->tensor;
    const size_t prefix = strlen(f8_checkpoint_prefix);
    if (item->fate == FP8C_LOAD_TAKEN)
        return;
    if (!strncmp(name, f8_checkpoint_prefix, prefix))
        name += prefix;
    fprintf(f->dropped, "  %s  %s  %s\n",
            item->fate == FP8C_LOAD_IGNORED ? "dropped    " : "begun anew ",
            f8_st_shown(name, shown, sizeof shown), item->detail);
}

/* Loads the newest checkpoint. *told: what a change of recipe dropped; the caller frees it. */
static bool load(cli_folder *f, const cli *c, fp8c_program *program, bool *same, char **told)
{
    f8_diag diag = {0};
    size_t n;
    f->dropped = open_memstream(told, &n);
    f8_status status =
        f->dropped ? f8_run_load(&f->run, program, &f->at, same, note_state, say_skipped, f, &diag)
                   : f8_file_fail(&diag, F8_ERR_MEMORY, f->path, "out of memory");
    if (f->dropped && fclose(f->dropped) && status == F8_OK)
        status = f8_file_fail(&diag, F8_ERR_MEMORY, f->path, "out of memory");
    if (status == F8_OK && f->at.seed != c->seed)
        status = f8_file_fail(&diag, F8_ERR_INPUT, f->run.path,
                              "it is of seed %" PRIu64 ", and the run's is %" PRIu64, f->at.seed,
                              c->seed);
    return status == F8_OK || cli_file_fail(&diag);
}

static bool check_steps(const cli_folder *f, const cli *c)
{
    const int64_t end = c->stop_at && c->stop_at < c->steps ? c->stop_at : c->steps;
    if (f->at.step > end) {
        fprintf(stderr, "%s: error: the run is at step %" PRId64 " already, after %s %" PRId64 "\n",
                f->path, f->at.step, end == c->steps ? "--steps" : "--stop-at", end);
        return false;
    }
    if (c->steps != f->steps)
        fprintf(stderr,
                "%s: --steps is %" PRId64 ", and was %" PRId64
                ": the schedule has the new length from step %" PRId64 " on\n",
                f->path, c->steps, f->steps, f->at.step + 1);
    return true;
}

/* Whether the plan is another: it has the same bits, and the fingerprints have other values. */
static bool is_planned_anew(const cli_folder *f, const cli *c)
{
    static const int options[] = {CLI_AT_memory, CLI_AT_checkpoint, CLI_AT_recompute,
                                  CLI_AT_no_fuse, CLI_AT_zero};
    const json_t *all = json_object_get(f->run.info, "resolved");
    bool anew = false;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        json_t *now = cli_option_json(c, options[i]);
        anew |= !json_equal(now, json_object_get(all, cli_option_name(options[i])));
        json_decref(now);
    }
    return anew && json_integer_value(
                       json_object_get(all, cli_option_name(CLI_AT_fingerprint_every))) > 0;
}

/* Whether the steps from now on have other records than they would have had. */
static bool is_changed(const cli_folder *f, const cli *c)
{
    const char *recipe = json_string_value(json_object_get(f->run.info, "recipe"));
    return is_planned_anew(f, c) || c->steps != f->steps || !recipe || strcmp(recipe, c->recipe) ||
           json_integer_value(json_object_get(f->run.info, "ranks")) != ranks_of(c);
}

/* Keeps the options that the run goes on with, and where it did. */
static bool update(cli_folder *f, const cli *c, const fp8c_program *program, bool same)
{
    f8_diag diag = {0};
    json_t *info = f->run.info, *all = json_object_get(info, "resolved");
    json_t *mark = json_pack("{sI ss sI sb}", "step", (json_int_t)f->at.step, "recipe", c->recipe,
                             "ranks", (json_int_t)ranks_of(c), "changed", (int)is_changed(f, c));
    bool ok = !json_array_append_new(json_object_get(info, "resumed"), mark);
    for (int at = 0; at < CLI_N_OPTIONS; at++)
        if (cli_options[at].goes_on == RUN_FREE)
            ok = ok && !json_object_set_new(all, cli_option_name(at), cli_option_json(c, at));
    ok = ok && !json_object_set_new(info, "recipe", json_string(c->recipe)) &&
         !json_object_set_new(info, "ranks", json_integer(ranks_of(c)));
    if (!ok)
        fprintf(stderr, "%s: error: run.json can't be updated\n", f->path);
    char *decided = ok && !same ? decisions(program) : NULL;
    ok = ok && (same || decided);
    if (ok && decided)
        ok = cli_folder_put(f, "decisions.jsonl", decided);
    free(decided);
    char *planned = ok ? plan(f, c, program) : NULL; /* --memory may be another */
    ok = planned && (!*planned || cli_folder_put(f, "plan.json", planned));
    free(planned);
    return ok && (f8_run_put_info(&f->run, &diag) == F8_OK || cli_file_fail(&diag));
}

/* Waits until every rank has loaded the checkpoint: rank 0 may remove it from then on. */
static bool all_have_loaded(const cli_folder *f, const cli *c)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, f->at.step);
    return cli_ranks_agree(c->ranks, "the step of the checkpoint", text);
}

/* The losses of another number of ranks have other bits. */
static void note_ranks(const cli_folder *f, const cli *c)
{
    const json_t *before = json_object_get(f->run.info, "ranks");
    if (before && json_integer_value(before) != ranks_of(c))
        fprintf(stderr,
                "%s: from step %" PRId64 " on with %d rank%s, and with %" JSON_INTEGER_FORMAT
                " before: gradients are added up in another order\n",
                f->path, f->at.step + 1, ranks_of(c), ranks_of(c) == 1 ? "" : "s",
                json_integer_value(before));
}

static bool go_on(cli_folder *f, const cli *c, fp8c_context *ctx, fp8c_program *program,
                  const f8_data *data, cli_folder_each each, void *user)
{
    f8_diag diag = {0};
    char *told = NULL;
    bool same = true;
    bool ok = cli_folder_fits(f, ctx, program, data) && load(f, c, program, &same, &told) &&
              all_have_loaded(f, c) && check_steps(f, c);
    if (f->run.follows) {
        free(told);
        return ok;
    }
    if (ok && !same)
        fprintf(stderr,
                "%s: from step %" PRId64 " on under %s; the checkpoint is of another recipe:\n%s",
                f->path, f->at.step + 1, c->recipe, told);
    free(told);
    if (ok)
        note_ranks(f, c);
    ok = ok &&
         (f8_run_continue(&f->run, f->at.step, each, user, &diag) == F8_OK || cli_file_fail(&diag));
    return ok && update(f, c, program, same);
}

bool cli_folder_start(cli_folder *f, const cli *c, fp8c_context *ctx, fp8c_program *program,
                      const f8_data *data, cli_folder_each each, void *user)
{
    f->at.recipe = c->recipe;
    f->at.keep = c->keep ? c->keep : CLI_KEEP;
    const bool ok = !f->path     ? true
                    : f->resumed ? go_on(f, c, ctx, program, data, each, user)
                                 : begin(f, c, ctx, program, data);
    f->failed |= !ok;
    return ok;
}

/* ---- while it trains ---- */

bool cli_folder_record(cli_folder *f, json_t *record)
{
    f8_diag diag = {0};
    if (f->path && !f->failed)
        f->failed = f8_run_record(&f->run, record, &diag) != F8_OK && !cli_file_fail(&diag);
    else
        json_decref(record);
    return !f->failed;
}

bool cli_folder_save(cli_folder *f, const cli *c, fp8c_program *program, int64_t step,
                     uint64_t batch)
{
    f8_diag diag = {0};
    f8_run_position at = f->at;
    if (!f->path || f->failed || f->at.step == step)
        return !f->failed;
    at.step = step;
    at.batch = batch;
    at.recipe = c->recipe;
    if (f8_run_save(&f->run, program, &at, &diag) == F8_OK)
        f->at = at;
    else
        f->failed = !cli_file_fail(&diag);
    return !f->failed;
}

bool cli_folder_put(cli_folder *f, const char *name, const char *text)
{
    f8_diag diag = {0};
    f->failed |= f8_run_put(&f->run, name, text, &diag) != F8_OK && !cli_file_fail(&diag);
    return !f->failed;
}

json_t *cli_folder_checksum(cli_folder *f, fp8c_program *program)
{
    f8_diag diag = {0};
    char text[F8_RUN_HASH];
    if (f8_run_checksum(program, text, &diag) == F8_OK)
        return json_string(text);
    f->failed = !cli_file_fail(&diag);
    return NULL;
}

bool cli_folder_saves(const cli_folder *f, const cli *c, int64_t step, bool last)
{
    return f->path && (last || (c->save_every && step % c->save_every == 0));
}

bool cli_folder_sums(const cli_folder *f, const cli *c, int64_t step, bool last)
{
    return c->checksum_every ? f->path && step % c->checksum_every == 0
                             : cli_folder_saves(f, c, step, last);
}

const char *cli_hex(double x, char text[40])
{
    if (isnan(x)) /* whatever its sign is */
        snprintf(text, 40, "nan");
    else
        snprintf(text, 40, "%a", x);
    return text;
}
