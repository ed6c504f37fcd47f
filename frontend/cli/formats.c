/* Writing FP8 weights in the formats of others: see formats.h. */
#include "frontend/cli/formats.h"

#include <math.h>
#include <string.h>

int cli_formats_check(const cli *c, f8_fp8_format *to)
{
    *to = F8_NATIVE;
    if (c->as && !f8_fp8_format_parse(c->as, to))
        return cli_usage(c, "--as takes hf-fp8, compressed-tensors, modelopt or native, not '%s'",
                         c->as);
    if (c->as && !c->output)
        return cli_usage(c, "--as needs -o OUT");
    if (c->model && !c->as)
        return cli_usage(c, "--model needs --as FORMAT");
    if (c->adapters && !c->as)
        return cli_usage(c, "--adapters needs --as FORMAT");
    return CLI_DONE;
}

static bool is_stopped(void *user)
{
    (void)user;
    return cli_interrupted() != 0;
}

/* ---- what was done ---- */

static json_t *record_weight(const f8_converted *x)
{
    json_t *r = json_pack("{ss ss ss ss}", "event", "converted", "weight", x->from->module, "fate",
                          f8_fate_name(x->fate), "granularity", f8_grains[x->grain].shown);
    if (isfinite(x->sqnr))
        json_object_set_new(r, "sqnr_db", json_real(x->sqnr));
    if (isfinite(x->added))
        json_object_set_new(r, "added_sqnr_db", json_real(x->added));
    if (x->why)
        json_object_set_new(r, "why", json_string(x->why));
    return r;
}

static void say_weight(const f8_converted *x)
{
    if (x->adapter && x->fate != F8_MERGED && x->fate != F8_DEQUANTIZED)
        cli_say(stdout, "  %s: its adapter adds nothing\n", x->from->module);
    if (x->fate == F8_MERGED)
        cli_say(stdout, "  %s: merged, SQNR %.1f dB; of what the adapter adds, %.1f dB\n",
                x->from->module, x->sqnr, x->added);
    if (x->fate == F8_REQUANTIZED)
        cli_say(stdout, "  %s: quantized again, SQNR %.1f dB: %s\n", x->from->module, x->sqnr,
                x->why);
    else if (x->fate == F8_DEQUANTIZED)
        cli_say(stdout, "  %s: stays out of FP8: %s\n", x->from->module, x->why);
}

static void say(const cli *c, const f8_conversion *v, const char *shown, cli_json *json)
{
    for (size_t i = 0; i < v->n; i++)
        cli_json_record(json, record_weight(&v->weight[i]));
    cli_json_record(
        json, json_pack("{ss ss ss ss sI sI sI sI sI}", "event", "conversion", "weights", shown,
                        "path", v->path, "format", f8_fp8_format_name(v->to), "files",
                        (json_int_t)v->n_files, "bytes", (json_int_t)v->bytes, "fp8",
                        (json_int_t)(v->n - (size_t)v->of_fate[F8_DEQUANTIZED]), "inputs_lost",
                        (json_int_t)v->inputs_lost, "plain_merged", (json_int_t)v->plain_merged));
    if (cli_json_to_stdout(c))
        return;
    cli_say(stdout, "%s: %s, %zu weights in FP8 from %s, %.2f MiB in %zu file%s\n", v->path,
            f8_fp8_format_name(v->to), v->n - (size_t)v->of_fate[F8_DEQUANTIZED], shown,
            cli_mib((int64_t)v->bytes), v->n_files, v->n_files == 1 ? "" : "s");
    for (size_t i = 0; i < v->n; i++)
        say_weight(&v->weight[i]);
    if (v->plain_merged)
        cli_say(stdout, "  %lld weight%s out of FP8 %s the adapter added\n",
                (long long)v->plain_merged, v->plain_merged == 1 ? "" : "s",
                v->plain_merged == 1 ? "has" : "have");
    if (v->inputs_lost)
        cli_say(stdout,
                "  %lld scales of inputs are left out: the new weights have no place for them\n",
                (long long)v->inputs_lost);
}

/* ---- the work ---- */

bool cli_convert(const cli *c, const char *from, const char *shown, f8_fp8_format to,
                 cli_json *json)
{
    const fp8c_load_options named = {.struct_size = sizeof named,
                                     .ignore = c->ignore.text,
                                     .n_ignore = c->ignore.n,
                                     .map = c->map.text,
                                     .n_map = c->map.n};
    f8_diag diag = {0};
    f8_convert_sources sources = {0};
    f8_conversion v = {
        .shown = shown, .to = to, .path = c->output, .list = cli_temporaries(), .stop = is_stopped};
    f8_status status = f8_convert_open(&sources, &v, from, c->model, c->adapters, &named, &diag);
    if (status == F8_OK) {
        cli_hold(NULL); /* a signal ends the writing, which removes what it has begun */
        status = f8_convert(&v, &diag);
    }
    if (status == F8_OK)
        say(c, &v, shown, json);
    else if (status != F8_ERR_CANCELLED)
        cli_file_fail(&diag);
    f8_conversion_end(&v);
    f8_convert_close(&sources);
    return status == F8_OK;
}
