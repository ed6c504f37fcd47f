/* What a burn computes, and the answers: see burn.h.
 *
 * GEMMs: x and dy are integers in [-4, 4], w is -1, 0 or 1. Every FP8 format has these, and scales
 * are powers of two, so operands are exact under each recipe. Sums of products stay below 2^17 and
 * mostly below 2^12: exact in f32 in any order. Results and gradients that are f32 are not rounded.
 *
 * Attention: a query is one of the keys, whose elements are -1 or 1. It scores 8 * 64 = 512 with
 * the four keys that are equal to it, and much less with all others: the softmax gives 1/4 to the
 * four and, as e^-100 is nothing beside 1, almost 0 to the rest. So the answer is the mean of four
 * rows of v, which are integers whose sum is not 0: beside a sum of 0 the rest would show, if only
 * in its sign.
 *
 * Kernels: what target `reference` gives for one period of rows. All targets have the same bits
 * there (codegen/README.md). */
#include <stdio.h>
#include <string.h>

#include "frontend/diagnose/burn/burn.h"
#include "ir/target.h"

static const char gemm_text[] = "module gemm\n"
                                "dim M = 48, K = 128, N = 128\n"
                                "param w: f32[K, N] zeros\n"
                                "func forward(%x: f32[M, K]) -> (%y: f32[M, N]) {\n"
                                "  return linear(%x, w)\n"
                                "}\n";

static const char attention_text[] =
    "module attention\n"
    "dim B = 1, T = 128, H = 2\n"
    "func forward(%q: f32[B, T, H*64], %k: f32[B, T, H*64], %v: f32[B, T, H*64])\n"
    "    -> (%attention: f32[B, T, H*64]) {\n"
    "  return attention(%q, %k, %v) {heads = H, causal = false, scale = 8}\n"
    "}\n";

static const char kernels_text[] =
    "module kernels\n"
    "dim M = 48, R = 48, C = 128\n"
    "func forward(%x: f32[M, C], %g: f32[R, C], %w: f32[C], %b: f32[C], %ids: i32[M]) -> (\n"
    "    %layernorm: f32[M, C], %rmsnorm: f32[M, C], %softmax: f32[M, C], %gelu: f32[M, C],\n"
    "    %silu: f32[M, C], %cross_entropy: f32[M], %embedding: f32[M, C], %rope: f32[R, C],\n"
    "    %quantize: f8e4m3[M, C], %quantize_blocks: f8e4m3[M, C],\n"
    "    %quantize_columns: f8e5m2[R, C],\n"
    "    %sum_of_columns: f32[1, C], %amax_of_columns: f32[1, C], %transpose: f32[C, R],\n"
    "    %moment_1: f32[R, C], %moment_2: f32[R, C], %parameter: f32[R, C]) {\n"
    "  %m = add(mul(%g, 0.1), 0.25)\n"
    "  %v = mul(mul(%g, %g), 0.05)\n"
    "  %p = sub(%g, div(mul(%m, 0.001), add(sqrt(%v), 0.00000001)))\n"
    "  return layernorm(%x, %w, %b), rmsnorm(%x, %w), softmax(%x), gelu(%x), silu(%x),\n"
    "    cross_entropy(%x, %ids) {reduction = \"none\"}, embedding(%g, %ids),\n"
    "    rope(%g) {heads = 2}, quantize(%x, fp8_scale(amax(%x))),\n"
    "    quantize(%x, fp8_scale(amax(%x) {granularity = \"block(1,128)\"}))\n"
    "      {granularity = \"block(1,128)\"},\n"
    "    quantize(%g, fp8_scale(amax(%g) {granularity = \"column\"}) {format = f8e5m2})\n"
    "      {format = f8e5m2},\n"
    "    reduce_sum(%g) {axis = 0}, reduce_amax(%g) {axis = 0}, transpose(%g) {perm = [1, 0]},\n"
    "    %m, %v, %p\n"
    "}\n";

