/* A program that embeds fp8c: builds a transformer block between an embedding and a head, call by
 * call and without text, and trains it. All memory is from an allocator of its own, a bump
 * allocator over one reservation that counts; kernels run on threads of its own. It trains twice
 * and compares: the losses fall, the second run gives the bits of the first, and every byte that
 * was taken is given back. */
#include <fp8c.h>
#include <fp8c_diagnose.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { B = 4, T = 32, C = 64, HEADS = 4, V = 64, STEPS = 60, THREADS = 3 };

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void want(int ok, const char *what)
{
    if (!ok)
        die("wrong", what);
}

/* ---- the allocator ---- */

typedef struct bump {
    char *base;
    size_t size;
    atomic_size_t used, calls, live_bytes;
} bump;

static void *bump_alloc(void *user, size_t size, size_t align)
{
    bump *b = user;
    const size_t at = atomic_fetch_add(&b->used, size + align); /* room to align in */
    if (at + size + align > b->size)
        return NULL;
    atomic_fetch_add(&b->calls, 1);
    atomic_fetch_add(&b->live_bytes, size);
    const size_t a = align ? align : 1;
    return (char *)(((size_t)(b->base + at) + a - 1) / a * a);
}

/* Nothing is reused: an arena for one job goes all at once. */
static void bump_free(void *user, void *ptr, size_t size)
{
    bump *b = user;
    if (ptr)
        atomic_fetch_sub(&b->live_bytes, size);
}

/* ---- the threads: the caller is number 0, others wait for a job ---- */

typedef struct workers {
    pthread_t thread[THREADS - 1];
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    long job_number; /* counts up; a worker that has seen less has something to do */
    int busy, stop;
    fp8c_task_fn task;
    void *job;
    int64_t n_tasks;
    atomic_llong next;
    atomic_llong tasks_of[THREADS];
    atomic_int jobs;
} workers;

typedef struct worker {
    workers *all;
    int number;
} worker;

static void take_tasks(workers *w, int thread)
{
    for (;;) {
        const int64_t at = atomic_fetch_add(&w->next, 1);
        if (at >= w->n_tasks)
            return;
        w->task(w->job, thread, at, at + 1);
        atomic_fetch_add(&w->tasks_of[thread], 1);
    }
}

static void *worker_main(void *user)
{
    worker *self = user;
    workers *w = self->all;
    long seen = 0;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->stop && w->job_number == seen)
            pthread_cond_wait(&w->work, &w->lock);
        if (w->stop)
            break;
        seen = w->job_number;
        pthread_mutex_unlock(&w->lock);
        take_tasks(w, self->number);
        pthread_mutex_lock(&w->lock);
        if (--w->busy == 0)
            pthread_cond_signal(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void parallel(void *user, fp8c_task_fn task, void *job, int64_t n_tasks)
{
    workers *w = user;
    pthread_mutex_lock(&w->lock);
    w->task = task;
    w->job = job;
    w->n_tasks = n_tasks;
    w->next = 0;
    w->busy = THREADS - 1;
    w->job_number++;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    take_tasks(w, 0);
    pthread_mutex_lock(&w->lock);
    while (w->busy)
        pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
    atomic_fetch_add(&w->jobs, 1);
}

static void start(workers *w, worker *of)
{
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->done, NULL);
    for (int i = 0; i < THREADS - 1; i++) {
        of[i] = (worker){w, i + 1};
        want(pthread_create(&w->thread[i], NULL, worker_main, &of[i]) == 0, "pthread_create");
    }
}

static void stop(workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = 1;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < THREADS - 1; i++)
        pthread_join(w->thread[i], NULL);
}

/* ---- the model ---- */

/* A failed call while a function is built is kept until fp8c_func_end says it, so none is looked at
 * here. */
static fp8c_value op(fp8c_module *m, const char *name, size_t n, const fp8c_value *in,
                     const fp8c_attr *attr)
{
    return fp8c_func_op(m, name, in, n, attr, attr ? 1 : 0);
}

static void parameter(fp8c_module *m, const char *name, int64_t rows, int64_t cols, fp8c_init init,
                      double argument)
{
    const fp8c_type type = {FP8C_F32, cols ? 2 : 1, {rows, cols}};
    want(fp8c_module_param(m, name, &type, init, argument) == FP8C_OK, name);
}

