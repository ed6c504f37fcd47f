/* fp8c triage: says why a step of a training run went wrong. This file gathers the evidence, as
 * ../triage/README.md describes it, and prints. ../triage/verdict.c draws the verdict. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/cmd_fingerprint.h"
#include "frontend/cli/cmd_replay.h"
#include "frontend/cli/cmd_train.h"
#include "frontend/run/lines.h"
#include "frontend/triage/triage.h"
#include "ir/base/clock.h"

/* ---- what the records say ---- */

/* A step as it was trained. */
typedef struct recorded {
    double loss, grad_norm, lr;
    char loss_hex[40], norm_hex[40], checksum[F8_RUN_HASH]; /* "": there is none */
    json_t *fingerprint;                                    /* records of its functions, or NULL */
} recorded;

typedef struct triage {
    const cli *c;
    cli_folder folder;
    cli_data data;
    cli_json json;
    recorded *step; /* by step, from 1 */
    int64_t n_steps;
    int64_t alarm; /* the step of the first record `warning`; 0: none */
    char alarm_text[120];
    bool failed;
    f8_triage found;
    f8_triage_verdict verdict;
    /* while a step is watched */
    cli_replay *watched;
    cli_fingerprint now; /* of the function that runs */
    f8_triage_value other; /* the first of its values that differs */
    int64_t watched_step;
    int64_t earlier;  /* trials begin at a checkpoint before that of this step; 0: at the newest */
    int64_t too_late; /* the last trial was bad in the first step after this checkpoint */
    f8_triage_value *wrong; /* where the first wrong value goes */
    int64_t from;           /* the replay began after this step */
    cli_replayed bad;       /* what the bad step gave in the first replay */
    int threads;            /* on so many; 0: not on a CPU */
} triage;

static void copy_text(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from ? from : "");
}

static recorded *step_at(triage *t, int64_t step)
{
    return step >= 1 && step <= t->n_steps ? &t->step[step - 1] : NULL;
}

static bool grow(triage *t, int64_t step)
{
    if (step <= t->n_steps)
        return true;
    const bool fits = (uint64_t)step <= SIZE_MAX / sizeof *t->step;
    recorded *grown = fits ? realloc(t->step, (size_t)step * sizeof *grown) : NULL;
    if (!grown)
        return false;
    memset(grown + t->n_steps, 0, (size_t)(step - t->n_steps) * sizeof *grown);
    t->step = grown;
    t->n_steps = step;
    return true;
}

static double of_hex(const char *hex)
{
    return hex ? strtod(hex, NULL) : NAN;
}

static f8_status take(void *user, const f8_run_line *line, f8_diag *diag)
{
    triage *t = user;
    const json_t *r = line->record;
    const char *event = json_string_value(json_object_get(r, "event"));
    const int64_t step = json_integer_value(json_object_get(r, "step"));
    if (!event || step < 1)
        return F8_OK;
    if (!grow(t, step))
        return f8_file_fail(diag, F8_ERR_MEMORY, t->folder.path, "out of memory");
    recorded *s = step_at(t, step);
    if (!strcmp(event, "step")) {
        const char *loss = json_string_value(json_object_get(r, "loss_hex")),
                   *norm = json_string_value(json_object_get(r, "grad_norm_hex"));
        s->loss = of_hex(loss);
        s->grad_norm = of_hex(norm);
        s->lr = json_number_value(json_object_get(r, "lr"));
        copy_text(s->loss_hex, sizeof s->loss_hex, loss);
        copy_text(s->norm_hex, sizeof s->norm_hex, norm);
        copy_text(s->checksum, sizeof s->checksum,
                  json_string_value(json_object_get(r, "checksum")));
    } else if (!strcmp(event, "fingerprint")) {
        if (!s->fingerprint)
            s->fingerprint = json_array();
        json_array_append(s->fingerprint, (json_t *)(uintptr_t)line->record);
    } else if (!strcmp(event, "warning") && !t->alarm) {
        const json_int_t since = json_integer_value(json_object_get(r, "since"));
        const char *kind = json_string_value(json_object_get(r, "kind"));
        const bool explodes = kind && !strcmp(kind, "loss_explodes");
        t->alarm = explodes && since + 1 < step ? since + 1 : step; /* the first far loss */
        copy_text(t->alarm_text, sizeof t->alarm_text,
                  json_string_value(json_object_get(r, "message")));
    }
    return F8_OK;
}

static bool read_records(triage *t)
{
    f8_diag diag = {0};
    return f8_run_lines(f8_run_path(&t->folder.run, "steps.jsonl"), take, t, NULL, &diag) ==
               F8_OK ||
           cli_file_fail(&diag);
}

/* ---- which step ---- */

static bool is_far(fp8c_guard *g, int64_t step, double loss)
{
    const fp8c_guard_facts facts = {.struct_size = sizeof facts, .step = step, .loss = loss};
    return fp8c_guard_step(g, &facts) == FP8C_OK && fp8c_guard_far(g);
}

