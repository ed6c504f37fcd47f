/* fp8c doctor --burn: prints what the library's burn finds, one device after the other. */
#include "frontend/cli/cli.h"
#include "frontend/diagnose/health/device.h"

#include <inttypes.h>
#include <string.h>

enum { NAME = 24, STEP = 18 };
/* A rate below this share of the first is said to have fallen, after so many seconds: in less other
 * processes and chance decide. */
static const double steady = 0.9, patience = 5;

typedef struct burning {
    cli_job *job;
    fp8c_doctor *doctor;
    void (*before)(void *user, const char *what);
    void *user;
} burning;

/* ---- one device ---- */

static void print_result(const burning *x, const fp8c_burn_result *r)
{
    if (r->skipped)
        cli_say(x->job->to, "  %-*s not on this target: %s\n", NAME, r->name, r->skipped);
    else
        cli_say(x->job->to, "  %-*s %-*s %" PRId64 " compared%s", NAME, r->name, STEP, r->step,
                r->comparisons, r->wrong ? "" : "\n");
    if (r->wrong)
        cli_say(x->job->to, ", %" PRId64 " WRONG\n      first in %s\n", r->wrong, r->first);
}

static void print_info(const burning *x, const fp8c_burn_info *i)
{
    cli_say(x->job->to,
            "  %" PRId64 " round%s in %.1f s%s, under load for %.0f%% of it: %" PRId64
            " results (%.1f GiB) compared, %" PRId64 " wrong\n",
            i->rounds, i->rounds == 1 ? "" : "s", i->seconds, i->finished ? "" : ", stopped early",
            100 * i->busy / i->seconds, i->comparisons, (double)i->bytes / (1 << 30), i->wrong);
    if (i->first_flops > 0)
        cli_say(x->job->to, "  GEMMs at %.1f GFLOP/s at first, %.1f at the end\n",
                i->first_flops / 1e9, i->last_flops / 1e9);
    if (i->seconds >= patience && i->last_flops < steady * i->first_flops)
        cli_say(x->job->to,
                "  the rate fell by %.0f%%: heat, a limit of power, or other processes\n",
                100 * (1 - i->last_flops / i->first_flops));
    if (i->failure)
        cli_say(x->job->to, "  a run FAILED: %s\n", i->failure);
    cli_say(x->job->to, "%s: %s\n", i->target,
            i->wrong || i->failure ? "something is WRONG" : "no result was wrong");
}

static json_t *begin(const fp8c_burn_info *i, int32_t device)
{
    return json_pack("{ss si}", "target", i->target, "device", (int)device);
}

/* Whether nothing was wrong. */
static bool show(const burning *x, const fp8c_burn *b, int32_t device)
{
    fp8c_burn_info i = {.struct_size = sizeof i};
    fp8c_burn_result r = {.struct_size = sizeof r};
    fp8c_burn_report(b, &i);
    if (!strcmp(i.target, "cuda")) /* there may be several */
        cli_say(x->job->to, "%s, GPU %" PRId32 ", %s\n", i.target, device, i.device);
    else
        cli_say(x->job->to, "%s, %s, %d threads\n", i.target, i.device, (int)i.threads);
    for (int n = 0; fp8c_burn_result_at(b, n, &r) == FP8C_OK; n++) {
        print_result(x, &r);
        cli_json_record(&x->job->json, f8_record_burn_result(begin(&i, device), &r));
    }
    print_info(x, &i);
    cli_json_record(&x->job->json, f8_record_burn(begin(&i, device), &i));
    fflush(stdout);
    return !i.wrong && !i.failure;
}

/* What the device counted of its own errors meanwhile. Whether there was none after which results
 * may be wrong. */
static bool show_health(const burning *x, f8_device_health *h)
{
    char state[200];
    fp8c_health_event e;
    bool well = true;
    if (h->health)
        fp8c_health_report(h->health, 1, NULL);
    if (*f8_device_health_state(h, state, sizeof state))
        cli_say(x->job->to, "%s: %s\n", h->device, state);
    while (f8_device_health_next(h, &e)) {
        well &= !e.fault;
        cli_json_record(&x->job->json, f8_device_health_record(h, &e));
        cli_say(x->job->to, "%s: %s%s\n", h->device, e.fault ? "FAULT: " : "", e.text);
    }
    json_t *summary = f8_device_health_summary(h);
    if (summary)
        cli_json_record(&x->job->json, summary);
    return well;
}

static bool burn_device(const burning *x, const char *target, int32_t device)
{
    char what[64];
    fp8c_burn *b;
    f8_device_health health;
    const fp8c_burn_options options = {.struct_size = sizeof options,
                                       .target = target,
                                       .device = device,
                                       .threads = x->job->c->threads,
                                       .seconds = x->job->c->burn};
    snprintf(what, sizeof what, "a burn of %s %d", target, (int)device);
    x->before(x->user, what);
    const bool gpu = strncmp(target, "cpu", 3) != 0 && strcmp(target, "reference") != 0;
    f8_device_health_begin(&health, x->job->ctx, gpu, device);
    bool well =
        cli_ok(x->job->ctx, fp8c_doctor_burn(x->job->ctx, &options, &b)) && show(x, b, device);
    well &= show_health(x, &health);
    f8_device_health_end(&health);
    fp8c_burn_destroy(b);
    return well;
}

/* ---- all devices ---- */

/* Each GPU but those that have no FP8. One that is broken fails. */
static bool burn_gpus(const burning *x)
{
    fp8c_component c;
    int32_t device;
    bool well = true;
    for (int i = 0; fp8c_doctor_component(x->doctor, i, &c) == FP8C_OK; i++)
        if (sscanf(c.name, "GPU %" SCNd32, &device) == 1 && c.state != FP8C_COMPONENT_VERSION &&
            !cli_interrupted())
            well &= burn_device(x, "cuda", device);
    return well;
}

static bool burn_target(const burning *x, const fp8c_target_report *t)
{
    if (!t->can_run || !t->can_compile)
        return cli_error(NULL, "%s can't burn: %s", t->name,
                         t->run_missing ? t->run_missing : t->compile_missing);
    return !strcmp(t->name, "cuda") ? burn_gpus(x) : burn_device(x, t->name, 0);
}

static bool is_asked(const cli *c, const fp8c_target_report *t)
{
    return c->target ? cli_lists(c->target, t->name)
                     : !strcmp(t->name, "cpu") || (!strcmp(t->name, "cuda") && t->can_run);
}

bool cli_burn(cli_job *j, fp8c_doctor *doctor, void (*before)(void *user, const char *what),
              void *user)
{
    const burning x = {j, doctor, before, user};
    fp8c_target_report t;
    bool well = true;
    for (int i = 0; fp8c_doctor_target(doctor, i, &t) == FP8C_OK; i++)
        if (is_asked(j->c, &t) && !cli_interrupted())
            well &= burn_target(&x, &t);
    const char *asked = j->c->target ? j->c->target : "all";
    cli_json_record(
        &j->json, json_pack("{ss ss sb}", "event", "summary", "asked", asked, "works", (int)well));
    return well;
}