static void parameters(fp8c_module *m)
{
    parameter(m, "wte", V, C, FP8C_INIT_NORMAL, 0.1);
    parameter(m, "wpe", T, C, FP8C_INIT_NORMAL, 0.1);
    parameter(m, "ln_1.weight", C, 0, FP8C_INIT_ONES, 0);
    parameter(m, "ln_1.bias", C, 0, FP8C_INIT_ZEROS, 0);
    parameter(m, "attn.qkv", C, 3 * C, FP8C_INIT_NORMAL, 0.1);
    parameter(m, "attn.proj", C, C, FP8C_INIT_NORMAL, 0.1);
    parameter(m, "ln_2.weight", C, 0, FP8C_INIT_ONES, 0);
    parameter(m, "ln_2.bias", C, 0, FP8C_INIT_ZEROS, 0);
    parameter(m, "mlp.up", C, 4 * C, FP8C_INIT_NORMAL, 0.1);
    parameter(m, "mlp.down", 4 * C, C, FP8C_INIT_NORMAL, 0.1);
}

static fp8c_value norm(fp8c_module *m, fp8c_value x, const char *weight, const char *bias)
{
    return op(m, "layernorm", 3,
              (fp8c_value[]){x, fp8c_func_param(m, weight), fp8c_func_param(m, bias)}, NULL);
}

static fp8c_value linear(fp8c_module *m, fp8c_value x, const char *weight)
{
    return op(m, "linear", 2, (fp8c_value[]){x, fp8c_func_param(m, weight)}, NULL);
}

/* Columns [part * C, (part + 1) * C). */
static fp8c_value third(fp8c_module *m, fp8c_value x, int part)
{
    const fp8c_attr attrs[] = {{.name = "start", .kind = FP8C_ATTR_INT, .i = part * C},
                               {.name = "stop", .kind = FP8C_ATTR_INT, .i = (part + 1) * C}};
    return fp8c_func_op(m, "slice", &x, 1, attrs, 2);
}

/* x + attention(norm(x)), and that + mlp(norm(that)). */
static fp8c_value block(fp8c_module *m, fp8c_value x)
{
    const fp8c_attr heads = {.name = "heads", .kind = FP8C_ATTR_INT, .i = HEADS};
    const fp8c_attr form = {.name = "approximate", .kind = FP8C_ATTR_STRING, .s = "tanh"};
    const fp8c_value qkv = linear(m, norm(m, x, "ln_1.weight", "ln_1.bias"), "attn.qkv");
    const fp8c_value a =
        op(m, "attention", 3, (fp8c_value[]){third(m, qkv, 0), third(m, qkv, 1), third(m, qkv, 2)},
           &heads);
    const fp8c_value r = op(m, "add", 2, (fp8c_value[]){x, linear(m, a, "attn.proj")}, NULL);
    const fp8c_value up = linear(m, norm(m, r, "ln_2.weight", "ln_2.bias"), "mlp.up");
    return op(m, "add", 2, (fp8c_value[]){r, linear(m, op(m, "gelu", 1, &up, &form), "mlp.down")},
              NULL);
}

static fp8c_module *build(fp8c_context *ctx)
{
    fp8c_module *m;
    const fp8c_type ids = {FP8C_I32, 2, {B, T}};
    const fp8c_attr optimizer[] = {{.name = "lr", .kind = FP8C_ATTR_FLOAT, .f = 3e-3},
                                   {.name = "clip", .kind = FP8C_ATTR_FLOAT, .f = 1}};
    const fp8c_attr head[] = {{.name = "transpose_b", .kind = FP8C_ATTR_BOOL, .i = 1},
                              {.name = "name", .kind = FP8C_ATTR_STRING, .s = "head"}};
    want(fp8c_module_create(ctx, "block", &m) == FP8C_OK, fp8c_context_message(ctx));
    parameters(m);
    want(fp8c_module_optimizer(m, optimizer, 2) == FP8C_OK &&
             fp8c_module_rule(m, "\"head\" = bf16", NULL) == FP8C_OK,
         fp8c_context_message(ctx));
    want(fp8c_func_begin(m, "forward") == FP8C_OK, fp8c_context_message(ctx));
    const fp8c_value tokens = fp8c_func_input(m, "tokens", &ids),
                     targets = fp8c_func_input(m, "targets", &ids);
    const fp8c_value wte = fp8c_func_param(m, "wte");
    const fp8c_value embedded = op(m, "embedding", 2, (fp8c_value[]){wte, tokens}, NULL);
    const fp8c_value x =
        block(m, op(m, "add", 2, (fp8c_value[]){embedded, fp8c_func_param(m, "wpe")}, NULL));
    const fp8c_value logits = fp8c_func_op(m, "linear", (fp8c_value[]){x, wte}, 2, head, 2);
    fp8c_func_result(m, "loss", op(m, "cross_entropy", 2, (fp8c_value[]){logits, targets}, NULL));
    if (fp8c_func_end(m) != FP8C_OK)
        die("build", fp8c_context_message(ctx));
    return m;
}

