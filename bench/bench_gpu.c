/* Measures training on a GPU: steps of GPT-2 124M and of a model of MPT-1B's size in bf16 and FP8,
 * against the device's GEMM peak and against the step's GEMMs alone; kernels against the copy
 * bandwidth; losses.
 *
 *     bench_gpu [--json] [--tiny] [--rounds N] [--steps N] [--peer FILE] PART...
 *
 * PARTS, each by itself so that a time limit can be kept:
 *     gpt2 gpt2-even mpt
 *                    (gpt2-even: GPT-2 124M with a vocabulary of 50304 instead of 50257)
 *                    tokens a second; MFU (of the bf16 peak of this run); the step over its GEMMs
 *     kernels        of GPT-2 124M's step: bytes a second by kernel, of the device's copy bandwidth
 *     gemms-gpt2 gemms-mpt
 *                    each distinct GEMM of the model's step under each recipe: gpu_survey
 *     losses         of GPT-2 124M over N steps (200), B = 1; --peer compares with FILE
 *     losses-cpu     those of the CPU target, to write such a file (B = 1; takes hours)
 * --tiny takes models that the emulator can run, to test this program; the figures mean
 * nothing. Rounds of a step and of the GEMMs alone take turns. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/figures.h"
#include "bench/gpu_device.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/program.h"
#include "ir/base/clock.h"

typedef struct bench {
    bool json, tiny;
    int rounds;
    int64_t steps;
    const char *peer;
    gpu_device gpu;
    double copy, peak; /* bytes a second; operations a second in bf16; 0: not measured yet */
} bench;

