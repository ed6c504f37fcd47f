/* The caller's tensors: which are accepted, and with which message the others are refused. */
#include <dlpack/dlpack.h>

#include "frontend/program.h"
#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* ---- the layout is DLPack's ---- */

#define SAME(ours, theirs)                                                                         \
    _Static_assert(offsetof(fp8c_tensor_view, ours) == offsetof(DLTensor, theirs), #ours);         \
    _Static_assert(sizeof(((fp8c_tensor_view *)0)->ours) == sizeof(((DLTensor *)0)->theirs), #ours)
SAME(data, data);
SAME(device, device);
SAME(device.type, device.device_type);
SAME(device.id, device.device_id);
SAME(ndim, ndim);
SAME(dtype, dtype);
SAME(dtype.code, dtype.code);
SAME(dtype.bits, dtype.bits);
SAME(dtype.lanes, dtype.lanes);
SAME(shape, shape);
SAME(strides, strides);
SAME(byte_offset, byte_offset);
_Static_assert(sizeof(fp8c_tensor_view) == sizeof(DLTensor), "size");
_Static_assert(kDLCPU == 1 && kDLCUDA == 2 && kDLCUDAHost == 3 && kDLCUDAManaged == 13, "devices");
_Static_assert(kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLBfloat == 4, "codes");

/* ---- a function of every kind of port ---- */

static const char kinds[] =
    "module kinds\n"
    "param w: f32[3, 4] normal(1)\n"
    "func forward(%x: f32[2, 1, 3], %h: bf16[2, 4], %ids: i32[2], %on: bool[2, 4]) -> (%y: f32[2, "
    "4], %s: f32[]) {\n"
    "  %a = matmul(reshape(%x) {shape = [2, 3]}, w)\n"
    "  %b = select(%on, add(%a, cast(%h) {to = f32}), embedding(w, %ids))\n"
    "  return %b, reshape(reduce_sum(reshape(%b) {shape = [1, 8]})) {shape = []}\n"
    "}\n";

/* The tensors of a call of it; each as DLPack has it. */
typedef struct tensors {
    DLTensor x, h, ids, on, y, s;
    int64_t shape[6][3], strides[3];
    float x_data[8], y_data[16], s_data[2];
    uint16_t h_data[8];
    int32_t ids_data[4];
    uint8_t on_data[8];
    const fp8c_tensor_view *in[5], *out[3];
    size_t n_in, n_out;
} tensors;

static DLTensor tensor(void *data, uint8_t code, uint8_t bits, int n, int64_t *shape,
                       const int64_t *size)
{
    for (int i = 0; i < n; i++)
        shape[i] = size[i];
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = n, .dtype = {code, bits, 1}, .shape = shape};
}

static void make(tensors *t)
{
    *t = (tensors){.x_data = {1, 2, 3, 4, 5, 6},
                   .h_data = {0x3f80, 0x4000, 0, 0xbf80, 0x3f80, 0, 0, 0x4040},
                   .ids_data = {2, 0},
                   .on_data = {1, 0, 1, 1, 0, 1, 0, 0},
                   .n_in = 4,
                   .n_out = 2};
    t->x = tensor(t->x_data, kDLFloat, 32, 3, t->shape[0], (int64_t[]){2, 1, 3});
    t->h = tensor(t->h_data, kDLBfloat, 16, 2, t->shape[1], (int64_t[]){2, 4});
    t->ids = tensor(t->ids_data, kDLInt, 32, 1, t->shape[2], (int64_t[]){2});
    t->on = tensor(t->on_data, 6, 8, 2, t->shape[3],
                   (int64_t[]){2, 4}); /* kDLBool, of DLPack 1.0 and later */
    t->y = tensor(t->y_data, kDLFloat, 32, 2, t->shape[4], (int64_t[]){2, 4});
    t->s = tensor(t->s_data, kDLFloat, 32, 0, NULL, NULL);
    const DLTensor *const all[] = {&t->x, &t->h, &t->ids, &t->on, &t->y, &t->s};
    for (int i = 0; i < 6; i++)
        *(i < 4 ? &t->in[i] : &t->out[i - 4]) = (const fp8c_tensor_view *)all[i];
    memset(t->y_data, 0x55, sizeof t->y_data);
    memset(t->s_data, 0x55, sizeof t->s_data);
}

typedef struct life {
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
    int eval;
} life;

static life begin(const char *text, const char *target)
{
    fp8c_compile_options o = recipe("bf16");
    o.target = target;
    o.inference = 1;
    life l = {.ctx = new_context()};
    l.m = parse(l.ctx, text);
    l.p = compile(l.ctx, l.m, &o);
    l.eval = fp8c_program_function(l.p, "eval");
    ck_assert_int_eq(fp8c_program_initialize(l.p, 7), FP8C_OK);
    return l;
}

static void end(life *l)
{
    fp8c_program_destroy(l->p);
    fp8c_module_destroy(l->m);
    fp8c_context_destroy(l->ctx);
}

static fp8c_status call(const life *l, const tensors *t)
{
    return fp8c_program_call(l->p, l->eval, t->in, t->n_in, t->out, t->n_out);
}

static const char *const targets[] = {"cpu", "reference", "cuda"};

/* ---- taken ---- */

/* A call gives the bits of a run with the program's own buffers; what it bound stays bound. */
START_TEST(calls)
{
    life l = begin(kinds, targets[_i]);
    tensors t;
    make(&t);
    const size_t bytes[] = {24, 16, 8, 8};
    for (int i = 0; i < 4; i++)
        memcpy(fp8c_program_buffer(l.p, l.eval, FP8C_INPUT, i), t.in[i]->data, bytes[i]);
    ck_assert_int_eq(fp8c_program_run(l.p, l.eval), FP8C_OK);
    float y[8], s;
    memcpy(y, fp8c_program_buffer(l.p, l.eval, FP8C_OUTPUT, 0), sizeof y);
    memcpy(&s, fp8c_program_buffer(l.p, l.eval, FP8C_OUTPUT, 1), sizeof s);
    ck_assert_msg(call(&l, &t) == FP8C_OK, "%s", fp8c_context_message(l.ctx));
    ck_assert(!memcmp(y, t.y_data, sizeof y) && !memcmp(&s, t.s_data, sizeof s) && s != 0);
    ck_assert_ptr_eq(fp8c_program_buffer(l.p, l.eval, FP8C_INPUT, 0), t.x_data);
    ck_assert_ptr_eq(fp8c_program_buffer(l.p, l.eval, FP8C_OUTPUT, 1), t.s_data);
    t.y_data[0] = 0;
    ck_assert_int_eq(fp8c_program_run(l.p, l.eval), FP8C_OK);
    ck_assert(!memcmp(y, t.y_data, sizeof y));
    for (int i = 0; i < 8; i++) /* nothing behind them */
        ck_assert(((uint32_t *)t.y_data)[8 + i] == 0x55555555);
    end(&l);
}
END_TEST

/* Strides of a contiguous tensor, any for axes of size 1, an offset in bytes, a boolean as u8,
 * pinned memory. */
START_TEST(other_ways_to_say_it)
{
    life l = begin(kinds, "cpu");
    tensors t, u;
    make(&t);
    ck_assert_int_eq(call(&l, &t), FP8C_OK);
    make(&u);
    u.x.strides = (int64_t[]){3, -17, 1};
    u.x.byte_offset = 4;
    memmove(u.x_data + 1, u.x_data, 24);
    u.on.dtype = (DLDataType){kDLUInt, 8, 1};
    u.h.device = (DLDevice){kDLCUDAHost, 0};
    u.y.byte_offset = 8;
    ck_assert_msg(call(&l, &u) == FP8C_OK, "%s", fp8c_context_message(l.ctx));
    ck_assert(!memcmp(t.y_data, u.y_data + 2, 32) && !memcmp(t.s_data, u.s_data, 4));
    u.h.data = u.y_data; /* inputs may share memory, of whatever use */
    u.y.data = t.y_data;
    u.x.byte_offset = 0;
    u.x.data = u.y_data;
    ck_assert_msg(call(&l, &u) == FP8C_OK, "%s", fp8c_context_message(l.ctx));
    end(&l);
}
END_TEST

/* Every dtype under DLPack's code: codes of FP8 as they are. */
START_TEST(dtypes)
{
    static const char text[] = "module dtypes\n"
                               "func forward(%a: f8e4m3[4], %b: f8e5m2[4], %c: f16[4], %d: "
                               "bool[4]) -> (%w: f8e4m3[2, 2], %x: f8e5m2[2, 2], "
                               "%y: f16[2, 2], %z: bool[2, 2]) {\n"
                               "  return reshape(%a) {shape = [2, 2]}, reshape(%b) {shape = [2, "
                               "2]}, reshape(%c) {shape = [2, 2]}, "
                               "reshape(%d) {shape = [2, 2]}\n"
                               "}\n";
    static const uint8_t code[] = {10, 12, kDLFloat, 6}, bits[] = {8, 8, 16, 8};
    static uint8_t in[4][8] = {
        {1, 2, 0x7e, 0xff}, {3, 0x7c, 0xfc, 7}, {1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 1, 0}};
    static int64_t four[] = {4}, two[] = {2, 2};
    life l = begin(text, targets[_i]);
    uint8_t to[4][8] = {{0}};
    DLTensor from[4], out[4];
    const fp8c_tensor_view *inputs[4], *outputs[4];
    for (int i = 0; i < 4; i++) {
        from[i] = (DLTensor){.data = in[i],
                             .device = {kDLCPU, 0},
                             .ndim = 1,
                             .dtype = {code[i], bits[i], 1},
                             .shape = four};
        out[i] = from[i];
        out[i].data = to[i];
        out[i].ndim = 2;
        out[i].shape = two;
        inputs[i] = (const fp8c_tensor_view *)&from[i];
        outputs[i] = (const fp8c_tensor_view *)&out[i];
    }
    ck_assert_msg(fp8c_program_call(l.p, l.eval, inputs, 4, outputs, 4) == FP8C_OK, "%s",
                  fp8c_context_message(l.ctx));
    for (int i = 0; i < 4; i++)
        ck_assert(!memcmp(in[i], to[i], bits[i] / 2));
    end(&l);
}
END_TEST

/* ---- refused ---- */

static int64_t transposed[] = {1, 2}, padded[] = {5, 1}, wide[] = {2, 4, 1},
               huge[] = {INT64_MAX, INT64_MAX};

#define CASES(CASE)                                                                                \
    CASE(t->n_in = 3, "'eval' has 4 inputs of the caller's ('x', 'h', 'ids', 'on'): 3 were given") \
    CASE((t->in[4] = t->in[0], t->n_in = 5),                                                       \
         "'eval' has 4 inputs of the caller's ('x', 'h', 'ids', 'on'): 5 were "                    \
         "given")                                                                                  \
    CASE(t->n_in = 0, "'eval' has 4 inputs of the caller's ('x', 'h', 'ids', 'on'): 0 were given") \
    CASE(t->n_out = 1, "'eval' has 2 outputs of the caller's ('y', 's'): 1 were given")            \
    CASE(t->in[1] = NULL, "input 'h' of 'eval': no tensor is given (NULL)")                        \
    CASE(t->out[1] = NULL, "output 's' of 'eval': no tensor is given (NULL)")                      \
    CASE(t->x.data = NULL, "input 'x' of 'eval': it has no data")                                  \
    CASE(t->y.data = NULL, "output 'y' of 'eval': it has no data")                                 \
    CASE(t->x.dtype.code = kDLBfloat,                                                              \
         "input 'x' of 'eval': its dtype is code 4 of 32 bits and 1 lanes, and the port "          \
         "takes f32: code 2 of 32 bits, one lane")                                                 \
    CASE((t->x.dtype = (DLDataType){kDLBfloat, 16, 1}),                                            \
         "input 'x' of 'eval': it is of bf16, and the port takes f32")                             \
    CASE((t->h.dtype = (DLDataType){kDLFloat, 16, 1}),                                             \
         "input 'h' of 'eval': it is of f16, and the port takes bf16")                             \
    CASE((t->ids.dtype = (DLDataType){kDLInt, 16, 1}),                                             \
         "input 'ids' of 'eval': its dtype is code 0 of 16 bits and 1 "                            \
         "lanes, and the port takes i32: code 0 of 32 bits, one lane")                             \
    CASE((t->ids.dtype = (DLDataType){kDLInt, 64, 1}),                                             \
         "input 'ids' of 'eval': it is of i64, and the port takes i32")                            \
    CASE((t->ids.dtype = (DLDataType){kDLUInt, 32, 1}),                                            \
         "input 'ids' of 'eval': its dtype is code 1 of 32 bits and "                              \
         "1 lanes, and the port takes i32: code 0 of 32 bits, one lane")                           \
    CASE(t->y.dtype.lanes = 4,                                                                     \
         "output 'y' of 'eval': its dtype is code 2 of 32 bits and 4 lanes, and the port "         \
         "takes f32: code 2 of 32 bits, one lane")                                                 \
    CASE((t->on.dtype = (DLDataType){10, 8, 1}),                                                   \
         "input 'on' of 'eval': it is of f8e4m3, and the port takes bool")                         \
    CASE((t->on.dtype = (DLDataType){12, 8, 1}),                                                   \
         "input 'on' of 'eval': it is of f8e5m2, and the port takes bool")                         \
    CASE((t->on.dtype = (DLDataType){14, 8, 1}),                                                   \
         "input 'on' of 'eval': it is of f8e8m0, and the port takes bool")                         \
    CASE(t->x.ndim = 2, "input 'x' of 'eval': its shape is [2, 1], and the port takes [2, 1, 3]")  \
    CASE(t->x.shape = wide,                                                                        \
         "input 'x' of 'eval': its shape is [2, 4, 1], and the port takes [2, 1, 3]")              \
    CASE((t->y.shape = huge),                                                                      \
         "output 'y' of 'eval': its shape is [9223372036854775807, 9223372036854775807], and "     \
         "the port takes [2, 4]")                                                                  \
    CASE(t->x.ndim = -1, "input 'x' of 'eval': it has -1 axes, and the port's shape is [2, 1, 3]") \
    CASE(t->x.ndim = 1000000,                                                                      \
         "input 'x' of 'eval': it has 1000000 axes, and the port's shape is [2, 1, 3]")            \
    CASE((t->s.ndim = 1), "output 's' of 'eval': its shape is missing")                            \
    CASE((t->s.ndim = 1, t->s.shape = wide),                                                       \
         "output 's' of 'eval': its shape is [2], and the port takes []")                          \
    CASE(t->h.strides = transposed,                                                                \
         "input 'h' of 'eval': its strides are [1, 2], and a contiguous tensor has [4, 1]")        \
    CASE(t->y.strides = padded,                                                                    \
         "output 'y' of 'eval': its strides are [5, 1], and a contiguous tensor has [4, 1]")       \
    CASE(t->x.byte_offset = 2,                                                                     \
         "input 'x' of 'eval': its address is no multiple of 4, the size of its elements")         \
    CASE(t->h.byte_offset = 1,                                                                     \
         "input 'h' of 'eval': its address is no multiple of 2, the size of its elements")         \
    CASE(t->y.byte_offset = 3,                                                                     \
         "output 'y' of 'eval': its address is no multiple of 4, the size of its elements")        \
    CASE(t->x.byte_offset = UINT64_MAX - 3,                                                        \
         "input 'x' of 'eval': its byte_offset, 18446744073709551612, leads beyond all memory")    \
    CASE(t->y.data = t->x_data, "output 'y' of 'eval': its memory overlaps that of input 'x'")     \
    CASE(t->s.data = t->ids_data + 1,                                                              \
         "output 's' of 'eval': its memory overlaps that of input 'ids'")                          \
    CASE(t->s.data = t->y_data + 7, "output 's' of 'eval': its memory overlaps that of output "    \
                                    "'y'")

/* Of the CPU and the interpreter alone, and of a GPU. */
#define HOST_CASES(CASE)                                                                           \
    CASE((t->y.device = (DLDevice){kDLCUDA, 0}),                                                   \
         "output 'y' of 'eval': it is on device 2:0 (CUDA), and the program "                      \
         "runs on the CPU")                                                                        \
    CASE((t->x.device = (DLDevice){kDLROCM, 3}),                                                   \
         "input 'x' of 'eval': it is on device 10:3, and the program runs "                        \
         "on the CPU")                                                                             \
    CASE((t->x.device = (DLDevice){0, 0}),                                                         \
         "input 'x' of 'eval': it is on device 0:0, and the program runs on the "                  \
         "CPU")
#define GPU_CASES(CASE)                                                                            \
    CASE((t->y.device = (DLDevice){kDLCUDA, 0}),                                                   \
         "output 'y' of 'eval': the driver knows of no GPU memory at its "                         \
         "address")                                                                                \
    CASE((t->y.device = (DLDevice){kDLCUDA, 1}),                                                   \
         "output 'y' of 'eval': it is on GPU 1, and the program runs on GPU"                       \
         " 0")                                                                                     \
    CASE((t->x.device = (DLDevice){kDLROCM, 3}),                                                   \
         "input 'x' of 'eval': it is on device 10:3, and the program runs "                        \
         "on a GPU (CUDA 0)")

/* Make the i-th mistake; false past the last. */
static bool mistake(int i, bool gpu, tensors *t, const char **message)
{
#define CASE(change, text)                                                                         \
    if (i-- == 0) {                                                                                \
        (void)(change);                                                                            \
        *message = text;                                                                           \
        return true;                                                                               \
    }
    CASES(CASE)
    if (gpu) {
        GPU_CASES(CASE)
    } else {
        HOST_CASES(CASE)
    }
#undef CASE
    return false;
}

/* Nothing has run, no output is touched, what was bound still is. */
START_TEST(refusals)
{
    life l = begin(kinds, targets[_i]);
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    const char *message;
    tensors t;
    make(&t);
    fp8c_program_info(l.p, &before);
    for (int i = 0; mistake(i, _i == 2, &t, &message); i++, make(&t)) {
        ck_assert_msg(call(&l, &t) == FP8C_ERR_INPUT, "taken, instead of: %s", message);
        char want[400];
        snprintf(want, sizeof want, "error: %s", message);
        const char *said = fp8c_context_message(l.ctx);
        ck_assert_msg(!strncmp(said, want, strlen(want)) && strlen(said) <= strlen(want) + 1,
                      "'%s' is not '%s'", said, want);
        for (int k = 0; k < 16; k++)
            ck_assert(((uint32_t *)t.y_data)[k] == 0x55555555);
        ck_assert_ptr_ne(fp8c_program_buffer(l.p, l.eval, FP8C_INPUT, 0), t.x_data);
    }
    fp8c_program_info(l.p, &after);
    ck_assert_int_eq(after.kernels_executed, before.kernels_executed);
    ck_assert_int_eq(fp8c_program_call(l.p, l.eval, NULL, 4, t.out, 2), FP8C_ERR_INPUT);
    said(l.ctx, "'eval': the inputs are missing (NULL)");
    ck_assert_int_eq(fp8c_program_call(l.p, 9, t.in, 4, t.out, 2), FP8C_ERR_INPUT);
    said(l.ctx, "the program has no function 9");
    fp8c_tensor_view w;
    make(&t);
    ck_assert_int_eq(fp8c_program_variable_view(l.p, 0, &w), FP8C_OK);
    t.y.data = w.data;
    t.y.device = (DLDevice){(DLDeviceType)w.device.type, w.device.id};
    ck_assert_int_eq(call(&l, &t), FP8C_ERR_INPUT);
    said(l.ctx, "output 'y' of 'eval': its memory overlaps that of variable 'w'");
    end(&l);
}
END_TEST

START_TEST(no_values_no_memory)
{
    fp8c_compile_options o = recipe("bf16");
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, kinds);
    fp8c_tensor_view v;
    tensors t;
    make(&t);
    o.inference = 1;
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_call(p, 0, t.in, 4, t.out, 2), FP8C_ERR_INPUT);
    said(ctx, "the variables have no values: call fp8c_program_initialize");
    fp8c_program_destroy(p);
    o.plan_only = 1;
    p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_call(p, 0, t.in, 4, t.out, 2), FP8C_ERR_INPUT);
    said(ctx, "compiled with plan_only");
    ck_assert_int_eq(fp8c_program_port_view(p, 0, FP8C_INPUT, 0, &v), FP8C_ERR_INPUT);
    said(ctx, "compiled with plan_only");
    ck_assert_int_eq(fp8c_program_variable_view(p, 0, &v), FP8C_ERR_INPUT);
    said(ctx, "compiled with plan_only");
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- views ---- */

