/* The public calls of a training: see fp8c_train.h. */
#include <math.h>
#include <string.h>

#include "frontend/api.h"
#include "frontend/fp8c_train.h"
#include "frontend/train/training.h"
#include "ir/base/format.h"

enum { RECIPE = 256, RULE = 1024 };

struct fp8c_training {
    fp8c_context *ctx;
    f8_arena arena; /* of the options' texts */
    fp8c_training_options own;
    f8_train_options options;
    char recipe[RECIPE];
    f8_train t;
    f8_data data;
    f8_folder folder;
    f8_training r;
    f8_train_result result;
    bool over;        /* it has failed, or was ended */
    f8_status status; /* of the first failure */
};

/* ---- what happens ---- */

/* The first failure of a call is its message. */
static void failed(void *user, f8_status status, const char *text)
{
    fp8c_training *p = user;
    if (p->status != F8_OK)
        return;
    p->status = status;
    f8_api_message(p->ctx, text);
}

static void say(void *user, const char *text)
{
    const fp8c_training *p = user;
    if (p->own.say)
        p->own.say(p->own.user, text);
}

static bool record(void *user, json_t *record)
{
    const fp8c_training *p = user;
    char *text = NULL;
    if (p->own.record && record)
        text = json_dumps(record, JSON_COMPACT | JSON_PRESERVE_ORDER);
    const bool ok = record && (!p->own.record || text);
    if (text)
        p->own.record(p->own.user, text);
    free(text);
    json_decref(record);
    if (!ok)
        failed(user, F8_ERR_MEMORY, "error: out of memory");
    return ok;
}

static int32_t stopped(void *user)
{
    const fp8c_training *p = user;
    return p->own.stop ? p->own.stop(p->own.user) : 0;
}

static bool asked(void *user)
{
    return stopped(user) != 0;
}

/* ---- options ---- */

/* Whether any byte is not 0. */
static bool is_given(const void *field, size_t size)
{
    const char *byte = field;
    while (size > 0 && !byte[size - 1])
        size--;
    return size > 0;
}

/* Of a number of steps, batches or files. */
static bool is_below_0(const void *count)
{
    int64_t n;
    memcpy(&n, count, sizeof n);
    return n < 0;
}

/* Whether each compile option that is given has a row among those of a training: then `made`, which
 * was made from the training's, has it, too. */
static f8_status check_compile(const fp8c_compile_options *c, const fp8c_compile_options *made,
                               f8_diag *diag)
{
#define OPTION(field, kind, usual, needs, excludes, bits, ranks, kept, with, help)                 \
    if (is_given(&c->field, sizeof c->field) && !is_given(&made->field, sizeof made->field))       \
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,                                             \
                       "a training takes no compile option '" #field "'");
#include "frontend/options.def"
#undef OPTION
    return F8_OK;
}

/* Takes the compile options, by the rows of options.def. */
static f8_status take_compile(fp8c_training *p, const fp8c_compile_options *given, f8_diag *diag)
{
    fp8c_compile_options c = {.struct_size = sizeof c};
    f8_train_options *o = &p->options;
    F8_TRY(f8_api_options(&c, given, "fp8c_compile_options", diag));
    if (c.optimizer_steps > 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "a training has its own option for optimizer_steps: steps");
    if (c.comm || c.zero || c.reduce_dtype || c.reduce_at || c.reduce_order)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "one process trains here; the command trains with several");
    o->recipe = c.recipe;
#define SETS(field) o->field = c.field;
#define SETS_PATTERNS(field)                                                                       \
    if (c.field && !f8_train_patterns_add(&o->field, c.field))                                     \
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,                                             \
                       #field ": a text of 1 to %d characters was expected",                       \
                       F8_MOST_PATTERNS - 1);
#define SETS_MEMORY(field)                                                                         \
    o->field.bytes = c.memory_bytes;                                                               \
    o->field.share = c.memory_share;