/* Whether a replayed step is bad by the rule of train's guard. Its loss is compared with the losses
 * before the bad step, also if it is a later step: a trial must not teach the guard its own losses.
 */
static bool is_bad(triage *t, const cli_replayed *r)
{
    fp8c_context *ctx = NULL; /* not the one that is watched for signals */
    fp8c_guard *g = NULL;
    bool bad = !r->finite;
    if (fp8c_context_create(NULL, &ctx) == FP8C_OK && fp8c_guard_create(ctx, NULL, &g) == FP8C_OK) {
        for (int64_t s = 1; s < t->found.step; s++)
            if (*t->step[s - 1].loss_hex)
                is_far(g, s, t->step[s - 1].loss);
        bad |= is_far(g, t->found.step, r->loss);
    }
    fp8c_guard_destroy(g);
    fp8c_context_destroy(ctx);
    return bad;
}

static bool choose_step(triage *t)
{
    f8_triage *f = &t->found;
    for (int64_t s = 1; s <= t->n_steps && !t->alarm; s++) {
        const recorded *r = &t->step[s - 1];
        if (!*r->loss_hex || (isfinite(r->loss) && (!*r->norm_hex || isfinite(r->grad_norm))))
            continue;
        t->alarm = s;
        copy_text(t->alarm_text, sizeof t->alarm_text,
                  isfinite(r->loss) ? "the gradient norm is not finite" : "the loss is not finite");
    }
    f->step = t->c->bad_step ? t->c->bad_step : t->alarm;
    if (!f->step) {
        fprintf(stderr, "%s: error: no record says that a step is bad; --step N names one\n",
                t->folder.path);
        return false;
    }
    if (f->step > t->n_steps || !*t->step[f->step - 1].loss_hex) {
        fprintf(stderr, "%s: error: --step %" PRId64 ": there is no record of that step\n",
                t->folder.path, f->step);
        return false;
    }
    if (f->step == t->alarm)
        copy_text(f->why, sizeof f->why, t->alarm_text);
    else
        copy_text(f->why, sizeof f->why, "--step names it");
    return true;
}

/* The step after which the run was last changed. Steps up to it were trained under another recipe,
 * schedule or number of ranks, so they can't be replayed. */
static int64_t last_change(const triage *t)
{
    const json_t *all = json_object_get(t->folder.run.info, "resumed");
    int64_t since = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *mark = json_array_get(all, i);
        if (json_is_true(json_object_get(mark, "changed")))
            since = json_integer_value(json_object_get(mark, "step"));
    }
    return since;
}

/* The witness is the reference interpreter. */
static bool has_witness(const triage *t)
{
    if (!t->c->target || strncmp(t->c->target, "reference", 9))
        return true;
    fprintf(stderr, "%s: error: it was trained on target reference, which nothing can judge\n",
            t->folder.path);
    return false;
}

static bool has_ranks(const triage *t)
{
    const json_int_t then = json_integer_value(json_object_get(t->folder.run.info, "ranks"));
    const int now = t->c->ranks ? t->c->ranks->comm.ranks : 1;
    if (then == now)
        return true;
    fprintf(stderr,
            "%s: error: it was trained by %d rank%s, and its steps have other bits on %d; "
            "mpirun -n %d fp8c triage asks as many\n",
            t->folder.path, (int)then, then == 1 ? "" : "s", now, (int)then);
    return false;
}

/* ---- progress ---- */

static void say(const triage *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const triage *t, const char *format, ...)
{
    va_list args;
    if (cli_json_to_stdout(t->c) || cli_ranks_follows(t->c->ranks))
        return;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

/* ---- watching ---- */

static void note_value(f8_triage_value *to, const fp8c_program *p, const fp8c_witnessed *v)
{
    if (to->known)
        return;
    to->known = true;
    copy_text(to->function, sizeof to->function, fp8c_program_function_name(p, v->function));
    copy_text(to->kind, sizeof to->kind, v->kind);
    copy_text(to->op, sizeof to->op, v->name);
    copy_text(to->value, sizeof to->value, v->value);
    to->at = v->at;
    to->wrong = v->wrong;
    to->got = v->got;
    to->want = v->want;
    to->allowed = v->allowed;
}

/* Compares a value of a replay with its hash in the record. */
static void compare_value(void *user, const fp8c_witnessed *v)
{
    triage *t = user;
    const size_t index = t->now.n++;
    if (index < t->now.room && t->now.value[index] != v->hash)
        note_value(&t->other, t->watched->program, v);
}

static void see_value(void *user, const fp8c_witnessed *v)
{
    triage *t = user;
    const fp8c_program *p = t->watched->program;
    t->found.judged += v->verdict != FP8C_NOT_JUDGED && t->wrong == &t->found.wrong;
    if (v->verdict == FP8C_WRONG)
        note_value(t->wrong, p, v);
    if (t->wrong != &t->found.wrong) /* another recipe than the run's */
        return;
    if (v->nonfinite && !t->found.nonfinite.known) {
        note_value(&t->found.nonfinite, p, v);
        t->found.nonfinite.at = v->nonfinite_at;
        copy_text(t->found.nonfinite_input, sizeof t->found.nonfinite_input, v->nonfinite_input);
        copy_text(t->found.nonfinite_op, sizeof t->found.nonfinite_op, v->nonfinite_op);
    }
}

/* false: a variable has NaN or Inf. A variable that is not f32, or can't be read, is not looked at.
 */
static bool is_finite_variable(fp8c_program *p, int index, const fp8c_variable *v)
{
    const size_t bytes = (size_t)fp8c_type_bytes(&v->type), n = bytes / sizeof(float);
    if (v->type.dtype != FP8C_F32)
        return true;
    float *copy = malloc(bytes ? bytes : 1);
    bool finite = !copy || fp8c_program_read(p, index, copy) != FP8C_OK;
    if (!finite) {
        finite = true;
        for (size_t i = 0; i < n && finite; i++)
            finite = isfinite(copy[i]);
    }
    free(copy);
    return finite;
}

static bool is_written(const cli_replay *r, int variable)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(r->program, r->micro_step, FP8C_OUTPUT, i, &port) == FP8C_OK;
         i++)
        if (port.variable == variable)
            return true;
    return false;
}

