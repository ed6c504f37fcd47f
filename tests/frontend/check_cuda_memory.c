/* Memory and streams of the caller on a GPU: variables and ports in its device memory, and a stream
 * that is changed between runs. On the emulator, or with FP8C_TEST_GPU on this machine's GPU. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/bounds_case.h"
#include "tests/shared/api/caller_memory.h"
#include "tests/shared/cuda/embedder.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { HOST = 1, GPU = 2 }; /* DLPack's devices */

static bool emulated;

typedef struct life {
    driver d;
    fp8c_context *ctx;
    fp8c_module *m;
} life;

/* The model with 16 rows, which no FP8 GEMM pads; fill_batch leaves zeros in the second half. */
static life begin(void)
{
    life l = {.d = open_driver(), .ctx = new_context()};
    char text[sizeof model + 16], *to = text;
    for (const char *at = model; *at;) {
        const bool rows = !strncmp(at, "i32[8]", 6);
        to += sprintf(to, "%.*s", rows ? 7 : 1, rows ? "i32[16]" : at);
        at += rows ? 6 : 1;
    }
    l.m = parse(l.ctx, text);
    return l;
}

static void end(life *l)
{
    fp8c_module_destroy(l->m);
    fp8c_context_destroy(l->ctx);
    ck_assert(l->d.live == 0 && l->d.bytes == 0);
    close_driver(&l->d);
}

static fp8c_program *make(const life *l, const char *name, const char *external)
{
    fp8c_compile_options o = recipe(name);
    o.target = "cuda";
    o.external = external;
    fp8c_program *p = compile(l->ctx, l->m, &o);
    ck_assert_msg(fp8c_program_initialize(p, 1) == FP8C_OK, "%s", fp8c_context_message(l->ctx));
    return p;
}

/* Device memory for all variables, aligned to 16 bytes and no more. */
static void device_make(caller_tensors *t, life *l, fp8c_program *p)
{
    fp8c_variable v;
    *t = (caller_tensors){0};
    for (; fp8c_program_variable(p, t->n, &v) == FP8C_OK; t->n++) {
        t->bytes[t->n] = (size_t)fp8c_type_bytes(&v.type);
        t->block[t->n] = device_alloc(&l->d, t->bytes[t->n] + 16);
        ck_assert_ptr_nonnull(t->block[t->n]);
        t->at[t->n] = t->block[t->n] + 16;
    }
}

static void device_end(caller_tensors *t, life *l)
{
    for (int i = 0; i < t->n; i++)
        device_free(&l->d, t->block[i], t->bytes[i] + 16);
}

static void same_variables(const life *l, fp8c_program *p, fp8c_program *q)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++) {
        const size_t n = (size_t)fp8c_type_bytes(&v.type);
        void *a = malloc(n), *b = malloc(n);
        ck_assert_msg(fp8c_program_read(p, i, a) == FP8C_OK &&
                          fp8c_program_read(q, i, b) == FP8C_OK,
                      "%s", fp8c_context_message(l->ctx));
        ck_assert_msg(!memcmp(a, b, n), "%s", v.name);
        free(a);
        free(b);
    }
}

static const char *const recipes[] = {"delayed", "f32", "bf16"};

START_TEST(bits)
{
    life l = begin();
    caller_tensors t;
    fp8c_tensor_view view;
    fp8c_program *own = make(&l, recipes[_i], NULL), *bound = make(&l, recipes[_i], NULL);
    train_step(bound); /* graphs are there */
    train_step(own);
    device_make(&t, &l, bound);
    caller_move_all(l.ctx, bound, &t, GPU);
    for (int step = 0; step < 2; step++) {
        const float want = train_step(own), got = train_step(bound);
        ck_assert(want > 0 && !memcmp(&want, &got, sizeof want));
        same_variables(&l, own, bound);
    }
    ck_assert_int_eq(fp8c_program_variable_view(bound, 0, &view), FP8C_OK);
    ck_assert(view.data == t.at[0] && view.device.type == GPU);
    float there[4], read[4];
    ck_assert_int_eq(copy_from_device(&l.d, there, t.at[1], sizeof there), 0);
    char all[4096];
    ck_assert_int_eq(fp8c_program_read(bound, 1, all), FP8C_OK);
    memcpy(read, all, sizeof read);
    ck_assert_mem_eq(there, read, sizeof read);
    fp8c_program_destroy(own);
    fp8c_program_destroy(bound);
    device_end(&t, &l);
    end(&l);
}
END_TEST

/* Two sets of tensors in turn: graphs know no address of the other set, and are kept for when it
 * comes again. */