#define SETS_STEPS(field)
#define SETS_NOTHING(field)
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api) sets(field)
#include "frontend/train/options.def"
#undef OPTION
#undef SETS
#undef SETS_PATTERNS
#undef SETS_MEMORY
#undef SETS_STEPS
#undef SETS_NOTHING
    const fp8c_compile_options made = f8_train_compile_options(o, c.recipe, false);
    return check_compile(&c, &made, diag);
}

static f8_status take_list(f8_option_TEXTS *to, const char *const *text, size_t n, const char *name,
                           f8_diag *diag)
{
    if (n > F8_MOST_TEXTS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s: at most %d", name, F8_MOST_TEXTS);
    for (size_t i = 0; i < n; i++) {
        if (!text || !text[i])
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s[%d] is NULL", name, (int)i);
        to->text[i] = text[i];
    }
    to->n = n;
    return F8_OK;
}

static f8_status check_own(const fp8c_training_options *g, f8_diag *diag)
{
    static const char *const kinds[] = {"u16", "u32", "bytes"};
    if (g->run && g->resume)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "run begins a run, and resume goes on with one: give one of the two");
    if (g->guard && !strcmp(g->guard, "triage"))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "guard: off, warn or stop was expected");
    if (g->seed > INT64_MAX)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "seed: at most 2^63 - 1");
    if (!g->resume && !g->n_data && !g->n_batches)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "data or batches are needed");
    for (int i = 0; i < 3 && g->tokens; i++)
        if (!strcmp(g->tokens, kinds[i]))
            return F8_OK;
    return g->tokens ? f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                               "tokens %s: u16, u32 or bytes was expected", g->tokens)
                     : F8_OK;
}

/* Checks the value of a row. needs_folder: it is of no use here without one. */
static f8_status check_value(const void *value, size_t size, const char *name, bool counts,
                             bool needs_folder, f8_diag *diag)
{
    if (counts && is_below_0(value))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s is below 0", name);
    if (needs_folder && is_given(value, size))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s needs a folder: run or resume", name);
    return F8_OK;
}

/* Takes what fp8c_training_options has, by the rows of options.def. */
static f8_status take_own(fp8c_training *p, f8_diag *diag)
{
    const fp8c_training_options *g = &p->own;
    f8_train_options *o = &p->options;
    const bool has_folder = g->run || g->resume;
    F8_TRY(check_own(g, diag));
#define GIVEN(field) o->field = g->field
#define LISTED(field) F8_TRY(take_list(&o->field, g->field, g->n_##field, #field, diag))
#define NOT_GIVEN(field)
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api)                               \
    api(field);                                                                                    \
    F8_TRY(check_value(&o->field, sizeof o->field, #field, F8_KIND_##kind == F8_KIND_COUNT,        \
                       folder == NEEDS_FOLDER && !has_folder, diag));
#include "frontend/train/options.def"
#undef OPTION
#undef GIVEN
#undef LISTED
#undef NOT_GIVEN
    o->seeds = 1;
    return F8_OK;
}

/* The dims that the module's text was parsed with, and the rules that were added: ranks that go on
 * with the run parse it again. A run that goes on has its own. */
static void take_module(fp8c_training *p, const fp8c_module *module)
{
    f8_option_DIM *dims = &p->options.dims;
    f8_option_RULE *rules = &p->options.rules;
    const f8_module *m = module && module->text && !p->own.resume ? module->ir : NULL;
    char rule[RULE];
    for (size_t i = 0; m && i < m->n_dims && dims->n < F8_MOST_DIMS; i++)
        if (m->dim[i].given)
            dims->dim[dims->n++] =
                (fp8c_dim){f8_arena_strdup(&p->arena, m->dim[i].name), m->dim[i].value};
    for (size_t i = 0; m && i < m->n_rules && rules->n < F8_MOST_TEXTS; i++)
        if (m->rule[i].added)
            rules->text[rules->n++] =
                f8_arena_strdup(&p->arena, f8_rule_print(&m->rule[i], rule, sizeof rule));
}

/* Copies texts. */
static void keep_text(f8_arena *a, const char **text)
{
    *text = f8_arena_strdup(a, *text);
}