/* ---- inputs: the same in every burn ---- */

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)(*state >> 33);
}

/* Integers in [-most, most]. */
static void fill_integers(float *to, int64_t n, uint64_t seed, int most)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)((int)(draw(&seed) % (2u * (unsigned)most + 1)) - most);
}

/* Numbers in [-4, 4) with all bits of a mantissa in use. */
static void fill_numbers(float *to, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)draw(&seed) * 0x1p-28f - 4;
}

/* Repeats the first `period` bytes up to `bytes`. */
static void repeat(void *to, int64_t period, int64_t bytes)
{
    for (int64_t at = period; at < bytes; at += period)
        memcpy((unsigned char *)to + at, to, (size_t)(bytes - at < period ? bytes - at : period));
}

/* ---- programs ---- */

static f8_status compile(fp8c_burn *b, const char *text, const fp8c_dim *dims, size_t n_dims,
                         const fp8c_compile_options *options, fp8c_program **out)
{
    fp8c_module *module;
    fp8c_status status =
        fp8c_module_parse(b->ctx, text, strlen(text), "burn", dims, n_dims, &module);
    if (status != FP8C_OK)
        return (f8_status)status;
    status = fp8c_compile(module, options, out);
    fp8c_module_destroy(module);
    return (f8_status)status;
}

static fp8c_compile_options options_of(const fp8c_burn *b, const char *recipe)
{
    return (fp8c_compile_options){.struct_size = sizeof(fp8c_compile_options),
                                  .target = b->options.target,
                                  .recipe = recipe,
                                  .device = b->options.device,
                                  .threads = b->options.threads};
}

static f8_burn_job *add_job(fp8c_burn *b, const char *name)
{
    f8_burn_job *j = &b->job[b->n_jobs++];
    *j = (f8_burn_job){.name = name, .first = b->n_items, .repeats = 1};
    return j;
}

/* The step of the plan that writes a port; "": none, as the interpreter has no steps. */
static const char *writer(const fp8c_program *p, int function, int port)
{
    const f8_plan_func *f = &p->now->plan.func[function];
    const char *name = "";
    for (uint32_t i = 0; i < f->n_steps; i++)
        for (uint32_t a = 0; a < f->step[i].n_args; a++)
            if (f->step[i].arg[a].space == F8_SPACE_OUTPUT && f->step[i].arg[a].port == port)
                name = f->step[i].name;
    return name;
}

/* A result of the newest job: output `port` of its function number `at`. */
static f8_burn_item *add_item(fp8c_burn *b, const char *name, int at, const char *port)
{
    f8_burn_job *j = &b->job[b->n_jobs - 1];
    f8_burn_item *item = &b->item[b->n_items++];
    fp8c_port found;
    const int index = fp8c_program_find_port(j->program, j->function[at], FP8C_OUTPUT, port);
    *item = (f8_burn_item){.name = name, .function = at, .port = index, .variable = -1, .step = ""};
    if (index < 0 ||
        fp8c_program_port(j->program, j->function[at], FP8C_OUTPUT, index, &found) != FP8C_OK)
        return NULL;
    item->type = found.type;
    item->step = f8_arena_strdup(&b->arena, writer(j->program, j->function[at], index));
    item->got = fp8c_program_buffer(j->program, j->function[at], FP8C_OUTPUT, index);
    item->bytes = item->period = fp8c_type_bytes(&found.type);
    j->n++;
    return item->got && item->step ? item : NULL;
}

static float *input(const f8_burn_job *j, int at, const char *name)
{
    const int f = j->function[at];
    const int port = fp8c_program_find_port(j->program, f, FP8C_INPUT, name);
    return port < 0 ? NULL : fp8c_program_buffer(j->program, f, FP8C_INPUT, port);
}