/* Of a contiguous tensor, there also where there is no axis: DLPack 1.2. */
static void has_strides(const fp8c_tensor_view *v)
{
    int64_t n = 1;
    ck_assert_ptr_nonnull(v->strides);
    for (int i = v->ndim; i-- > 0; n *= v->shape[i])
        ck_assert_int_eq(v->strides[i], n);
}

START_TEST(views)
{
    life l = begin(kinds, targets[_i]);
    static const uint8_t code[] = {kDLFloat, kDLBfloat, kDLInt, 6}, bits[] = {32, 16, 32, 8};
    static const int ndim[] = {3, 2, 1, 2};
    fp8c_tensor_view v;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(fp8c_program_port_view(l.p, l.eval, FP8C_INPUT, i, &v), FP8C_OK);
        ck_assert(v.dtype.code == code[i] && v.dtype.bits == bits[i] && v.dtype.lanes == 1 &&
                  v.ndim == ndim[i]);
        ck_assert(v.device.type == kDLCPU && v.device.id == 0 && v.byte_offset == 0 &&
                  v.shape[0] == 2);
        has_strides(&v);
        ck_assert_ptr_eq(v.data, fp8c_program_buffer(l.p, l.eval, FP8C_INPUT, i));
    }
    ck_assert_int_eq(fp8c_program_port_view(l.p, l.eval, FP8C_OUTPUT, 1, &v), FP8C_OK);
    ck_assert(v.ndim == 0 && v.dtype.code == kDLFloat && v.shape);
    has_strides(&v);
    const int w = fp8c_program_find_variable(l.p, "w");
    ck_assert(w >= 0 && fp8c_program_find_variable(l.p, "x") == -1);
    ck_assert_int_eq(fp8c_program_variable_view(l.p, w, &v), FP8C_OK);
    ck_assert(v.ndim == 2 && v.shape[0] == 3 && v.shape[1] == 4 && v.dtype.bits == 32);
    has_strides(&v);
    const int64_t *strides = v.strides;
    ck_assert_int_eq(fp8c_program_variable_view(l.p, w, &v), FP8C_OK);
    ck_assert_ptr_eq(v.strides, strides); /* asking again takes no more memory */
    ck_assert_int_eq(v.device.type, _i == 2 ? kDLCUDA : kDLCPU);
    float value[12];
    ck_assert_int_eq(fp8c_program_read(l.p, w, value), FP8C_OK);
    ck_assert(_i == 2 || !memcmp(value, v.data, sizeof value));
    static const int bad[][3] = {{-1, 0, 0}, {9, 0, 0}, {0, 2, 0}, {0, -1, 0},
                                 {0, 0, -1}, {0, 0, 5}, {0, 1, 2}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(
            fp8c_program_port_view(l.p, bad[i][0], (fp8c_side)bad[i][1], bad[i][2], &v),
            FP8C_ERR_INPUT);
        said(l.ctx, "there is no such port");
    }
    ck_assert_int_eq(fp8c_program_variable_view(l.p, 1, &v), FP8C_ERR_INPUT);
    said(l.ctx, "the program has no variable 1");
    /* An outputs' view is what a call takes for an input. */
    tensors t;
    make(&t);
    fp8c_tensor_view y;
    ck_assert_int_eq(fp8c_program_port_view(l.p, l.eval, FP8C_OUTPUT, 0, &y), FP8C_OK);
    t.out[0] = &y;
    ck_assert_msg(call(&l, &t) == FP8C_OK, "%s", fp8c_context_message(l.ctx));
    end(&l);
}
END_TEST