static void keep_texts(f8_arena *a, f8_option_TEXTS *list)
{
    for (size_t i = 0; i < list->n; i++)
        keep_text(a, &list->text[i]);
}

static void keep_value(f8_arena *a, const void *value)
{
    (void)a;
    (void)value;
}

static f8_status take_options(fp8c_training *p, const fp8c_training_options *given,
                              const fp8c_module *module, f8_diag *diag)
{
    f8_train_options *o = &p->options;
    p->own = (fp8c_training_options){.struct_size = sizeof p->own};
    F8_TRY(f8_api_options(&p->own, given, "fp8c_training_options", diag));
    F8_TRY(take_compile(p, p->own.compile, diag));
    F8_TRY(take_own(p, diag));
    if (!module && !p->own.resume)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a module is needed, or resume");
    if (module && module->ctx != p->ctx)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the module is of another context");
    take_module(p, module);
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api)                               \
    o->given[F8_TRAIN_AT_##field] = is_given(&o->field, sizeof o->field);                          \
    _Generic(o->field, const char *: keep_text, f8_option_TEXTS: keep_texts, default: keep_value)( \
        &p->arena, &o->field);
#include "frontend/train/options.def"
#undef OPTION
    F8_TRY(f8_arena_status(&p->arena, diag));
    if (!o->recipe) {
        o->recipe = f8_default_recipe;
        return F8_OK;
    }
    const fp8c_status status = fp8c_recipe_canonical(p->ctx, o->recipe, p->recipe, RECIPE);
    o->recipe = p->recipe;
    p->status = (f8_status)status; /* the message is there */
    return (f8_status)status;
}

/* ---- life ---- */

static void close_all(fp8c_training *p)
{
    f8_training_close(&p->r);
    f8_alarms_end(&p->r.alarms);
    f8_device_health_end(&p->r.health);
    f8_data_close(&p->data);
    f8_folder_close(&p->folder);
    f8_arena_end(&p->arena);
    f8_api_delete(p->ctx, p, sizeof *p);
}

static bool open_data(fp8c_training *p)
{
    f8_diag diag = {0};
    f8_data_options options = f8_train_data_options(&p->options, NULL);
    options.stop = options.stop_together = (f8_stop){asked, p};
    options.model = p->t.file ? p->t.file : "the module";
    options.needs = "training";
    return f8_train_done(&p->t, f8_data_open(&p->data, &options, &diag), &diag);
}

/* Ends a call that has failed, or would be of no use after a failure. stopped: what the caller has
 * done, where nothing else is wrong. */
static fp8c_status end(fp8c_training *p, const char *stopped)
{
    p->over = true;
    f8_folder_close(&p->folder); /* another may go on with the run */
    if (p->status == F8_OK)
        failed(p, p->t.failure != F8_OK ? p->t.failure : F8_ERR_CANCELLED, stopped);
    return (fp8c_status)p->status;
}

/* false: it has failed, or the caller has stopped it. */
static bool start(fp8c_training *p, fp8c_module *module)
{
    f8_train *t = &p->t;
    f8_train_options *o = &p->options;
    f8_diag diag = {0};
    if (!f8_folder_open(&p->folder, t))
        return false;
    o->steps = o->steps ? o->steps : F8_DEFAULT_STEPS;
    if (!f8_train_done(t, f8_training_check(o, &diag), &diag))
        return false;
    fp8c_module *own = module ? NULL : f8_train_parse(t, p->ctx);
    module = module ? module : own;
    const bool ok = module && f8_folder_module(&p->folder, module) && open_data(p) &&
                    f8_training_open(&p->r, module, o->recipe, NULL, NULL) &&
                    f8_training_begin(&p->r, o->seed, &p->result);
    fp8c_module_destroy(own);
    return ok;
}