static f8_status no_memory(fp8c_burn *b)
{
    f8_diag d = {0};
    const f8_status status = f8_arena_status(&b->arena, &d);
    return (f8_status)f8_api_result(b->ctx, &d, status == F8_OK ? F8_ERR_INTERNAL : status);
}

/* ---- GEMMs ---- */

/* One period of rows: of x and dy, and what follows from them. */
typedef struct gemm_data {
    float *x, *w, *dy;  /* [R, K], [K, N], [R, N] */
    float *y, *dx, *dw; /* [R, N], [R, K], [K, N] */
} gemm_data;

/* to[M, N] = a[M, K] b[K, N]; size: M, N, K; stride: of a's m and k, of b's k and n. */
static void multiply(float *to, const float *a, const float *b, const int64_t size[3],
                     const int64_t stride[4])
{
    memset(to, 0, sizeof *to * (size_t)(size[0] * size[1]));
    for (int64_t m = 0; m < size[0]; m++)
        for (int64_t k = 0; k < size[2]; k++) {
            const float f = a[m * stride[0] + k * stride[1]];
            const float *row = b + k * stride[2];
            for (int64_t n = 0; f != 0 && n < size[1]; n++)
                to[m * size[1] + n] += f * row[n * stride[3]];
        }
}

static bool make_gemm_data(fp8c_burn *b, gemm_data *d)
{
    const int64_t R = F8_BURN_PERIOD, W = b->width;
    float **const part[] = {&d->x, &d->dy, &d->y, &d->dx, &d->w, &d->dw};
    for (int i = 0; i < 6; i++)
        if (!(*part[i] = F8_NEW_ARRAY(&b->arena, float, (size_t)((i < 4 ? R : W) * W))))
            return false;
    float *transposed = F8_NEW_ARRAY(&b->arena, float, (size_t)(W * W));
    if (!transposed)
        return false;
    fill_integers(d->x, R * W, 1, 4);
    fill_integers(d->w, W * W, 2, 1);
    fill_integers(d->dy, R * W, 3, 4);
    for (int64_t i = 0; i < W * W; i++)
        transposed[i % W * W + i / W] = d->w[i];
    multiply(d->y, d->x, d->w, (int64_t[]){R, W, W}, (int64_t[]){W, 1, W, 1});
    multiply(d->dx, d->dy, transposed, (int64_t[]){R, W, W}, (int64_t[]){W, 1, W, 1});
    multiply(d->dw, d->x, d->dy, (int64_t[]){W, W, R}, (int64_t[]){1, W, W, 1});
    const int64_t times = b->rows / R; /* each row comes so often */
    for (int64_t i = 0; i < W * W; i++)
        d->dw[i] *= (float)times;
    return true;
}

/* Backward reads what forward saves where forward leaves it. */
static f8_status bind_saved(const f8_burn_job *j)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(j->program, j->function[0], FP8C_OUTPUT, i, &port) == FP8C_OK;
         i++) {
        const int to = fp8c_program_find_port(j->program, j->function[1], FP8C_INPUT, port.name);
        if (to < 0)
            continue;
        void *at = fp8c_program_buffer(j->program, j->function[0], FP8C_OUTPUT, i);
        F8_TRY((f8_status)fp8c_program_bind(j->program, j->function[1], FP8C_INPUT, to, at));
    }
    return F8_OK;
}

static f8_status fill_gemm(fp8c_burn *b, const f8_burn_job *j, const gemm_data *d)
{
    const int64_t period = F8_BURN_PERIOD * b->width * 4, bytes = b->rows * b->width * 4;
    const struct {
        int function;
        const char *name;
        const float *from;
    } in[] = {{0, "x", d->x}, {1, "x", d->x}, {1, "dy", d->dy}};
    F8_TRY((f8_status)fp8c_program_initialize(j->program, 1));
    F8_TRY((f8_status)fp8c_program_write(j->program, fp8c_program_find_variable(j->program, "w"),
                                         d->w));
    for (int i = 0; i < 3; i++) {
        float *to = input(j, in[i].function, in[i].name);
        if (!to && i == 1)
            continue; /* backward reads codes of x that forward saved */
        if (!to)
            return no_memory(b);
        memcpy(to, in[i].from, (size_t)period);
        repeat(to, period, bytes);
    }
    return bind_saved(j);
}

