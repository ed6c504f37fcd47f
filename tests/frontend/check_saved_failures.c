/* Handles of saved values when something fails: allocations, one after the other, and runs of an
 * embedder's threads that leave out a task. And what happens to the memory of handles that ports
 * were bound to. */
#include "tests/shared/api/pair_case.h"
#include "tests/shared/suite.h"

static const char layer[] =
    "module layer\ndim B <= 64\nparam ln: f32[64] ones\nparam up: f32[64, 2048] normal(0.1)\n"
    "param down: f32[2048, 64] normal(0.1)\n"
    "func forward(%x: f32[B, 64]) -> (%y: f32[B, 64]) {\n"
    "  %h = gelu(linear(rmsnorm(%x, ln), up) {name = \"up\"})\n"
    "  return add(%x, linear(%h, down) {name = \"down\"})\n}\n";

enum { WIDE = 2048 }; /* so that several tasks share its kernels */

/* Tensors of the layer with B rows. */
typedef struct tensors {
    float x[64 * 64], y[64 * 64], dy[64 * 64], dx[64 * 64], ln[64], up[64 * WIDE], down[WIDE * 64];
    int64_t shape[2], up_shape[2], down_shape[2];
    fp8c_tensor_view view[7];
    const fp8c_tensor_view *x_in, *y_out, *in[2], *out[4];
} tensors;

static void make_tensors(tensors *t, int64_t rows)
{
    memset(t, 0, sizeof *t);
    t->shape[0] = rows;
    t->shape[1] = t->up_shape[0] = t->down_shape[1] = 64;
    t->up_shape[1] = t->down_shape[0] = WIDE;
    float *const data[] = {t->x, t->y, t->dy, t->dx, t->ln, t->up, t->down};
    for (int i = 0; i < 7; i++)
        t->view[i] = (fp8c_tensor_view){
            .data = data[i], .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = t->shape};
    t->view[4].ndim = 1;
    t->view[4].shape = &t->shape[1];
    t->view[5].shape = t->up_shape;
    t->view[6].shape = t->down_shape;
    t->x_in = &t->view[0];
    t->y_out = &t->view[1];
    t->in[0] = &t->view[2];
    t->in[1] = &t->view[0];
    for (int i = 0; i < 4; i++)
        t->out[i] = &t->view[3 + i];
    for (int i = 0; i < 64 * 64; i++) {
        t->x[i] = (float)(i * 37 % 101 - 50) / 50;
        t->dy[i] = (float)(i * 53 % 89 - 44) / 64;
    }
}

static fp8c_status forward(fp8c_program *p, bool first, fp8c_saved *s, tensors *t)
{
    return fp8c_program_forward(p, first, s, &t->x_in, 1, &t->y_out, 1);
}

static fp8c_status backward(fp8c_program *p, fp8c_saved *s, tensors *t)
{
    return fp8c_program_backward(p, s, t->in, 2, t->out, 4);
}

static bool same(const tensors *a, const tensors *b)
{
    return !memcmp(a->y, b->y, sizeof a->y) && !memcmp(a->dx, b->dx, sizeof a->dx) &&
           !memcmp(a->ln, b->ln, sizeof a->ln) && !memcmp(a->up, b->up, sizeof a->up) &&
           !memcmp(a->down, b->down, sizeof a->down);
}

static fp8c_compile_options pair_options(const char *name)
{
    fp8c_compile_options o = recipe(name);
    o.pair = 1;
    o.gradients_of = "x";
    return o;
}

static fp8c_program *make(fp8c_context *ctx, const char *recipe_name)
{
    const fp8c_compile_options o = pair_options(recipe_name);
    fp8c_module *m = parse(ctx, layer);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    return p;
}