/* Compares the variables before update with those of the record. Only those count that micro_step
 * does not write. */
static void compare_variables(triage *t, cli_replay *r, const cli_fingerprint *then)
{
    cli_fingerprint now = {0};
    fp8c_variable v;
    cli_fingerprint_variables(&now, r->program);
    for (size_t i = 0; i < now.n_variables && i < then->n_variables && !*t->found.variable; i++)
        if (now.variable[i] != then->variable[i] && !is_written(r, (int)i) &&
            fp8c_program_variable(r->program, (int)i, &v) == FP8C_OK)
            copy_text(t->found.variable, sizeof t->found.variable, v.name);
    cli_fingerprint_free(&now);
}

/* A record with more values or fewer is damaged, or of another plan: it says nothing. */
static void end_function(triage *t)
{
    if (t->now.n == t->now.room && !t->found.first.known)
        t->found.first = t->other;
    t->other = (f8_triage_value){0};
    cli_fingerprint_free(&t->now);
}

/* Whether what the variables were before the watched step is known: else update may have written
 * them wrongly, in a step without a fingerprint. */
static bool is_known_before(triage *t)
{
    const recorded *s = step_at(t, t->watched_step - 1);
    return t->watched_step - 1 == t->from || (s && s->fingerprint);
}

/* Finds the function's record of the watched step: it is of rank 0. */
static void begin_function(void *user, int function, int64_t micro_step)
{
    triage *t = user;
    const recorded *s = cli_ranks_follows(t->c->ranks) ? NULL : step_at(t, t->watched_step);
    const char *name = fp8c_program_function_name(t->watched->program, function);
    end_function(t);
    for (size_t i = 0; s && i < json_array_size(s->fingerprint); i++)
        if (cli_fingerprint_read(&t->now, json_array_get(s->fingerprint, i), name, micro_step)) {
            t->found.fingerprints = true;
            break;
        }
    if (t->now.variable && is_known_before(t))
        compare_variables(t, t->watched, &t->now);
    t->now.room = t->now.n; /* what there is to compare with */
    t->now.n = 0;
}

/* ---- steps of the replay ---- */

static const char *difference(const recorded *s, const cli_replayed *now)
{
    char loss[40], norm[40];
    if (*s->loss_hex && strcmp(cli_hex(now->loss, loss), s->loss_hex))
        return "loss";
    if (*s->norm_hex && strcmp(cli_hex(now->grad_norm, norm), s->norm_hex))
        return "gradient norm";
    return NULL;
}

/* Whether the state after a step has the checksum of its record, if there is one. */
static bool has_checksum(cli_replay *r, const recorded *s)
{
    f8_diag diag = {0};
    char sum[F8_RUN_HASH];
    if (!*s->checksum || f8_run_checksum(r->program, sum, &diag) != F8_OK)
        return true;
    return !strcmp(sum, s->checksum);
}

/* Replays the next step. If it has a fingerprint, the first value that differs is noted. */
static bool replay_one(triage *t, cli_replay *r, cli_replayed *out)
{
    const recorded *s = step_at(t, r->at + 1);
    const cli_replay_watch watch = {.value = compare_value, .begin = begin_function, .user = t};
    t->watched = r;
    t->watched_step = r->at + 1;
    const bool ok = cli_replay_step(r, 0, s && s->fingerprint ? &watch : NULL, out);
    end_function(t);
    return ok;
}