START_TEST(two_sets)
{
    life l = begin();
    caller_tensors t[2];
    fp8c_program *alone[2] = {make(&l, "delayed", NULL), make(&l, "delayed", NULL)},
                 *both = make(&l, "delayed", NULL);
    ck_assert_int_eq(fp8c_program_initialize(alone[1], 2), FP8C_OK);
    for (int i = 0; i < 2; i++) {
        device_make(&t[i], &l, both);
        caller_bind_all(l.ctx, both, &t[i], GPU);
        ck_assert_int_eq(fp8c_program_initialize(both, (uint64_t)i + 1), FP8C_OK);
    }
    for (int step = 0; step < 8; step++) {
        caller_bind_all(l.ctx, both, &t[step % 2], GPU);
        if (step == 4 && emulated) /* no more captures: each set has run both forms of its step */
            setenv("FP8C_EMULATOR_FAIL", "cuStreamBeginCapture_v2", 1);
        const float want = train_step(alone[step % 2]), got = train_step(both);
        ck_assert(!memcmp(&want, &got, sizeof want));
        same_variables(&l, alone[step % 2], both);
    }
    unsetenv("FP8C_EMULATOR_FAIL");
    fp8c_program_destroy(both);
    for (int i = 0; i < 2; i++) {
        fp8c_program_destroy(alone[i]);
        device_end(&t[i], &l);
    }
    end(&l);
}
END_TEST

/* An input at more addresses than graphs are kept for; the graphs of old ones go. */
START_TEST(many_addresses)
{
    enum { PLACES = 12 };
    life l = begin();
    fp8c_program *own = make(&l, "bf16", NULL), *p = make(&l, "bf16", NULL);
    const int eval = fp8c_program_function(p, "eval"),
              tokens = fp8c_program_find_port(p, eval, FP8C_INPUT, "tokens");
    int32_t ids[PLACES][2 * ROWS];
    char *room = device_alloc(&l.d, sizeof ids);
    for (int i = 0; i < PLACES; i++)
        for (int k = 0; k < 2 * ROWS; k++)
            ids[i][k] = (i + 3 * k) % V;
    ck_assert_int_eq(l.d.cuMemcpyHtoDAsync_v2((uintptr_t)room, ids, sizeof ids, l.d.stream), 0);
    ck_assert_int_eq(l.d.cuStreamSynchronize(l.d.stream), 0);
    for (int i = 0; i < 3 * PLACES; i++) {
        const int at = i % 5 ? i % PLACES : 0;
        memcpy(fp8c_program_buffer(own, eval, FP8C_INPUT, tokens), ids[at], sizeof ids[at]);
        ck_assert_int_eq(fp8c_program_bind(p, eval, FP8C_INPUT, tokens, room + at * sizeof *ids),
                         FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(own, eval), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, eval), FP8C_OK);
        ck_assert_mem_eq(fp8c_program_buffer(own, eval, FP8C_OUTPUT, 0),
                         fp8c_program_buffer(p, eval, FP8C_OUTPUT, 0), sizeof(float));
    }
    fp8c_program_destroy(own);
    fp8c_program_destroy(p);
    device_free(&l.d, room, sizeof ids);
    end(&l);
}
END_TEST

/* ---- external ---- */