static fp8c_saved *handle(fp8c_context *ctx, fp8c_program *p)
{
    fp8c_saved *s;
    ck_assert_msg(fp8c_saved_create(p, &s) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return s;
}

static void set_rows(fp8c_context *ctx, fp8c_program *p, int64_t rows)
{
    ck_assert_msg(fp8c_program_set_dim(p, "B", rows) == FP8C_OK, "%s", fp8c_context_message(ctx));
}

/* ---- memory ---- */

static tensors a, b, want;

/* A whole life with two handles and two values of B. */
static fp8c_status life(const void *user, counting *c, char *message, size_t room)
{
    const fp8c_context_options co = counted_options(c);
    fp8c_compile_options o = pair_options(user);
    fp8c_context *ctx;
    fp8c_module *m = NULL;
    fp8c_program *p = NULL;
    fp8c_saved *s[2] = {NULL, NULL};
    fp8c_status status = fp8c_context_create(&co, &ctx);
    snprintf(message, room, "context");
    if (status != FP8C_OK)
        return status;
    o.memory_share = 0.6;
    make_tensors(&a, 64);
    make_tensors(&b, 32);
    status = fp8c_module_parse(ctx, layer, strlen(layer), "layer.f8", NULL, 0, &m);
    if (status == FP8C_OK)
        status = fp8c_compile(m, &o, &p);
    if (status == FP8C_OK)
        status = fp8c_program_initialize(p, 7);
    for (int i = 0; i < 2 && status == FP8C_OK; i++)
        status = fp8c_saved_create(p, &s[i]);
    for (int i = 0; i < 2 && status == FP8C_OK; i++)
        status = forward(p, true, s[i], i ? &b : &a);
    for (int i = 0; i < 2 && status == FP8C_OK; i++)
        status = backward(p, s[i], i ? &b : &a);
    snprintf(message, room, "%s", fp8c_context_message(ctx));
    fp8c_saved_destroy(s[0]);
    fp8c_program_destroy(p);
    fp8c_saved_destroy(s[1]);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    return status;
}

START_TEST(no_memory)
{
    fail_each_allocation(life, "delayed", 300);
}
END_TEST

/* After a call that found no memory everything goes on as if it had not been made. */
START_TEST(no_memory_in_a_call)
{
    counting c = {0};
    const fp8c_context_options co = counted_options(&c);
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&co, &ctx), FP8C_OK);
    fp8c_program *p = make(ctx, "delayed");
    fp8c_saved *s = handle(ctx, p);
    make_tensors(&want, 64);
    ck_assert_int_eq(forward(p, false, s, &want), FP8C_OK);
    ck_assert_int_eq(backward(p, s, &want), FP8C_OK);
    fp8c_saved_destroy(s);
    fp8c_program_destroy(p);
    int failed = 0;
    for (int at = 1; at < 12; at++) {
        p = make(ctx, "delayed");
        set_rows(ctx, p, 16);
        s = handle(ctx, p); /* too small for 64 rows */
        make_tensors(&a, 16);
        ck_assert_int_eq(forward(p, false, s, &a), FP8C_OK);
        ck_assert_int_eq(backward(p, s, &a), FP8C_OK);
        make_tensors(&b, 64);
        const long live = c.live;
        c.n = 0;
        c.fail_at = at;
        fp8c_status status = forward(p, false, s, &b);
        if (status != FP8C_OK) {
            failed++;
            ck_assert_int_eq(status, FP8C_ERR_MEMORY);
            ck_assert_int_eq(c.live, live);
            ck_assert_int_eq(backward(p, s, &b), FP8C_ERR_INPUT);
            c.fail_at = 0;
            status = forward(p, false, s, &b);
        }
        ck_assert_msg(status == FP8C_OK, "%s", fp8c_context_message(ctx));
        c.n = 0;
        c.fail_at = 1;
        status = backward(p, s, &b);
        c.fail_at = 0;
        if (status != FP8C_OK)
            status = backward(p, s, &b);
        ck_assert_msg(status == FP8C_OK, "%s", fp8c_context_message(ctx));
        ck_assert_msg(same(&b, &want), "allocation %d", at);
        fp8c_saved_destroy(s);
        fp8c_program_destroy(p);
    }
    ck_assert_int_gt(failed, 0);
    fp8c_context_destroy(ctx);
    ck_assert_int_eq(c.live, 0);
}
END_TEST

/* ---- whose memory ports have ---- */

static int64_t peak_bytes(const fp8c_program *p)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    return info.peak_bytes;
}

/* A handle that needs more memory gives up the old one, which no port keeps. */
START_TEST(grown_handles)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, "delayed");
    const int function = fp8c_program_function(p, "forward");
    set_rows(ctx, p, 16);
    fp8c_saved *s = handle(ctx, p);
    const int64_t small = peak_bytes(p);
    make_tensors(&a, 16);
    make_tensors(&b, 64);
    ck_assert_int_eq(forward(p, false, s, &a), FP8C_OK);
    ck_assert_int_eq(backward(p, s, &a), FP8C_OK);
    ck_assert_int_eq(forward(p, false, s, &b), FP8C_OK);
    ck_assert_int_gt(peak_bytes(p), small);
    set_rows(ctx, p, 16);
    ck_assert_int_eq(fp8c_program_run(p, function), FP8C_OK); /* writes what its ports have */
    ck_assert_int_eq(backward(p, s, &b), FP8C_OK);
    fp8c_saved_destroy(s);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The same, where a variant of the program that had the old memory comes back with the backward of
 * another handle. */