/* Whether `mine` is true on any rank: all must take the same branch. */
static bool any_rank(const triage *t, bool mine)
{
    int32_t own = mine, all[F8_MAX_RANKS] = {own};
    cli_ranks *ranks = t->c->ranks;
    if (ranks && ranks->comm.all_gather(ranks->comm.user, &own, all, sizeof own))
        return mine;
    for (int i = 0; ranks && i < ranks->comm.ranks; i++)
        own |= all[i];
    return own != 0;
}

/* What differs in the step that was replayed; NULL: nothing. Ranks agree whether something does. */
static const char *differs_in(triage *t, cli_replay *r, const cli_replayed *now)
{
    const recorded *s = step_at(t, r->at);
    const char *what = s ? difference(s, now) : NULL;
    if (s && !what && (t->found.first.known || *t->found.variable))
        what = "fingerprint";
    if (!any_rank(t, what != NULL) && s && !has_checksum(r, s))
        what = "checksum of all variables";
    return any_rank(t, what != NULL) && !what ? "fingerprint" : what;
}

/* Replays up to step `end` and stops at the first that has other bits than its record. */
static bool replay_to(triage *t, cli_replay *r, int64_t end, cli_replayed *last)
{
    f8_triage *f = &t->found;
    f->differs = 0;
    t->from = r->at;
    while (r->at < end && !f->differs) {
        if (!replay_one(t, r, last))
            return false;
        f->differs_in = differs_in(t, r, last);
        f->differs = f->differs_in ? r->at : 0;
    }
    return true;
}

/* ---- the device ---- */

static void look_for_nonfinite(triage *t, cli_replay *r)
{
    fp8c_variable v;
    fp8c_port port;
    for (int i = 0; fp8c_program_variable(r->program, i, &v) == FP8C_OK && !*t->found.state; i++)
        if (!is_finite_variable(r->program, i, &v))
            copy_text(t->found.state, sizeof t->found.state, v.name);
    if (!cli_data_fill(r->data, r->program, r->micro_step, r->c->seed,
                       (uint64_t)(r->at * r->accumulate)))
        return;
    for (int i = 0; fp8c_program_port(r->program, r->micro_step, FP8C_INPUT, i, &port) == FP8C_OK;
         i++) {
        const float *x = port.variable < 0 && port.type.dtype == FP8C_F32
                             ? fp8c_program_buffer(r->program, r->micro_step, FP8C_INPUT, i)
                             : NULL;
        const int64_t n = fp8c_type_bytes(&port.type) / (int64_t)sizeof(float);
        for (int64_t k = 0; x && k < n && !*t->found.input; k++)
            if (!isfinite(x[k]))
                copy_text(t->found.input, sizeof t->found.input, port.name);
    }
}

/* Replays a step once more with a witness, which judges its values. `wrong` gets the first wrong
 * one. */
static bool judge(triage *t, cli_replay *r, int64_t step, f8_triage_value *wrong)
{
    const cli_replay_watch watch = {.judge = true, .value = see_value, .user = t};
    cli_replayed out;
    if (!cli_replay_load(r, step))
        return false;
    while (r->at + 1 < step)
        if (!cli_replay_step(r, 0, NULL, &out))
            return false;
    t->watched = r;
    t->wrong = wrong;
    if (wrong == &t->found.wrong)
        t->found.judged = 0;
    if (step == t->found.step && wrong == &t->found.wrong && !t->found.differs)
        look_for_nonfinite(t, r);
    return cli_replay_step(r, 0, &watch, &out);
}

enum { SEARCH = 60 }; /* seconds after which no more steps are looked at */

static void say_replayed(const triage *t, int64_t from, int64_t to)
{
    const f8_triage *f = &t->found;
    char outcome[100] = "the bits of the records";
    if (f->differs)
        snprintf(outcome, sizeof outcome, "step %" PRId64 " has another %s than its record",
                 f->differs, f->differs_in);
    say(t, "replayed steps %" PRId64 " to %" PRId64 " from the checkpoint of step %" PRId64 ": %s",
        from + 1, to, from, outcome);
}

static bool same_bits(const cli_replayed *a, const cli_replayed *b)
{
    char loss[2][40], norm[2][40];
    return !strcmp(cli_hex(a->loss, loss[0]), cli_hex(b->loss, loss[1])) &&
           !strcmp(cli_hex(a->grad_norm, norm[0]), cli_hex(b->grad_norm, norm[1]));
}

/* Replays once more up to the step that differs. `first` is what the first replay gave. */
static bool replay_again(triage *t, cli_replay *r, const cli_replayed *first)
{
    f8_triage *f = &t->found;
    cli_replayed second = *first;
    if (!cli_replay_load(r, f->checkpoint + 1))
        return false;
    while (r->at < f->differs)
        if (!cli_replay_step(r, 0, NULL, &second))
            return false;
    f->unstable = !same_bits(first, &second);
    say(t, "replayed once more: %s", f->unstable ? "other bits" : "the same bits");
    return true;
}

/* How many threads a CPU's program runs on; 0: another target's. */
static int threads_of(const cli_replay *r)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(r->program, &info);
    return strncmp(fp8c_program_target(r->program), "cpu", 3) ? 0 : info.threads;
}