/* Nothing of the program's data is in memory of ours, the operands of GEMMs among it (f32). */
START_TEST(external)
{
    enum { ROOM = 1 << 14 };
    life l = begin();
    caller_tensors t;
    fp8c_program *own = make(&l, recipes[_i], NULL), *p = make(&l, recipes[_i], "*");
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    fp8c_tensor tensor;
    fp8c_port port;
    int64_t left_out = 0;
    for (int i = 0; fp8c_program_tensor(p, step, i, &tensor) == FP8C_OK; i++)
        left_out += strcmp(tensor.category, "external") ? 0 : tensor.bytes;
    ck_assert(left_out > 0 && planned(own) - planned(p) == left_out);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
    said(l.ctx, " is external: it has no memory until a tensor is bound to it");
    device_make(&t, &l, p);
    caller_bind_all(l.ctx, p, &t, GPU);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
    said(l.ctx, "input 'tokens' of 'micro_step' is external");

    char *room = device_alloc(&l.d, ROOM), *at = room, *loss = NULL;
    static _Alignas(64) int32_t ids[64];
    for (int f = 0; f < 2; f++)
        for (int side = 0; side < 2; side++)
            for (int i = 0; fp8c_program_port(p, f ? update : step, side, i, &port) == FP8C_OK;
                 i++) {
                const int function = f ? update : step;
                if (port.variable >= 0)
                    continue;
                ck_assert_ptr_null(fp8c_program_buffer(p, function, side, i));
                ck_assert_int_eq(fp8c_program_bind(p, function, side, i, ids), FP8C_ERR_INPUT);
                said(l.ctx, " is external: only device memory can be bound to it");
                ck_assert_int_eq(fp8c_program_bind(p, function, side, i, at), FP8C_OK);
                if (!strcmp(port.name, "tokens") || !strcmp(port.name, "targets")) {
                    for (int k = 0; k < ROWS; k++)
                        ids[k] = (3 * k + 5 * (port.name[1] == 'a')) % V;
                    ck_assert_int_eq(
                        l.d.cuMemcpyHtoDAsync_v2((uintptr_t)at, ids, 2 * ROWS * 4, l.d.stream), 0);
                    ck_assert_int_eq(l.d.cuStreamSynchronize(l.d.stream), 0);
                }
                if (!strcmp(port.name, "loss"))
                    loss = at;
                at += (fp8c_type_bytes(&port.type) + 15) / 16 * 16;
                ck_assert(at <= room + ROOM);
            }
    ck_assert_ptr_nonnull(loss);
    for (int i = 0; i < 2; i++) {
        const float want = train_step(own);
        float got = 0;
        ck_assert_msg(fp8c_program_run(p, step) == FP8C_OK, "%s", fp8c_context_message(l.ctx));
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
        ck_assert_int_eq(copy_from_device(&l.d, &got, loss, sizeof got), 0);
        ck_assert_msg(!memcmp(&want, &got, sizeof want), "%g, %g", (double)want, (double)got);
    }
    /* a call says it of the tensor, and binds nothing */
    const int eval = fp8c_program_function(p, "eval");
    const fp8c_type row = {FP8C_I32, 1, {2 * ROWS}}, scalar = {.dtype = FP8C_F32};
    fp8c_tensor_view in = view_of(&row, room, GPU), host = view_of(&row, ids, HOST),
                     out = view_of(&scalar, loss, GPU);
    const fp8c_tensor_view *ins[] = {&in, &host}, *outs[] = {&out};
    ck_assert_int_eq(fp8c_program_call(p, eval, ins, 2, outs, 1), FP8C_ERR_INPUT);
    said(l.ctx, "input 'targets' of 'eval': it is in host memory, and the port is external");
    ck_assert_ptr_null(fp8c_program_buffer(p, eval, FP8C_OUTPUT, 0));
    fp8c_program_destroy(own);
    fp8c_program_destroy(p);
    device_free(&l.d, room, ROOM);
    device_end(&t, &l);
    end(&l);
}
END_TEST

START_TEST(refusals)
{
    life l = begin();
    fp8c_program *p = make(&l, "bf16", NULL);
    const int bias = fp8c_program_find_variable(p, "fc.bias"),
              weight = fp8c_program_find_variable(p, "fc.weight");
    static _Alignas(64) char host[4096];
    char *there = device_alloc(&l.d, 8192);
    ck_assert_int_eq(caller_bind(p, bias, host, HOST), FP8C_ERR_INPUT);
    said(l.ctx,
         "variable 'fc.bias': it is in host memory, and the program's variables are in a GPU's");
    ck_assert_int_eq(caller_bind(p, bias, host, GPU), FP8C_ERR_INPUT);
    said(l.ctx, "variable 'fc.bias': the driver knows of no GPU memory at its address");
    ck_assert_int_eq(caller_bind(p, bias, there + 4, GPU), FP8C_ERR_INPUT);
    said(l.ctx, "variable 'fc.bias': its address is no multiple of 16");
    ck_assert_int_eq(caller_bind(p, bias, there, 10), FP8C_ERR_INPUT);
    said(l.ctx, "variable 'fc.bias': it is on device 10:0, and the program runs on a GPU");
    ck_assert_int_eq(caller_bind(p, weight, there, GPU), FP8C_OK);
    ck_assert_int_eq(caller_bind(p, bias, there + 4080, GPU), FP8C_ERR_INPUT);
    said(l.ctx, "variable 'fc.bias': its memory overlaps that of variable 'fc.weight'");
    ck_assert_int_eq(caller_bind(p, bias, there + 4096, GPU), FP8C_OK);
    fp8c_program_destroy(p);
    device_free(&l.d, there, 8192);
    end(&l);
}
END_TEST

/* ---- streams ---- */

/* Each run on another stream than the one before, without a wait between them. On the emulator a
 * stream does its work only when somebody waits for it, so a run that does not wait for the one
 * before reads what is not there yet. */