/* ---- training ---- */

/* The next token follows from the one two before it: only attention can see that one. */
static void batch(int32_t *tokens, int32_t *targets, int step)
{
    for (int b = 0; b < B; b++) {
        int32_t seq[T + 1] = {(7 * step + 11 * b) % V, (5 * step + 3 * b) % V};
        for (int t = 2; t <= T; t++)
            seq[t] = (seq[t - 2] + 1) % V;
        memcpy(tokens + b * T, seq, T * sizeof *seq);
        memcpy(targets + b * T, seq + 1, T * sizeof *seq);
    }
}

static void train(fp8c_context *ctx, fp8c_program *p, float loss[STEPS])
{
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    int32_t *tokens = fp8c_program_buffer(p, step, FP8C_INPUT,
                                          fp8c_program_find_port(p, step, FP8C_INPUT, "tokens"));
    int32_t *targets = fp8c_program_buffer(p, step, FP8C_INPUT,
                                           fp8c_program_find_port(p, step, FP8C_INPUT, "targets"));
    const float *out = fp8c_program_buffer(p, step, FP8C_OUTPUT,
                                           fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss"));
    want(tokens && targets && out, "ports");
    for (int i = 0; i < STEPS; i++) {
        batch(tokens, targets, i);
        if (fp8c_program_run(p, step) != FP8C_OK || fp8c_program_run(p, update) != FP8C_OK)
            die("run", fp8c_context_message(ctx));
        loss[i] = *out;
    }
}

/* A whole life: build, compile, train, destroy. */
static void whole(const char *recipe, float loss[STEPS])
{
    bump memory = {.size = (size_t)4 << 30};
    workers w = {0};
    worker of[THREADS - 1];
    fp8c_context *ctx;
    fp8c_program *p;
    memory.base = mmap(NULL, memory.size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    want(memory.base != MAP_FAILED, "mmap");
    start(&w, of);
    const fp8c_context_options options = {.struct_size = sizeof options,
                                          .alloc = bump_alloc,
                                          .free = bump_free,
                                          .allocator_user = &memory,
                                          .cache_dir = "",
                                          .parallel = parallel,
                                          .parallel_user = &w,
                                          .parallel_threads = THREADS};
    want(fp8c_context_create(&options, &ctx) == FP8C_OK, "context");
    fp8c_module *m = build(ctx);
    const fp8c_compile_options how = {.struct_size = sizeof how, .recipe = recipe};
    if (fp8c_compile(m, &how, &p) != FP8C_OK || fp8c_program_initialize(p, 1) != FP8C_OK)
        die("compile", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    train(ctx, p, loss);
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    want(info.fp8_gemms_executed == info.fp8_gemms_planned * STEPS, "FP8 GEMMs");
    want(info.threads == THREADS, "threads");
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
    stop(&w);
    long long tasks = 0;
    for (int i = 0; i < THREADS; i++)
        tasks += w.tasks_of[i];
    printf("%s: loss %.4f -> %.4f; %zu allocations, %zu bytes left; %d jobs of %lld tasks in all\n",
           recipe, (double)loss[0], (double)loss[STEPS - 1], (size_t)memory.calls,
           (size_t)memory.live_bytes, (int)w.jobs, tasks);
    want(loss[STEPS - 1] < loss[0] / 2, "the loss does not fall");
    want(memory.calls > 10 && memory.live_bytes == 0, "memory is left");
    want(w.jobs > STEPS && tasks > w.jobs, "the threads were not used");
    munmap(memory.base, memory.size);
}

int main(void)
{
    static const char *const recipes[] = {"bf16", "delayed"};
    for (int i = 0; i < 2; i++) {
        float first[STEPS], second[STEPS];
        whole(recipes[i], first);
        whole(recipes[i], second);
        want(!memcmp(first, second, sizeof first), "the second run differs");
    }
    puts("ok");
    return 0;
}