START_TEST(grown_between)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, "delayed");
    const int function = fp8c_program_function(p, "forward");
    set_rows(ctx, p, 16);
    fp8c_saved *s = handle(ctx, p), *other = handle(ctx, p);
    make_tensors(&a, 16);
    make_tensors(&b, 64);
    ck_assert_int_eq(forward(p, false, other, &a), FP8C_OK);
    ck_assert_int_eq(forward(p, false, s, &a), FP8C_OK);
    ck_assert_int_eq(backward(p, s, &a), FP8C_OK);
    ck_assert_int_eq(forward(p, false, s, &b), FP8C_OK);
    ck_assert_int_eq(backward(p, other, &a), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, function), FP8C_OK); /* with 16 rows */
    fp8c_saved_destroy(s);
    fp8c_saved_destroy(other);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A forward that is run without the handle does not write to what the handle holds. */
START_TEST(runs_between)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, "delayed");
    fp8c_saved *s = handle(ctx, p);
    make_tensors(&want, 64);
    ck_assert_int_eq(forward(p, false, s, &want), FP8C_OK);
    ck_assert_int_eq(backward(p, s, &want), FP8C_OK);
    make_tensors(&a, 64);
    make_tensors(&b, 64);
    for (int i = 0; i < 64 * 64; i++)
        b.x[i] = -3 * a.x[i];
    ck_assert_int_eq(forward(p, false, s, &a), FP8C_OK);
    const int function = fp8c_program_function(p, "forward");
    ck_assert_int_eq(fp8c_program_bind(p, function, FP8C_INPUT,
                                       fp8c_program_find_port(p, function, FP8C_INPUT, "x"), b.x),
                     FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(p, function, FP8C_OUTPUT,
                                       fp8c_program_find_port(p, function, FP8C_OUTPUT, "y"), b.y),
                     FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, function), FP8C_OK);
    ck_assert_int_eq(backward(p, s, &a), FP8C_OK);
    ck_assert(same(&a, &want));
    fp8c_saved_destroy(s);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- failed runs ---- */

static int leave_out; /* the tasks of so many calls */

static void parallel(void *user, fp8c_task_fn task, void *job, int64_t n_tasks)
{
    (void)user;
    if (leave_out > 0 && --leave_out == 0)
        n_tasks--;
    if (n_tasks > 0)
        task(job, 0, 0, n_tasks);
}

/* A forward that failed leaves the handle free; a backward that failed may be run again. */
START_TEST(failed_runs)
{
    const fp8c_context_options co = {
        .struct_size = sizeof co, .parallel = parallel, .parallel_threads = 2};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&co, &ctx), FP8C_OK);
    fp8c_program *p = make(ctx, "delayed");
    fp8c_saved *s = handle(ctx, p);
    make_tensors(&want, 64);
    ck_assert_int_eq(forward(p, false, s, &want), FP8C_OK);
    ck_assert_int_eq(backward(p, s, &want), FP8C_OK);
    int failed = 0;
    for (int at = 1; at < 6; at++) {
        make_tensors(&a, 64);
        leave_out = at;
        fp8c_status status = forward(p, false, s, &a);
        leave_out = 0;
        if (status != FP8C_OK) {
            failed++;
            ck_assert_int_eq(status, FP8C_ERR_INPUT);
            ck_assert_int_eq(backward(p, s, &a), FP8C_ERR_INPUT);
            said(ctx, "the handle holds no forward");
            ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update_scales")),
                             FP8C_OK);
            ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
            status = forward(p, false, s, &a);
        }
        ck_assert_int_eq(status, FP8C_OK);
        leave_out = at;
        status = backward(p, s, &a);
        leave_out = 0;
        if (status != FP8C_OK) {
            failed++;
            ck_assert_int_eq(status, FP8C_ERR_INPUT);
            ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update_scales")),
                             FP8C_ERR_INPUT);
            status = backward(p, s, &a);
        }
        ck_assert_int_eq(status, FP8C_OK);
        ck_assert(same(&a, &want));
    }
    ck_assert_int_ge(failed, 2);
    fp8c_saved_destroy(s);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("saved_failures");
    TCase *t = tcase_create("saved_failures");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, no_memory_in_a_call);
    tcase_add_test(t, grown_handles);
    tcase_add_test(t, grown_between);
    tcase_add_test(t, runs_between);
    tcase_add_test(t, failed_runs);
    suite_add_tcase(s, t);
    return s;
}