/* Replays on another number of threads: a CPU that then gives other bits is at fault. By now no
 * other program takes memory. */
static bool replay_on_other_threads(triage *t)
{
    f8_triage *f = &t->found;
    cli own = *t->c;
    cli_replay r = {
        .c = &own, .folder = &t->folder, .data = &t->data, .quiet = true, .since = last_change(t)};
    cli_replayed last;
    if (!t->threads || f->differs || f->wrong.known)
        return true;
    f->threads = own.threads = t->threads == 1 ? 2 : 1;
    bool ok = cli_replay_open(&r, &(cli_replay_as){0}) && cli_replay_load(&r, f->step);
    while (ok && r.at < f->step)
        ok = cli_replay_step(&r, 0, NULL, &last);
    cli_replay_close(&r);
    if (!ok)
        return false;
    f->unstable = any_rank(t, !same_bits(&t->bad, &last));
    say(t, "on %d thread%s: %s", f->threads, f->threads == 1 ? "" : "s",
        f->unstable ? "other bits" : "the same bits");
    return true;
}

/* Replays the steps before the checkpoint from older ones, while there is time: the state may have
 * gone wrong there. */
static bool look_back(triage *t, cli_replay *r, cli_replayed *out)
{
    f8_triage *f = &t->found;
    const double start = f8_seconds_now();
    int64_t end = f->checkpoint;
    while (!f->differs && any_rank(t, f8_seconds_now() - start < SEARCH) &&
           cli_replay_load_older(r, end)) {
        const int64_t from = r->at;
        if (!replay_to(t, r, end, out))
            return false;
        say_replayed(t, from, r->at);
        end = from;
    }
    if (f->differs)
        f->checkpoint = end;
    return true;
}

static bool has_found(const triage *t)
{
    const f8_triage *f = &t->found;
    return any_rank(t, f->wrong.known || *f->input);
}

/* Replays the run up to the bad step, and judges what the device computed. */
static bool look_at_device(triage *t, cli_replay *r)
{
    f8_triage *f = &t->found;
    cli_replayed last;
    f->records = true;
    if (!cli_replay_load(r, f->step))
        return false;
    r->quiet = true;
    f->checkpoint = r->at;
    f->passed_over = r->passed_over;
    if (!replay_to(t, r, f->step, &last))
        return false;
    say_replayed(t, f->checkpoint, r->at);
    f->replay_bad = is_bad(t, &last);
    f->infinite = !last.finite;
    t->bad = last;
    t->threads = threads_of(r);
    if (!f->differs &&
        (!judge(t, r, f->step, &f->wrong) || (!has_found(t) && !look_back(t, r, &last))))
        return false;
    return !f->differs || (replay_again(t, r, &last) && judge(t, r, f->differs, &f->wrong));
}

/* ---- ranks ---- */

/* What one rank has found. */
typedef struct told {
    int64_t judged;
    f8_triage_value wrong;
    char input[64], state[128], host[64];
} told;

/* Finds the first rank whose device is wrong, else the first whose inputs or variables before the
 * step are not finite. All ranks then have what that rank has found. */
static bool gather(triage *t)
{
    f8_triage *f = &t->found;
    cli_ranks *ranks = t->c->ranks;
    told mine = {.judged = f->judged, .wrong = f->wrong};
    f->ranks = ranks ? ranks->comm.ranks : 1;
    f->rank = -1;
    if (!ranks)
        return true;
    copy_text(mine.input, sizeof mine.input, f->input);
    copy_text(mine.state, sizeof mine.state, f->state);
    if (gethostname(mine.host, sizeof mine.host - 1))
        mine.host[0] = 0;
    told *all = calloc((size_t)f->ranks, sizeof *all);
    cli_peers_name(ranks->peers, "what triage has found");
    if (!all || ranks->comm.all_gather(ranks->comm.user, &mine, all, sizeof mine)) {
        fprintf(stderr, "fp8c: error: %s\n",
                all ? ranks->comm.message(ranks->comm.user) : "out of memory");
        free(all);
        return false;
    }
    f->judged = 0;
    for (int i = 0; i < f->ranks; i++)
        f->judged += all[i].judged;
    for (int i = f->ranks; i-- > 0;) {
        const bool odd = all[i].wrong.known || *all[i].input || *all[i].state;
        if (!odd || (f->rank >= 0 && all[f->rank].wrong.known && !all[i].wrong.known))
            continue;
        f->rank = i;
        f->wrong = all[i].wrong;
        copy_text(f->input, sizeof f->input, all[i].input);
        copy_text(f->state, sizeof f->state, all[i].state);
        copy_text(f->host, sizeof f->host, all[i].host);
    }
    free(all);
    return true;
}

/* Finds the first step from `first` to f->began that has a wrong value. It halves the steps in
 * between, as a device that is wrong is assumed to stay so. */