/* Without memory for the strides there is no view, and nothing else is harmed. */
START_TEST(no_memory_for_strides)
{
    counting c = {0};
    const fp8c_context_options options = counted_options(&c);
    const fp8c_compile_options o = recipe("f32");
    life l = {0};
    fp8c_tensor_view v = {.ndim = 77};
    ck_assert_int_eq(fp8c_context_create(&options, &l.ctx), FP8C_OK);
    l.m = parse(l.ctx, model);
    l.p = compile(l.ctx, l.m, &o);
    c.fail_at = -1;
    while (f8_arena_array(&l.p->arena, 1, 1)) /* what its chunk has room for */
        ;
    l.p->arena.failed = 0;
    ck_assert_int_eq(fp8c_program_variable_view(l.p, 0, &v), FP8C_ERR_MEMORY);
    said(l.ctx, "out of memory: 80 bytes were wanted");
    ck_assert_int_eq(fp8c_program_port_view(l.p, 0, FP8C_INPUT, 0, &v), FP8C_ERR_MEMORY);
    ck_assert(v.ndim == 77 && !l.p->arena.failed);
    c.fail_at = 0;
    ck_assert_int_eq(fp8c_program_variable_view(l.p, 0, &v), FP8C_OK);
    has_strides(&v);
    end(&l);
    ck_assert_int_eq(c.live, 0);
}
END_TEST