START_TEST(streams)
{
    if (emulated)
        setenv("FP8C_EMULATOR_LAZY", "1", 1);
    life l = begin();
    fp8c_program *own = make(&l, "delayed", NULL), *p = make(&l, "delayed", NULL);
    void *other = NULL;
    ck_assert_int_eq(l.d.cuStreamCreate(&other, 1), 0);
    void *const stream[] = {l.d.stream, other, NULL};
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update"),
              eval = fp8c_program_function(p, "eval");
    for (int i = 0; i < 4; i++) {
        const float want = train_step(own);
        fill_batch(p, step);
        fill_batch(p, eval);
        fill_batch(own, eval);
        ck_assert_msg(fp8c_program_set_stream(p, stream[i % 3]) == FP8C_OK, "%s",
                      fp8c_context_message(l.ctx));
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_set_stream(p, stream[(i + 1) % 3]), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
        ck_assert_int_eq(fp8c_program_set_stream(p, stream[(i + 2) % 3]), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, eval), FP8C_OK);
        ck_assert_int_eq(fp8c_program_set_stream(p, stream[(i + 2) % 3]), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(own, eval), FP8C_OK);
        if (stream[(i + 2) % 3])
            ck_assert_int_eq(fp8c_program_wait(p), FP8C_OK);
        const float *got = fp8c_program_buffer(
            p, step, FP8C_OUTPUT, fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss"));
        ck_assert_msg(!memcmp(got, &want, sizeof want), "step %d: %g, %g", i, (double)*got,
                      (double)want);
        ck_assert_mem_eq(fp8c_program_buffer(p, eval, FP8C_OUTPUT, 0),
                         fp8c_program_buffer(own, eval, FP8C_OUTPUT, 0), sizeof want);
        same_variables(&l, own, p);
    }
    fp8c_program_destroy(own);
    fp8c_program_destroy(p);
    ck_assert_int_eq(l.d.cuStreamDestroy_v2(other), 0);
    end(&l);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

/* A program that began on the embedder's stream gets its own; variants of a bound follow, those
 * that exist and those to come. */
START_TEST(stream_of_variants)
{
    if (emulated)
        setenv("FP8C_EMULATOR_LAZY", "1", 1);
    driver d = open_driver();
    f8_api_run own, r;
    fp8c_compile_options o = {.recipe = "bf16", .target = "cuda"};
    f8_bounds_open(&own, 0, false, o);
    o.stream = d.stream;
    f8_bounds_open(&r, 0, false, o);
    f8_bounds_set(&r, 3);
    ck_assert_int_eq(fp8c_program_set_stream(r.program, NULL), FP8C_OK);
    for (int b = 2; b <= 4; b++) {
        f8_bounds_set(&own, b);
        f8_bounds_set(&r, b);
        const float want = f8_api_step(&own, 64, 1), got = f8_api_step(&r, 64, 1);
        ck_assert_msg(want > 0 && !memcmp(&want, &got, sizeof want), "%d: %g, %g", b, (double)want,
                      (double)got);
        ck_assert_int_eq(fp8c_program_set_stream(r.program, b % 2 ? NULL : d.stream), FP8C_OK);
    }
    f8_api_close(&own);
    f8_api_close(&r);
    close_driver(&d);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

/* A stream that does not exist: the program goes on with the one it has. */
START_TEST(bad_stream)
{
    life l = begin();
    fp8c_program *own = make(&l, "bf16", NULL), *p = make(&l, "bf16", NULL);
    if (emulated) { /* the real driver does not survive it */
        ck_assert_int_eq(fp8c_program_set_stream(p, &l), FP8C_ERR_LIBRARY);
        said(l.ctx, "cuStreamWaitEvent of the new stream");
    }
    const float want = train_step(own), got = train_step(p);
    ck_assert(!memcmp(&want, &got, sizeof want));
    fp8c_program_destroy(own);
    fp8c_program_destroy(p);
    end(&l);
}
END_TEST

/* Steps with memory of the caller allocate nothing on the device. */
START_TEST(flat)
{
    life l = begin();
    fp8c_compile_options o = recipe("delayed");
    o.target = "cuda";
    o.stream = l.d.stream;
    o.device_alloc = device_alloc;
    o.device_free = device_free;
    o.device_user = &l.d;
    fp8c_program *p = compile(l.ctx, l.m, &o);
    caller_tensors t;
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    device_make(&t, &l, p);
    caller_move_all(l.ctx, p, &t, GPU);
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    const long allocations = l.d.allocations;
    fp8c_program_info(p, &before);
    for (int i = 0; i < 100; i++) {
        fill_batch(p, step);
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
        ck_assert_int_eq(fp8c_program_wait(p), FP8C_OK);
    }
    fp8c_program_info(p, &after);
    ck_assert_int_eq(l.d.allocations, allocations);
    ck_assert_int_eq(after.peak_bytes, before.peak_bytes);
    fp8c_program_destroy(p);
    device_end(&t, &l);
    end(&l);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("cuda memory");
    TCase *t = tcase_create("cuda memory");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, bits, 0, 3);
    tcase_add_test(t, two_sets);
    tcase_add_test(t, many_addresses);
    tcase_add_loop_test(t, external, 0, 3);
    tcase_add_test(t, refusals);
    tcase_add_test(t, streams);
    tcase_add_test(t, stream_of_variants);
    tcase_add_test(t, bad_stream);
    tcase_add_test(t, flat);
    suite_add_tcase(s, t);
    return s;
}