static bool halve(triage *t, cli_replay *r, int64_t first, double start)
{
    f8_triage *f = &t->found;
    while (first < f->began && any_rank(t, f8_seconds_now() - start < SEARCH)) {
        f8_triage_value own = {0};
        const int64_t middle = first + (f->began - first) / 2;
        if (!judge(t, r, middle, &own))
            return false;
        if (!any_rank(t, own.known)) {
            first = middle + 1;
            continue;
        }
        f->began = middle;
        if (own.known)
            f->wrong = own;
    }
    return true;
}

/* The first step in which a value is wrong, as far as there are checkpoints and time. */
static bool find_begin(triage *t, cli_replay *r)
{
    f8_triage *f = &t->found;
    const double start = f8_seconds_now();
    int64_t from = f->checkpoint;
    f->began = f->differs ? f->differs : f->step;
    while (halve(t, r, from + 1, start)) {
        if (f->began > from + 1 || !any_rank(t, f8_seconds_now() - start < SEARCH) ||
            !cli_replay_load_older(r, from))
            return true;
        from = r->at;
    }
    return false;
}

/* Whether the device computes a wrong value under bf16, too. */
static bool look_at_bf16(triage *t)
{
    cli_replay r = {
        .c = t->c, .folder = &t->folder, .data = &t->data, .quiet = true, .since = last_change(t)};
    f8_triage_value own = {0};
    if (!t->found.wrong.known || !strcmp(t->c->recipe, "bf16"))
        return true;
    const bool ok = cli_replay_open(&r, &(cli_replay_as){.recipe = "bf16", .witness = true}) &&
                    judge(t, &r, t->found.step, &own);
    cli_replay_close(&r);
    if (!ok)
        return false;
    t->found.wrong_in_bf16 = own;
    t->found.wrong_in_bf16.known = any_rank(t, own.known);
    say(t, "under bf16 the same step has %s",
        t->found.wrong_in_bf16.known ? "a wrong value, too" : "no wrong value");
    return true;
}

/* ---- numerics ---- */

enum { BEYOND = 20 };   /* more steps that a trial trains, since it may go wrong only later */
enum { EXCHANGED = 3 }; /* batches, at most */

enum { FAR = 1000003 }; /* batches ahead */

/* Steps that get another batch: the one that is `ahead` batches later. */
typedef struct exchanged {
    int64_t step[EXCHANGED];
    int n;
    int64_t ahead;
} exchanged;

static int64_t batch_of(const exchanged *other, int64_t step)
{
    for (int i = 0; other && i < other->n; i++)
        if (other->step[i] == step)
            return step + other->ahead;
    return 0;
}

/* A trial: trains the same steps from the same checkpoint under other conditions, and BEYOND more.
 * `other` may be NULL. */
static bool try_as(triage *t, const char *what, const cli_replay_as *as, const exchanged *other)
{
    f8_triage *f = &t->found;
    cli_replay r = {
        .c = t->c, .folder = &t->folder, .data = &t->data, .quiet = true, .since = last_change(t)};
    cli_replayed out = {0};
    bool bad = false,
         ok = cli_replay_open(&r, as) && ((t->earlier && cli_replay_load_older(&r, t->earlier)) ||
                                          cli_replay_load(&r, f->step));
    const int64_t from = r.at;
    while (ok && r.at < f->step + BEYOND && !bad) {
        ok = cli_replay_step(&r, batch_of(other, r.at + 1), NULL, &out);
        bad = ok && is_bad(t, &out);
    }
    const int64_t last = r.at;
    t->too_late = bad && last == from + 1 ? from : 0;
    cli_replay_close(&r);
    if (!ok || f->n_trials == F8_TRIAGE_TRIALS)
        return false;
    f->trial[f->n_trials++] = (f8_triage_trial){what, true, bad, out.loss, last};
    say(t, "with %s: %s, loss %.4f at step %" PRId64, what, bad ? "bad" : "good",
        isnan(out.loss) ? NAN : out.loss, last); /* a NaN without its sign */
    return true;
}

/* Tries other batches. Rows of a file come again, so a bad row may make a later step bad: that gets
 * another batch, too. The other batch may have the bad row itself, so two are tried. */
static bool try_batches(triage *t)
{
    f8_triage *f = &t->found;
    exchanged other = {{f->step}, 1, FAR};
    const char *what = "another batch";
    for (;; what = "other batches") {
        if (!try_as(t, what, &(cli_replay_as){0}, &other))
            return false;
        f8_triage_trial *trial = &f->trial[f->n_trials - 1];
        const bool again = batch_of(&other, trial->step) != 0;
        trial->what = "another batch";
        if (!trial->bad || (again ? other.ahead > FAR : other.n == EXCHANGED))
            return true;
        if (again)
            other.ahead += FAR;
        else
            other.step[other.n++] = trial->step;
        f->n_trials--;
    }
}