static f8_status add_gemm_items(fp8c_burn *b, const gemm_data *d, const char *name)
{
    const int64_t period = F8_BURN_PERIOD * b->width * 4;
    const struct {
        const char *role, *port;
        const float *want;
    } of[] = {{"fprop", "y", d->y}, {"dgrad", "dx", d->dx}, {"wgrad", "w", d->dw}};
    for (int i = 0; i < 3; i++) {
        const char *full = f8_arena_printf(&b->arena, "GEMM %s %s", name, of[i].role);
        f8_burn_item *item = full ? add_item(b, full, i > 0, of[i].port) : NULL;
        if (!item)
            return no_memory(b);
        item->want = (const unsigned char *)of[i].want;
        item->period = i < 2 ? period : item->bytes;
    }
    return F8_OK;
}

/* What the target can't have is an item that says so. */
static f8_status skip(fp8c_burn *b, const char *name)
{
    static const char prefix[] = "error: ";
    const char *why = fp8c_context_message(b->ctx), *at = strstr(why, prefix);
    at = at ? at + strlen(prefix) : why;
    const char *full = f8_arena_printf(&b->arena, "GEMM %s", name);
    const char *text = f8_arena_strndup(&b->arena, at, strcspn(at, "\n"));
    if (!full || !text)
        return no_memory(b);
    b->item[b->n_items++] = (f8_burn_item){.name = full, .step = "", .skipped = text};
    b->job[b->n_jobs - 1].n = 1;
    return F8_OK;
}

static f8_status prepare_gemm(fp8c_burn *b, const gemm_data *d, const char *name,
                              const char *recipe, bool is_fp8)
{
    const fp8c_dim dims[] = {{"M", b->rows}, {"K", b->width}, {"N", b->width}};
    fp8c_compile_options o = options_of(b, recipe);
    o.pair = 1;
    o.gradients_of = "x";
    f8_burn_job *j = add_job(b, name);
    const f8_status status = compile(b, gemm_text, dims, 3, &o, &j->program);
    if (status == F8_ERR_UNSUPPORTED && is_fp8)
        return skip(b, name);
    F8_TRY(status);
    j->n_functions = 2;
    j->function[0] = fp8c_program_function(j->program, "forward");
    j->function[1] = fp8c_program_function(j->program, "backward");
    j->flops = 3 * 2.0 * (double)b->rows * (double)b->width * (double)b->width;
    F8_TRY(fill_gemm(b, j, d));
    return add_gemm_items(b, d, name);
}

static f8_status prepare_gemms(fp8c_burn *b)
{
    static const struct {
        const char *name, *recipe;
        bool is_fp8;
    } kind[] = {{"f32", "f32", false},
                {"bf16", "bf16", false},
                {"current", "current {pow2 = true}", true},
                {"rowwise", "rowwise {pow2 = true}", true},
                {"block", "block {pow2 = true}", true},
                {"mxfp8", "mxfp8", true}};
    gemm_data d;
    if (!make_gemm_data(b, &d))
        return no_memory(b);
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        F8_TRY(prepare_gemm(b, &d, kind[i].name, kind[i].recipe, kind[i].is_fp8));
    return F8_OK;
}

/* ---- attention ---- */

enum { POSITIONS = 128, SIZE = 64, ALIKE = 4 };

/* Changes v [POSITIONS, C] so that no sum of four rows that belong together is 0. */
static void avoid_zeros(float *v, int64_t C)
{
    enum { APART = POSITIONS / ALIKE };
    for (int64_t i = 0; i < APART * C; i++) {
        float sum = 0;
        for (int row = 0; row < ALIKE; row++)
            sum += v[row * APART * C + i];
        if (sum == 0)
            v[i] += v[i] < 4 ? 1 : -1;
    }
}