fp8c_status fp8c_training_create(fp8c_context *ctx, fp8c_module *module,
                                 const fp8c_training_options *options, fp8c_training **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_training *p = f8_api_new(ctx, sizeof *p, _Alignof(fp8c_training), &diag);
    if (!p)
        return f8_api_result(ctx, &diag, diag.status);
    p->ctx = ctx;
    f8_arena_init(&p->arena, &ctx->allocator);
    p->folder.run = F8_RUN_CLOSED;
    p->t = (f8_train){.options = &p->options,
                      .call = {p, failed, say, record, stopped, NULL},
                      .source = module ? module->text : NULL,
                      .list = &ctx->temporaries};
    p->r = (f8_training){.t = &p->t, .ctx = ctx, .data = &p->data, .folder = &p->folder};
    p->result.final_loss = p->result.heldout_loss = p->result.items_per_second = NAN;
    f8_status status = take_options(p, options, module, &diag);
    if (status != F8_OK && p->status == F8_OK)
        f8_api_fail(ctx, &diag, status, NULL, 0);
    if (status == F8_OK && !start(p, module))
        status = (f8_status)end(p, "the training was stopped before its first step");
    if (status == F8_OK)
        *out = p;
    else
        close_all(p);
    return (fp8c_status)status;
}

void fp8c_training_destroy(fp8c_training *training)
{
    if (training)
        close_all(training);
}

/* ---- steps ---- */

static int32_t count_alarms(const fp8c_training *p)
{
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    int n = 0;
    while (p->r.alarms.guard && fp8c_guard_alarm(p->r.alarms.guard, n, &alarm) == FP8C_OK)
        n++;
    return n;
}

static void say_alarm(fp8c_training *p)
{
    char text[400];
    fp8c_alarm alarm = {.struct_size = sizeof alarm};
    const bool known = fp8c_guard_alarm(p->r.alarms.guard, 0, &alarm) == FP8C_OK;
    f8_format(text, sizeof text, "the guard ended the run: %s",
              known ? alarm.text : "it went wrong");
    failed(p, F8_ERR_CANCELLED, text);
}

fp8c_status fp8c_training_run(fp8c_training *p, fp8c_training_step *out)
{
    f8_train_step f = {0};
    fp8c_training_step step = {.struct_size = sizeof step, .heldout_loss = NAN};
    if (p->over && p->status != F8_OK)
        return (fp8c_status)p->status;
    p->r.stops |= !p->over && stopped(p);
    const bool goes_on = !p->over && f8_training_goes_on(&p->r),
               ok = !goes_on || f8_training_step(&p->r, &f);
    step.step = f.step;
    step.steps = p->options.steps;
    step.loss = f.loss;
    step.grad_norm = f.grad_norm;
    step.lr = f.lr;
    step.seconds = f.seconds;
    step.skipped = f.skipped;
    step.alarms = goes_on ? count_alarms(p) : 0;
    if (f.evaluated)
        step.heldout_loss = p->result.heldout_loss;
    if (out)
        f8_api_give(out, &step);
    if (ok)
        return FP8C_OK;
    if (p->r.alarms.stopped)
        say_alarm(p);
    if (p->r.alarms.stopped || p->r.failed) /* tells of the device, sets checkpoints aside */
        f8_training_end(&p->r);
    return end(p, "the training was stopped inside a step");
}

fp8c_status fp8c_training_end(fp8c_training *p)
{
    const bool ok = p->over || (f8_training_end(&p->r) && f8_training_put_profile(&p->r));
    p->over = true;
    f8_folder_close(&p->folder); /* another may go on with the run */
    return ok ? (fp8c_status)p->status : end(p, "the training was stopped");
}

void fp8c_training_report(const fp8c_training *p, fp8c_training_result *out)
{
    const f8_train_result *r = &p->result;
    const fp8c_training_result result = {.struct_size = sizeof result,
                                         .begun_at = p->r.begin,
                                         .done = r->done,
                                         .skipped = r->skipped,
                                         .final_loss = r->final_loss,
                                         .heldout_loss = r->heldout_loss,
                                         .items_per_second = r->items_per_second,
                                         .fp8_gemms = r->fp8_gemms};
    f8_api_give(out, &result);
}

fp8c_program *fp8c_training_program(fp8c_training *p)
{
    return p->r.program;
}