static bool is_healed(const triage *t, const char *what)
{
    const f8_triage_trial *trial = f8_triage_find(&t->found, what);
    return trial && !trial->bad;
}

/* The SQNR less a penalty for elements that saturate or become 0: large elements that stay can hide
 * these from the SQNR. */
static double quality_of(const fp8c_statistic *s)
{
    return isfinite(s->sqnr) ? s->sqnr - 1000 * s->overflow - 100 * s->underflow : -INFINITY;
}

/* Finds the operand that FP8 takes worst, by the statistics of the bad step. */
static bool find_operand(triage *t)
{
    f8_triage *f = &t->found;
    cli_replay r = {
        .c = t->c, .folder = &t->folder, .data = &t->data, .quiet = true, .since = last_change(t)};
    fp8c_statistic s = {.struct_size = sizeof s};
    cli_replayed out;
    double worst = INFINITY;
    bool ok = cli_replay_open(&r, &(cli_replay_as){.stats = "*"}) && cli_replay_load(&r, f->step);
    while (ok && r.at + 1 < f->step)
        ok = cli_replay_step(&r, 0, NULL, &out);
    r.micro_step = ok ? fp8c_program_function(r.program, "micro_step.stats") : -1;
    ok = ok && r.micro_step >= 0 && cli_replay_step(&r, 0, NULL, &out);
    for (int i = 0; ok && fp8c_program_statistic(r.program, r.micro_step, i, &s) == FP8C_OK; i++) {
        const double quality = quality_of(&s);
        if (!s.recipe || s.nonfinite || quality >= worst)
            continue;
        worst = quality;
        copy_text(f->operand, sizeof f->operand, s.name);
        copy_text(f->linear, sizeof f->linear, s.linear);
        f->sqnr = s.sqnr;
        f->overflow = s.overflow;
        f->underflow = s.underflow;
    }
    cli_replay_close(&r);
    return ok;
}

static bool find_cure(triage *t)
{
    static const char *const recipes[] = {"current", "rowwise", "block"};
    char rule[160], fake[CLI_RECIPE + 20];
    snprintf(fake, sizeof fake, "%s {fake = true}", t->c->recipe);
    if (!find_operand(t) || (!strchr(t->c->recipe, '{') && strcmp(t->c->recipe, "fake") &&
                             !try_as(t, "fake", &(cli_replay_as){.recipe = fake}, NULL)))
        return false;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        if (!strcmp(recipes[i], t->c->recipe))
            continue;
        if (!try_as(t, recipes[i], &(cli_replay_as){.recipe = recipes[i]}, NULL))
            return false;
        if (is_healed(t, recipes[i]))
            return true;
    }
    if (!*t->found.linear)
        return true;
    snprintf(rule, sizeof rule, "\"%s\" = bf16", t->found.linear);
    return try_as(t, F8_TRIAGE_LINEAR, &(cli_replay_as){.rule = rule}, NULL);
}

/* The rate that the schedule multiplies, if --lr did not give it: the highest of the records. */
static double highest_rate(const triage *t)
{
    double rate = t->c->lr;
    for (int64_t s = 0; s < t->n_steps && !(t->c->lr > 0); s++)
        rate = fmax(rate, t->step[s].lr);
    return rate;
}

/* Tries lower rates under bf16 until one is good. */
static bool try_rates_once(triage *t)
{
    static const char *const what[] = {"lr / 4", "lr / 16", "lr / 64"};
    double rate = highest_rate(t);
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        rate /= 4;
        if (!try_as(t, what[i], &(cli_replay_as){.recipe = "bf16", .lr = rate}, NULL))
            return false;
        if (is_healed(t, what[i]))
            return true;
    }
    return true;
}

/* A lower rate can't change the loss of the first step after a checkpoint. If that is bad, the
 * rates are tried from older checkpoints. */
static bool try_rates(triage *t)
{
    const size_t before = t->found.n_trials;
    bool ok = try_rates_once(t);
    while (ok && t->too_late > 0 && (!t->earlier || t->too_late < t->earlier)) {
        t->earlier = t->too_late;
        t->found.n_trials = before;
        say(t,
            "the first step after the checkpoint is bad already: trying from one before step "
            "%" PRId64,
            t->earlier);
        ok = try_rates_once(t);
    }
    t->earlier = 0;
    return ok;
}

/* Runs trials until one heals the step, if the device is right and the replay is bad, too. */
static bool look_at_numerics(triage *t)
{
    const f8_triage *f = &t->found;
    const bool fp8 = strcmp(t->c->recipe, "bf16") && strcmp(t->c->recipe, "f32");
    if (f->unstable || f->wrong.known || f->differs || *f->input || *f->state || !f->replay_bad)
        return true;
    if (!try_batches(t))
        return false;
    if (is_healed(t, "another batch"))
        return true;
    if (!try_as(t, "bf16", &(cli_replay_as){.recipe = "bf16"}, NULL))
        return false;
    if (is_healed(t, "bf16") && fp8)
        return find_cure(t);
    if (!try_rates(t))
        return false;
    /* f32 comes last, because it takes more memory than the run */
    return !f->trial[f->n_trials - 1].bad ||
           try_as(t, "f32", &(cli_replay_as){.recipe = "f32"}, NULL);
}

