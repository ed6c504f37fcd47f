/* fp8c weights: says what a folder of FP8 weights holds and what is wrong with it, or converts it.
 */
#include <inttypes.h>
#include <math.h>

#include "frontend/cli/formats.h"
#include "frontend/formats/lint.h"

/* ---- what the folder holds ---- */

static void say_contents(const f8_lint *l, FILE *to)
{
    const f8_model_folder *f = l->folder;
    const char *before = "";
    if (f->n_other)
        cli_say(to, "%s: %zu tensor%s in FP8, but no matrix NAME.weight: not looked at\n", f->path,
                f->n_other, f->n_other == 1 ? " is" : "s are");
    if (!f->n_scaled) {
        cli_say(to, "%s: no weight is in FP8; %.2f MiB of tensors\n", f->path,
                cli_mib(l->plain_bytes));
        return;
    }
    cli_say(to, "%s: %s, %zu weights in FP8 (", f->path,
            f->format == F8_N_FORMATS ? "no known format" : f8_fp8_format_name(f->format),
            f->n_scaled);
    for (int g = 0; g < F8_N_GRAINS; g++)
        if (l->of_grain[g]) {
            cli_say(to, "%s%" PRId64 " by %s", before, l->of_grain[g], f8_grains[g].shown);
            before = ", ";
        }
    cli_say(to, "%s), %.2f MiB with their scales; %.2f MiB of other tensors\n",
            *before ? "" : "no scales", cli_mib(l->scaled_bytes), cli_mib(l->plain_bytes));
}

static void say_loaders(const f8_lint *l, FILE *to)
{
    for (int i = 0; i < F8_LOADERS && l->folder->n_scaled; i++)
        cli_say(to, "  %-28s%s%s\n", l->loader[i].loader,
                l->loader[i].why_not ? "no, because " : "loads it",
                l->loader[i].why_not ? l->loader[i].why_not : "");
}

static void say_likeness(const f8_lint *l, FILE *to)
{
    enum { MOST = 10 };
    if (!l->n_likeness)
        return;
    cli_say(to, "SQNR to the same weights of %s, worst first:\n", l->beside->path);
    for (size_t i = 0; i < l->n_likeness && i < MOST; i++)
        cli_say(to, "  %6.1f dB  %s\n", l->likeness[i].sqnr, l->likeness[i].module);
    if (l->n_likeness > MOST)
        cli_say(to, "  and %zu more\n", l->n_likeness - MOST);
}

static void say_findings(const f8_lint *l, FILE *to)
{
    for (size_t i = 0; i < l->n; i++) {
        const f8_finding *x = &l->finding[i];
        cli_say(to, "%s: %s%s%s: %s (%s)\n", x->file, x->tensor, *x->tensor ? ": " : "", x->kind,
                x->text, x->source);
    }
    cli_say(to, l->n ? "%zu finding%s\n" : "nothing wrong was found\n", l->n, l->n == 1 ? "" : "s");
}

/* ---- the same as records ---- */

static void put_records(const f8_lint *l, cli_json *json)
{
    const f8_model_folder *f = l->folder;
    for (size_t i = 0; i < f->n_scaled; i++)
        cli_json_record(
            json,
            json_pack("{ss ss ss ss}", "event", "weight", "weight", f->scaled[i].module, "dtype",
                      f8_st_dtype_name(f->scaled[i].codes->tensor->dtype), "granularity",
                      f8_grains[f->scaled[i].fits ? f->scaled[i].grain : F8_N_GRAINS].shown));
    for (size_t i = 0; i < l->n_likeness; i++) {
        const double sqnr = l->likeness[i].sqnr; /* null: the values are equal, or one is Inf */
        cli_json_record(json, json_pack("{ss ss so}", "event", "likeness", "weight",
                                        l->likeness[i].module, "sqnr_db",
                                        isfinite(sqnr) ? json_real(sqnr) : json_null()));
    }
    for (size_t i = 0; i < l->n; i++)
        cli_json_record(json, json_pack("{ss ss ss ss ss ss}", "event", "finding", "kind",
                                        l->finding[i].kind, "tensor", l->finding[i].tensor, "file",
                                        l->finding[i].file, "text", l->finding[i].text, "source",
                                        l->finding[i].source));
    for (int i = 0; i < F8_LOADERS; i++)
        cli_json_record(json, json_pack("{ss ss sb ss}", "event", "loader", "loader",
                                        l->loader[i].loader, "loads", l->loader[i].why_not == NULL,
                                        "why", l->loader[i].why_not ? l->loader[i].why_not : ""));
    cli_json_record(
        json, json_pack("{ss ss ss sI sI sI sI}", "event", "folder", "path", f->path, "format",
                        f->format == F8_N_FORMATS ? "" : f8_fp8_format_name(f->format), "fp8",
                        (json_int_t)f->n_scaled, "fp8_bytes", (json_int_t)l->scaled_bytes,
                        "other_bytes", (json_int_t)l->plain_bytes, "findings", (json_int_t)l->n));
}

/* ---- the command ---- */

static bool lint(cli_job *j)
{
    const cli *c = j->c;
    f8_model_folder folder = {0}, beside = {0};
    f8_lint l = {0};
    f8_diag diag = {0};
    f8_status status = f8_model_folder_open(&folder, c->file, NULL, NULL, &diag);
    if (status == F8_OK && c->beside)
        status = f8_model_folder_open(&beside, c->beside, NULL, NULL, &diag);
    if (status == F8_OK && beside.n_scaled)
        status =
            f8_file_fail(&diag, F8_ERR_INPUT, c->beside,
                         "its weights are FP8, too: --beside takes the model in a wider dtype");
    if (status == F8_OK)
        status = f8_lint_run(&l, &folder, c->beside ? &beside : NULL, &diag);
    if (status == F8_OK) {
        put_records(&l, &j->json);
        if (j->to) {
            say_contents(&l, j->to);
            say_loaders(&l, j->to);
            say_likeness(&l, j->to);
            say_findings(&l, j->to);
        }
    } else {
        cli_file_fail(&diag);
    }
    const bool sound = status == F8_OK && !l.n;
    f8_lint_end(&l);
    f8_model_folder_close(&beside);
    f8_model_folder_close(&folder);
    return sound;
}

static bool work(cli_job *j)
{
    f8_fp8_format to;
    cli_formats_check(j->c, &to);
    return j->c->as ? cli_convert(j->c, j->c->file, j->c->file, to, &j->json) : lint(j);
}

int cmd_weights(const cli *c)
{
    f8_fp8_format to;
    const int usage = cli_formats_check(c, &to);
    if (usage)
        return usage;
    if (c->as && c->beside)
        return cli_usage(c, "--beside compares and --as converts: give one of them");
    if (c->output && !c->as)
        return cli_usage(c, "-o needs --as FORMAT");
    if ((c->map.n || c->ignore.n) && !c->model && !(c->as && to == F8_NATIVE))
        return cli_usage(c,
                         "--map and --ignore name the tensors of --model DIR, or of a folder that "
                         "becomes native");
    return cli_work(c, false, work);
}
