/* Recipe auto on the command line: see auto.h. */
#include "frontend/cli/auto.h"

#include <inttypes.h>

#include "frontend/cli/told.h"

bool cli_is_auto(const cli *c)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        if (f8_is_auto(cli_recipe(c, i)))
            return true;
    return false;
}

bool cli_refuses_auto(const cli *c)
{
    if (!cli_is_auto(c))
        return false;
    return cli_usage(c, "only train and explain take recipe auto: add the lines that they write "
                        "with --write-rules to the text, and give another recipe here");
}

bool cli_write_rules(void *job, const fp8c_calibration *calibration)
{
    const cli_job *j = job;
    if (!j->c->write_rules)
        return true;
    cli_text text;
    cli_text_open(&text, j->c->write_rules);
    const bool whole =
        text.to && fp8c_calibration_rules(calibration, f8_write_stream, text.to) == FP8C_OK;
    if (text.to && !whole && !ferror(text.to))
        cli_fail(j->ctx);
    return cli_text_end(&text, whole) && whole;
}

fp8c_calibration *cli_calibrate(cli_job *j, const fp8c_compile_options *options, f8_data *data)
{
    f8_train t = cli_told(j->c, NULL);
    fp8c_calibration *calibration = f8_train_calibrate(&t, j->ctx, j->module, options, data);
    if (calibration && cli_write_rules(j, calibration))
        return calibration;
    fp8c_calibration_destroy(calibration);
    return NULL;
}

/* ---- what explain shows of a calibration ---- */

static void print_candidate(FILE *to, cli_json *json, const fp8c_trial *t, const fp8c_candidate *k,
                            bool won)
{
    if (k->excluded)
        cli_say(to, "    %-8s is excluded: %s\n", k->recipe, k->excluded);
    else if (k->error > 0)
        cli_say(to, "  %s %-8s %7.2f%% %8.1f %8.1f %9.2f%% %9.2f%% %10.2f %10.2f\n",
                won ? "*" : " ", k->recipe, 100 * k->error, k->sqnr[0], k->sqnr[1],
                100 * k->underflow[0], 100 * k->underflow[1], 1e6 * k->seconds,
                1e6 * k->gemm_seconds);
    else
        cli_say(to, "  %s %-8s %8s %8s %8s %10s %10s %10.2f %10.2f\n", won ? "*" : " ", k->recipe,
                "-", "-", "-", "-", "-", 1e6 * k->seconds, 1e6 * k->gemm_seconds);
    cli_json_record(json,
                    json_pack("{ss ss ss ss ss? so s[oo] s[oo] s[oo] sf sf sf sb}", "event",
                              "candidate", "gemm", t->linear, "role", t->role, "recipe", k->recipe,
                              "excluded", k->excluded, "error", f8_json_number(k->error), "sqnr",
                              f8_json_number(k->sqnr[0]), f8_json_number(k->sqnr[1]), "underflow",
                              f8_json_number(k->underflow[0]), f8_json_number(k->underflow[1]),
                              "overflow", f8_json_number(k->overflow[0]),
                              f8_json_number(k->overflow[1]), "seconds", k->seconds, "gemm_seconds",
                              k->gemm_seconds, "bytes", k->bytes, "winner", (int)won));
}

void cli_print_trials(const fp8c_calibration *calibration, FILE *to, cli_json *json)
{
    fp8c_trial t;
    fp8c_candidate k;
    cli_say(to, "%-12s %8s %17s %21s %21s\n", "candidates", "error", "SQNR a, b (dB)",
            "underflow a, b", "estimated us, GEMM");
    for (int i = 0; fp8c_calibration_trial(calibration, i, &t) == FP8C_OK; i++) {
        cli_say(to, "%s %s, %" PRId64 "x%" PRId64 "x%" PRId64 ": %s\n", t.linear, t.role, t.m, t.n,
                t.k, t.reason);
        for (int c = 0; fp8c_calibration_candidate(calibration, i, c, &k) == FP8C_OK; c++)
            if (!t.fixed)
                print_candidate(to, json, &t, &k, c == t.winner);
    }
    cli_say(to, "\n");
}