/* ---- the outcome ---- */

static json_t *value_record(const f8_triage_value *v)
{
    return v->known ? json_pack("{ss ss ss ss}", "function", v->function, "kind", v->kind, "op",
                                v->op, "value", v->value)
                    : json_null();
}

static void record(triage *t)
{
    const f8_triage *f = &t->found;
    const f8_triage_verdict *v = &t->verdict;
    json_t *trials = json_array();
    for (size_t i = 0; i < f->n_trials; i++)
        json_array_append_new(trials, json_pack("{ss sb so}", "with", f->trial[i].what, "bad",
                                                (int)f->trial[i].bad, "loss",
                                                cli_json_number(f->trial[i].loss)));
    cli_json_record(
        &t->json,
        json_pack("{ss ss ss sI sI ss sI sI sI ss? so sI so so so ss ss so?}", "event", "triage",
                  "run", t->folder.path, "class", f8_triage_class_name[v->class], "step",
                  (json_int_t)v->step, "bad_step", (json_int_t)f->step, "why", f->why, "checkpoint",
                  (json_int_t)f->checkpoint, "passed_over", (json_int_t)f->passed_over, "differs",
                  (json_int_t)f->differs, "differs_in", f->differs ? f->differs_in : NULL, "value",
                  value_record(&v->value), "judged", (json_int_t)f->judged, "wrong",
                  value_record(&f->wrong), "nonfinite", value_record(&f->nonfinite), "trials",
                  trials, "text", v->text, "advice", v->advice, "rank",
                  v->rank < 0 ? NULL : json_integer(v->rank)));
}

static int investigate(triage *t)
{
    cli_replay r = {.c = t->c, .folder = &t->folder, .data = &t->data, .since = last_change(t)};
    t->found.recipe = t->c->recipe;
    bool ok = has_ranks(t) && has_witness(t) && read_records(t) && choose_step(t);
    if (ok)
        say(t, "%s: step %" PRId64 " is bad: %s", t->folder.path, t->found.step, t->found.why);
    ok = ok && cli_replay_open(&r, &(cli_replay_as){.witness = true}) &&
         cli_folder_fits(&t->folder, r.ctx, r.program, &t->data) && look_at_device(t, &r);
    if (ok && any_rank(t, t->found.wrong.known))
        ok = find_begin(t, &r);
    cli_replay_close(&r);
    ok = ok && gather(t);
    if (ok)
        say(t, "step %" PRId64 ": %" PRId64 " values judged on their own inputs: %s",
            t->found.differs ? t->found.differs : t->found.step, t->found.judged,
            t->found.wrong.known ? "one is wrong" : "all are right");
    ok = ok && look_at_bf16(t) && replay_on_other_threads(t) && look_at_numerics(t);
    if (!ok)
        return CLI_FAILED;
    f8_triage_judge(&t->found, &t->verdict);
    say(t, "\nverdict: %s\n%s\n\nwhat to do: %s", f8_triage_class_name[t->verdict.class],
        t->verdict.text, t->verdict.advice);
    record(t);
    return CLI_DONE;
}

static void end(triage *t)
{
    for (int64_t s = 0; s < t->n_steps; s++)
        json_decref(t->step[s].fingerprint);
    free(t->step);
    cli_data_close(&t->data);
    cli_folder_close(&t->folder);
}

/* The module of the run, and this rank's part of a batch. */
static bool load_module(triage *t, cli *c)
{
    fp8c_context *ctx;
    fp8c_module *module;
    if (!cli_load(c, &ctx, &module))
        return false;
    const bool ok = cli_folder_module(&t->folder, module) &&
                    (!c->ranks || cli_ranks_divide(c->ranks, c, module));
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return ok;
}

static int run_triage(triage *t, cli *c, const char *folder)
{
    int code = CLI_FAILED;
    if (!cli_folder_look(&t->folder, c, folder))
        return code;
    c->steps = c->steps ? c->steps : CLI_STEPS;
    c->stats = c->stats_recipe = c->dump = NULL;
    if (load_module(t, c) && cli_data_open(&t->data, c) && cli_json_open(&t->json, c->json)) {
        code = investigate(t);
        if (!cli_json_close(&t->json))
            code = CLI_FAILED;
    }
    return code;
}

int cmd_triage(const cli *given)
{
    cli own = *given;
    cli_ranks ranks;
    triage t = {.c = &own};
    own.file = NULL;
    own.resume = given->file;
    if (!cli_ranks_join(&ranks, &own))
        return cli_ranks_leave(&ranks, CLI_FAILED);
    const int code = run_triage(&t, &own, given->file);
    end(&t);
    return cli_ranks_leave(&ranks, code);
}