/* ---- a GPU's memory, used in place ---- */

static const char doubling[] = "module doubling\n"
                               "param w: f32[6, 4] normal(1)\n"
                               "func forward(%x: f32[2, 4]) -> (%y: f32[2, 4]) {\n"
                               "  return add(%x, %x)\n"
                               "}\n";

/* Rows 4 and 5 of w become twice rows 1 and 2. */
START_TEST(device_memory)
{
    life l = begin(doubling, "cuda"),
         other = begin(doubling, "cuda"); /* whose memory is the caller's */
    fp8c_tensor_view x, y;
    float before[24], after[24];
    const int w = fp8c_program_find_variable(l.p, "w");
    ck_assert_int_ge(w, 0);
    ck_assert_int_eq(fp8c_program_variable_view(other.p, w, &x), FP8C_OK);
    ck_assert_int_eq(x.device.type, kDLCUDA);
    int64_t shape[] = {2, 4};
    x.shape = shape;
    y = x;
    x.byte_offset = 16;
    y.byte_offset = 64;
    const fp8c_tensor_view *in = &x, *out = &y;
    ck_assert_int_eq(fp8c_program_read(other.p, w, before), FP8C_OK);
    ck_assert_msg(fp8c_program_call(l.p, l.eval, &in, 1, &out, 1) == FP8C_OK, "%s",
                  fp8c_context_message(l.ctx));
    ck_assert_int_eq(fp8c_program_read(other.p, w, after), FP8C_OK);
    ck_assert(!memcmp(before, after, 64));
    for (int i = 0; i < 8; i++)
        ck_assert(after[16 + i] == 2 * before[4 + i]);
    x.byte_offset = 4;
    ck_assert_int_eq(fp8c_program_call(l.p, l.eval, &in, 1, &out, 1), FP8C_ERR_INPUT);
    said(l.ctx,
         "input 'x' of 'eval': its address is no multiple of 16, which a GPU's memory needs");
    x.byte_offset = 16;
    x.device.id = 1;
    ck_assert_int_eq(fp8c_program_call(l.p, l.eval, &in, 1, &out, 1), FP8C_ERR_INPUT);
    said(l.ctx, "input 'x' of 'eval': it is on GPU 1, and the program runs on GPU 0");
    /* In the CPU's program such a tensor is refused before anybody looks at its memory. */
    life c = begin(doubling, "cpu");
    ck_assert_int_eq(fp8c_program_call(c.p, c.eval, &in, 1, &out, 1), FP8C_ERR_INPUT);
    said(c.ctx, "input 'x' of 'eval': it is on device 2:1 (CUDA), and the program runs on the CPU");
    end(&c);
    end(&other);
    end(&l);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("tensor");
    TCase *t = tcase_create("tensor");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, calls, 0, 3);
    tcase_add_test(t, other_ways_to_say_it);
    tcase_add_loop_test(t, dtypes, 0, 3);
    tcase_add_loop_test(t, refusals, 0, 3);
    tcase_add_test(t, no_values_no_memory);
    tcase_add_loop_test(t, views, 0, 3);
    tcase_add_test(t, no_memory_for_strides);
    tcase_add_test(t, device_memory);
    suite_add_tcase(s, t);
    return s;
}