/* Fills one batch of q, k and v [T, H * SIZE], and the answer. */
static void make_attention(float *q, float *k, float *v, float *o, int64_t heads)
{
    const int64_t C = heads * SIZE;
    uint64_t seed = 4;
    fill_integers(v, POSITIONS * C, 5, 4);
    avoid_zeros(v, C);
    for (int64_t t = 0; t < POSITIONS / ALIKE; t++)
        for (int64_t c = 0; c < C; c++)
            for (int i = 0, one = (int)(draw(&seed) >> 8 & 1); i < ALIKE; i++)
                k[(t + i * (POSITIONS / ALIKE)) * C + c] = one ? 1 : -1;
    for (int64_t t = 0; t < POSITIONS; t++)
        for (int64_t c = 0; c < C; c++) {
            const int64_t of = t * 5 % (POSITIONS / ALIKE); /* the key that it is */
            float sum = 0;
            for (int i = 0; i < ALIKE; i++)
                sum += v[(of + i * (POSITIONS / ALIKE)) * C + c];
            q[t * C + c] = k[of * C + c];
            o[t * C + c] = sum / ALIKE;
        }
}

static f8_status prepare_attention(fp8c_burn *b)
{
    const int64_t heads = b->width / SIZE, batch = (b->rows + POSITIONS - 1) / POSITIONS;
    const int64_t period = POSITIONS * b->width * 4;
    const fp8c_dim dims[] = {{"B", batch}, {"T", POSITIONS}, {"H", heads}};
    static const char *const names[] = {"q", "k", "v"};
    fp8c_compile_options o = options_of(b, "bf16");
    float *in[3], *want = F8_NEW_ARRAY(&b->arena, float, (size_t)period / 4);
    f8_burn_job *j = add_job(b, "attention");
    o.inference = 1;
    F8_TRY(compile(b, attention_text, dims, 3, &o, &j->program));
    j->n_functions = 1;
    j->function[0] = fp8c_program_function(j->program, "eval");
    for (int i = 0; i < 3; i++)
        if (!(in[i] = input(j, 0, names[i])))
            return no_memory(b);
    f8_burn_item *item = want ? add_item(b, "attention", 0, "attention") : NULL;
    if (!item)
        return no_memory(b);
    make_attention(in[0], in[1], in[2], want, heads);
    for (int i = 0; i < 3; i++)
        repeat(in[i], period, item->bytes);
    item->want = (const unsigned char *)want;
    item->period = period;
    return F8_OK;
}

/* ---- kernels ---- */

static f8_status compile_kernels(fp8c_burn *b, const fp8c_compile_options *o, int64_t rows,
                                 f8_burn_job *j)
{
    const fp8c_dim dims[] = {{"M", rows}, {"R", F8_BURN_PERIOD}, {"C", b->width}};
    F8_TRY(compile(b, kernels_text, dims, 3, o, &j->program));
    j->n_functions = 1;
    j->function[0] = fp8c_program_function(j->program, "eval");
    float *x = input(j, 0, "x"), *g = input(j, 0, "g"), *w = input(j, 0, "w"),
          *shift = input(j, 0, "b"), *ids = input(j, 0, "ids");
    if (!x || !g || !w || !shift || !ids)
        return no_memory(b);
    fill_numbers(x, F8_BURN_PERIOD * b->width, 6);
    repeat(x, F8_BURN_PERIOD * b->width * 4, rows * b->width * 4);
    fill_numbers(g, F8_BURN_PERIOD * b->width, 7);
    fill_numbers(w, b->width, 8);
    fill_numbers(shift, b->width, 9);
    for (int32_t i = 0; i < rows; i++) {
        const int32_t id = i % F8_BURN_PERIOD * 7 % F8_BURN_PERIOD;
        memcpy(ids + i, &id, sizeof id);
    }
    return F8_OK;
}