static const char *const recipes[] = {"bf16", "delayed", "current"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* ---- models ---- */

typedef struct model {
    const char *name, *file;
    fp8c_dim dim[6]; /* of the real run */
    int n_dims;
    fp8c_dim tiny[6];
    int n_tiny;
} model;

static const model gpt2 = {
    "gpt2_124m", "frontend/models/gpt2_124m.f8", {{"B", 16}}, 1,
    {{"B", 2}, {"T", 32}, {"C", 64}, {"H", 2}, {"L", 2}, {"V", 256}}, 6};
static const model gpt2_even = {
    "gpt2_124m_v50304", "frontend/models/gpt2_124m.f8", {{"B", 16}, {"V", 50304}}, 2,
    {{"B", 2}, {"T", 32}, {"C", 64}, {"H", 2}, {"L", 2}, {"V", 264}}, 6};
static const model gpt2_single = {
    "gpt2_124m", "frontend/models/gpt2_124m.f8", {{"B", 1}}, 1,
    {{"B", 1}, {"T", 32}, {"C", 64}, {"H", 2}, {"L", 2}, {"V", 256}}, 6};
static const model mpt = {
    "mpt_1b", "frontend/models/mpt_1b.f8", {{"B", 8}}, 1,
    {{"B", 1}, {"T", 32}, {"C", 64}, {"H", 2}, {"L", 2}, {"V", 256}}, 6};

typedef struct run {
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    int step, update;
    int64_t B, T, C, L, V;
} run;

static run open_run(const bench *x, const model *m, const char *target, const char *recipe,
                    bool profile)
{
    run r = {0};
    size_t size;
    char *text = read_file(m->file, &size);
    const fp8c_compile_options o = {.struct_size = sizeof o, .target = target, .recipe = recipe,
                                    .profile = profile};
    must(fp8c_context_create(NULL, &r.ctx) == FP8C_OK, "context");
    must(fp8c_module_parse(r.ctx, text, size, m->file, x->tiny ? m->tiny : m->dim,
                           (size_t)(x->tiny ? m->n_tiny : m->n_dims), &r.module) == FP8C_OK &&
             fp8c_compile(r.module, &o, &r.program) == FP8C_OK &&
             fp8c_program_initialize(r.program, 1) == FP8C_OK,
         fp8c_context_message(r.ctx));
    free(text);
    r.step = fp8c_program_function(r.program, "micro_step");
    r.update = fp8c_program_function(r.program, "update");
    int64_t *const value[] = {&r.B, &r.T, &r.C, &r.L, &r.V};
    static const char *const name[] = {"B", "T", "C", "L", "V"};
    for (int i = 0; i < 5; i++)
        *value[i] = fp8c_module_dim(r.module, name[i]);
    return r;
}

static void close_run(run *r)
{
    fp8c_program_destroy(r->program);
    fp8c_module_destroy(r->module);
    fp8c_context_destroy(r->ctx);
}

/* ---- steps ---- */

/* A sequence whose next id follows from the two before it, now and then not: it can be learned, and
 * is the same everywhere (bench/gpu_torch.py makes the same). */
static void fill_batch(const run *r, uint64_t number)
{
    int32_t *ids[2];
    static const char *const name[] = {"tokens", "targets"};
    for (int i = 0; i < 2; i++)
        ids[i] =
            fp8c_program_buffer(r->program, r->step, FP8C_INPUT,
                                fp8c_program_find_port(r->program, r->step, FP8C_INPUT, name[i]));
    const uint64_t words = (uint64_t)(r->V < 8192 ? r->V : 8192);
    for (int64_t b = 0; b < r->B; b++) {
        uint64_t x = (number * 1000003u + (uint64_t)b) * 0x9e3779b97f4a7c15u + 1, before = 0,
                 last = 1;
        for (int64_t t = 0; t <= r->T; t++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            const uint64_t next = x % 8 ? (before * 7 + last * 3 + 11) % words : x / 8 % words;
            if (t < r->T)
                ids[0][b * r->T + t] = (int32_t)last;
            if (t > 0)
                ids[1][b * r->T + t - 1] = (int32_t)last;
            before = last;
            last = next;
        }
    }
}

static double run_step(const run *r)
{
    const double start = f8_seconds_now();
    must(fp8c_program_run(r->program, r->step) == FP8C_OK &&
             fp8c_program_run(r->program, r->update) == FP8C_OK &&
             fp8c_program_wait(r->program) == FP8C_OK,
         fp8c_context_message(r->ctx));
    return f8_seconds_now() - start;
}

static float read_loss(const run *r)
{
    return *(const float *)fp8c_program_buffer(
        r->program, r->step, FP8C_OUTPUT,
        fp8c_program_find_port(r->program, r->step, FP8C_OUTPUT, "loss"));
}

/* Operations of a step: the linears' GEMMs as they are run, and attention's, causal, forward and
 * backward without the scores computed anew: 2 products of T x T x C / 2 forward, twice that
 * backward. */
static double count_operations(const run *r)
{
    fp8c_decision d;
    double sum = 6 * 2.0 * (double)(r->B * r->L) * (double)(r->T * r->T) * (double)r->C / 2;
    for (int i = 0; fp8c_program_decision(r->program, i, &d) == FP8C_OK; i++)
        sum += 2.0 * (double)d.m * (double)d.n * (double)d.k * (double)d.count;
    return sum;
}

/* ---- parts ---- */

static void measure_peaks(bench *x)
{
    if (x->copy > 0)
        return;
    x->copy = gpu_copy_bandwidth(&x->gpu, x->tiny ? 1 << 20 : 1 << 30, 20);
    x->peak = gpu_gemm_peak(&x->gpu, x->tiny ? 64 : 8192, F8_BF16, x->tiny ? 2 : 20);
    report(x->json, x->copy / 1e9, "GB/s", "device_copy_bandwidth");
    report(x->json, x->peak / 1e12, "TFLOP/s", "bf16_gemm_peak");
    report(x->json, gpu_gemm_peak(&x->gpu, x->tiny ? 64 : 8192, F8_E4M3, x->tiny ? 2 : 20) / 1e12,
           "TFLOP/s", "fp8_gemm_peak");
}

static void bench_steps(bench *x, const model *m)
{
    measure_peaks(x);
    for (int i = 0; i < N_RECIPES; i++) {
        run r = open_run(x, m, "cuda", recipes[i], false);
        fp8c_info info = {.struct_size = sizeof info};
        fp8c_program_info(r.program, &info);
        gpu_gemms *gemms = gpu_gemms_make(&x->gpu, &r.program->now->plan, (uint32_t)r.step);
        fill_batch(&r, 0);
        for (int k = 0; k < 3; k++) { /* the first captures the graphs */
            run_step(&r);
            gpu_gemms_run(gemms);
        }
        double step[GPU_MOST_RUNS], alone[GPU_MOST_RUNS], ratio[GPU_MOST_RUNS];
        for (int k = 0; k < x->rounds; k++) {
            step[k] = run_step(&r);
            alone[k] = gpu_gemms_run(gemms);
            ratio[k] = step[k] / alone[k];
        }
        const double seconds = median(step, x->rounds), operations = count_operations(&r);
        report(x->json, (double)(r.B * r.T) / seconds, "tokens/s", "%s_tokens_per_second_%s",
               m->name, recipes[i]);
        report(x->json, operations / seconds / x->peak, "of the bf16 peak of the run", "%s_mfu_%s",
               m->name, recipes[i]);
        report(x->json, median(ratio, x->rounds), "ratio", "%s_step_over_gemms_%s", m->name,
               recipes[i]);
        report(x->json, seconds * 1e3, "ms", "%s_step_%s", m->name, recipes[i]);
        report(x->json, median(alone, x->rounds) * 1e3, "ms", "%s_gemms_alone_%s", m->name,
               recipes[i]);
        report(x->json, (double)info.peak_bytes / (1 << 30), "GiB", "%s_peak_memory_%s", m->name,
               recipes[i]);
        report(x->json, info.compile_seconds, "s", "%s_compile_seconds_%s", m->name, recipes[i]);
        must(isfinite(read_loss(&r)), "the loss is not finite");
        gpu_gemms_free(gemms);
        close_run(&r);
    }
}

/* Attention computes more than it moves, and is no measure of bandwidth. */
static bool is_attention(const run *r, int function, int step)
{
    const f8_step *s = &r->program->now->plan.func[function].step[step];
    return s->n_phases && s->phase[0].launch.symbol &&
           !strncmp(s->phase[0].launch.symbol, "attention", 9);
}

typedef struct traffic {
    double bytes, seconds, large_bytes, large_seconds;
} traffic;

static void add_step(bench *x, const run *r, const char *recipe, int function, int step, int runs,
                     traffic *sum)
{
    fp8c_step of, *s = &of;
    fp8c_program_step(r->program, function, step, s);
    const char *where = function == r->step ? "micro_step" : "update";
    const double bytes = (double)(s->bytes_read + s->bytes_written), seconds = s->seconds / runs;
    if (s->kind[0] != 'k' || seconds <= 0)
        return;
    report(x->json, bytes / seconds / x->copy, "of copy bandwidth", "kernel_%s_%s_%s", recipe,
           where, s->name);
    report(x->json, seconds * 1e6, "us", "kernel_time_%s_%s_%s", recipe, where, s->name);
    if (is_attention(r, function, step))
        return;
    sum->bytes += bytes;
    sum->seconds += seconds;
    if (bytes >= (x->tiny ? 0 : 16 << 20)) { /* less can lie in the cache, or end before it began */
        sum->large_bytes += bytes;
        sum->large_seconds += seconds;
    }
}

static void bench_kernels(bench *x)
{
    measure_peaks(x);
    for (int i = 0; i < 2; i++) {
        run r = open_run(x, &gpt2, "cuda", recipes[i], true);
        traffic sum = {0};
        const int runs = x->tiny ? 1 : 10;
        fill_batch(&r, 0);
        for (int k = 0; k < runs; k++)
            run_step(&r);
        const int functions[] = {r.step, r.update};
        fp8c_step s;
        for (int f = 0; f < 2; f++)
            for (int k = 0; fp8c_program_step(r.program, functions[f], k, &s) == FP8C_OK; k++)
                add_step(x, &r, recipes[i], functions[f], k, runs, &sum);
        report(x->json, sum.bytes / sum.seconds / x->copy, "of copy bandwidth",
               "kernels_over_copy_%s", recipes[i]);
        if (sum.large_seconds > 0)
            report(x->json, sum.large_bytes / sum.large_seconds / x->copy, "of copy bandwidth",
                   "large_kernels_over_copy_%s", recipes[i]);
        close_run(&r);
    }
}

/* The loss of a step in a file that losses-cpu left; NaN if there is none. */
static double peer_loss(const char *text, const char *recipe, int64_t step)
{
    char name[96];
    snprintf(name, sizeof name, "\"gpt2_124m_loss_%s_%lld\",\"value\":", recipe, (long long)step);
    const char *at = text ? strstr(text, name) : NULL;
    return at ? strtod(at + strlen(name), NULL) : NAN;
}

static void bench_losses(bench *x, const char *target)
{
    size_t size;
    char *peer = x->peer ? read_file(x->peer, &size) : NULL;
    for (int i = 0; i < 2; i++) {
        run r = open_run(x, &gpt2_single, target, recipes[i], false);
        double tail = 0, most = 0;
        int64_t compared = 0, in_tail = 0;
        for (int64_t step = 1; step <= x->steps; step++) {
            fill_batch(&r, (uint64_t)step);
            run_step(&r);
            const double loss = (double)read_loss(&r), other = peer_loss(peer, recipes[i], step);
            report(x->json, loss, "nats", "gpt2_124m_loss_%s_%lld", recipes[i], (long long)step);
            if (step > x->steps - 20) {
                tail += loss;
                in_tail++;
            }
            if (isfinite(other)) {
                most = fmax(most, fabs(loss / other - 1));
                compared++;
            }
        }
        report(x->json, tail / (double)in_tail, "nats", "gpt2_124m_final_loss_%s_%s", target,
               recipes[i]);
        if (peer) {
            must(compared == x->steps, "the peer's file lacks steps");
            report(x->json, most, "of the loss", "gpt2_124m_loss_most_apart_%s", recipes[i]);
        }
        close_run(&r);
    }
    free(peer);
}

static void bench_gemms(bench *x, const model *m)
{
    static const char *const all[] = {"bf16", "delayed", "rowwise", "block"};
    for (int i = 0; i < 4; i++) {
        run r = open_run(x, m, "cuda", all[i], false);
        gpu_survey(&x->gpu, &r.program->now->plan, m->name, all[i]);
        close_run(&r);
    }
}

/* ---- the command ---- */

static bool run_part(bench *x, const char *part)
{
    if (!strcmp(part, "losses-cpu")) {
        bench_losses(x, "cpu");
        return true;
    }
    if (!x->gpu.cuda)
        x->gpu = gpu_open();
    if (!strcmp(part, "gpt2"))
        bench_steps(x, &gpt2);
    else if (!strcmp(part, "gpt2-even"))
        bench_steps(x, &gpt2_even);
    else if (!strcmp(part, "mpt"))
        bench_steps(x, &mpt);
    else if (!strcmp(part, "gemms-gpt2"))
        bench_gemms(x, &gpt2);
    else if (!strcmp(part, "gemms-mpt"))
        bench_gemms(x, &mpt);
    else if (!strcmp(part, "kernels"))
        bench_kernels(x);
    else if (!strcmp(part, "losses"))
        bench_losses(x, "cuda");
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    bench x = {.rounds = 10, .steps = 200};
    int parts = 0;
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--json"))
            x.json = true;
        else if (!strcmp(argv[i], "--tiny"))
            x.tiny = true;
        else if (!strcmp(argv[i], "--rounds") && more)
            x.rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--steps") && more)
            x.steps = atoll(argv[++i]);
        else if (!strcmp(argv[i], "--peer") && more)
            x.peer = argv[++i];
        else
            argv[++parts] = argv[i];
    }
    must(parts > 0 && x.rounds >= 1 && x.rounds <= GPU_MOST_RUNS && x.steps >= 1,
         "usage: [--json] [--tiny] [--rounds N] [--steps N] [--peer FILE] "
         "gpt2|gpt2-even|mpt|kernels|gemms-gpt2|gemms-mpt|losses|losses-cpu...");
    for (int i = 1; i <= parts; i++)
        must(run_part(&x, argv[i]), "no such part; there are gpt2, gpt2-even, mpt, kernels, "
                                    "gemms-gpt2, gemms-mpt, losses and "
                                    "losses-cpu");
    if (x.gpu.cuda)
        gpu_close(&x.gpu);
    return 0;
}