static f8_status answer_kernels(fp8c_burn *b, f8_burn_job *reference)
{
    fp8c_program *p = reference->program;
    fp8c_port port;
    F8_TRY((f8_status)fp8c_program_run(p, reference->function[0]));
    for (int i = 0; fp8c_program_port(p, reference->function[0], FP8C_OUTPUT, i, &port) == FP8C_OK;
         i++) {
        const int64_t bytes = fp8c_type_bytes(&port.type);
        unsigned char *want = F8_NEW_ARRAY(&b->arena, unsigned char, (size_t)bytes);
        const char *name = want ? f8_arena_strdup(&b->arena, port.name) : NULL;
        f8_burn_item *item = name ? add_item(b, name, 0, name) : NULL;
        if (!item)
            return no_memory(b);
        memcpy(want, fp8c_program_buffer(p, reference->function[0], FP8C_OUTPUT, i), (size_t)bytes);
        item->want = want;
        item->period = bytes;
    }
    return F8_OK;
}

static f8_status prepare_kernels(fp8c_burn *b)
{
    fp8c_compile_options o = options_of(b, "f32");
    f8_burn_job reference = {0}, *j = add_job(b, "kernels");
    o.inference = 1;
    F8_TRY(compile_kernels(b, &o, b->rows, j));
    o.target = "reference";
    f8_status status = compile_kernels(b, &o, F8_BURN_PERIOD, &reference);
    if (status == F8_OK)
        status = answer_kernels(b, &reference);
    fp8c_program_destroy(reference.program);
    return status;
}

/* ---- how much ---- */

/* Enough tiles of 128 x 128 for each multiprocessor to have several, and tensors larger than its
 * caches. */
static f8_status size_for_gpu(fp8c_burn *b, f8_diag *diag)
{
    f8_cuda_facts facts;
    f8_cuda *cuda;
    F8_TRY(f8_api_take_gpu(b->ctx, b->options.device, &cuda, diag));
    const f8_status status = f8_cuda_inspect(cuda, b->options.device, &facts, NULL, diag);
    f8_api_give_gpu(b->ctx, cuda);
    F8_TRY(status);
    const int64_t side = facts.multiprocessors < 4 ? 1 : facts.multiprocessors / 4;
    b->width = 128 * side;
    b->rows = (b->width + F8_BURN_PERIOD - 1) / F8_BURN_PERIOD * F8_BURN_PERIOD;
    b->info.device = f8_arena_strdup(&b->arena, facts.name);
    return F8_OK;
}

static f8_status size_for_cpu(fp8c_burn *b)
{
    char name[F8_CPU_NAME];
    const int64_t periods = 4 * (int64_t)b->info.threads;
    b->width = 1024;
    b->rows = F8_BURN_PERIOD * (periods < 8 ? 8 : periods > 128 ? 128 : periods);
    b->info.device = f8_arena_strdup(&b->arena, f8_cpu_name(name));
    return F8_OK;
}

fp8c_status f8_burn_prepare(fp8c_burn *b)
{
    const char *target = b->options.target;
    const f8_target *known = f8_target_by_name(target);
    f8_diag diag = {0};
    const bool gpu = !strcmp(target, "cuda") || (known && known->kind == F8_TARGET_CUDA);
    f8_status status = gpu ? size_for_gpu(b, &diag) : size_for_cpu(b);
    if (status != F8_OK)
        return f8_api_result(b->ctx, &diag, status);
    status = prepare_gemms(b);
    if (status == F8_OK)
        status = prepare_attention(b);
    if (status == F8_OK)
        status = prepare_kernels(b);
    for (int i = 0; i < b->n_jobs && gpu && status == F8_OK; i++)
        if (b->job[i].program)
            status = f8_burn_to_gpu(b, &b->job[i]);
    return (fp8c_status)status;
}
