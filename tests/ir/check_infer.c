/* Type inference: for every rule what it gives and what it refuses, with the message. One row of a
 * table is one case. */
#include "ir/ir.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    f8_op op;
    const char *in;   /* operand types, separated by spaces: "f32[8,4] i32[]" */
    const char *want; /* the result's type, or "!" and a part of the message */
    f8_attr attr[5];  /* up to one of key F8_A_COUNT */
} row;

/* Plain initializers, which f8_attr's own literals are not. */
#define AI(k, v) {.key = F8_A_##k, .i = (v)}
#define AF(k, v) {.key = F8_A_##k, .f = (v)}
#define AS(k, v) {.key = F8_A_##k, .s = (v)}
#define AV(k, ...)                                                                                 \
    {                                                                                              \
        .key = F8_A_##k, .ints = { COUNT(__VA_ARGS__, 5, 4, 3, 2, 1), {__VA_ARGS__} }              \
    }
#define COUNT(a, b, c, d, e, n, ...) n
#define ATTRS(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .key = F8_A_COUNT                                                                      \
        }                                                                                          \
    }
#define NONE                                                                                       \
    {                                                                                              \
        {                                                                                          \
            .key = F8_A_COUNT                                                                      \
        }                                                                                          \
    }

static const row leaves[] = {
    {F8_OP_CONST, "", "f32[]", ATTRS(AF(VALUE, 0.1))},
    {F8_OP_CONST, "", "i32[]", ATTRS(AF(VALUE, -3), AI(TO, F8_I32))},
    {F8_OP_CONST, "", "bool[]", ATTRS(AF(VALUE, 1), AI(TO, F8_BOOL))},
    {F8_OP_CONST, "", "bf16[]", ATTRS(AF(VALUE, 1.5), AI(TO, F8_BF16))},
    {F8_OP_CONST, "", "!const: 0.1 can't be represented in bf16",
     ATTRS(AF(VALUE, 0.1), AI(TO, F8_BF16))},
    {F8_OP_CONST, "", "!const: 0.5 can't be represented in i32",
     ATTRS(AF(VALUE, 0.5), AI(TO, F8_I32))},
    {F8_OP_CONST, "", "!can't be represented in i32", ATTRS(AF(VALUE, 3e9), AI(TO, F8_I32))},
    {F8_OP_CONST, "", "!2 can't be represented in bool", ATTRS(AF(VALUE, 2), AI(TO, F8_BOOL))},
    {F8_OP_CONST, "", "!a constant can't be f8e4m3", ATTRS(AI(TO, F8_E4M3))},
    {F8_OP_IOTA, "", "i32[2, 8]", ATTRS(AV(SHAPE, 2, 8))},
    {F8_OP_IOTA, "", "!size 0 of axis 1 is not positive", ATTRS(AV(SHAPE, 2, 0))},
    {F8_OP_IOTA, "", "!does not fit i32", ATTRS(AV(SHAPE, 1LL << 32))},
    {F8_OP_IOTA, "", "!has more than 2^47 bytes", ATTRS(AV(SHAPE, 1LL << 40, 1LL << 30))},
    {F8_OP_ROPE_COS, "", "f32[8, 4]", ATTRS(AV(SHAPE, 8, 4))},
    {F8_OP_ROPE_SIN, "", "!must be [T, D] with D even", ATTRS(AV(SHAPE, 8, 3))},
    {F8_OP_ROPE_SIN, "", "!must be [T, D]", ATTRS(AV(SHAPE, 8))},
    {F8_OP_ROPE_SIN, "", "!base = -1 is not positive", ATTRS(AV(SHAPE, 8, 4), AF(BASE, -1))},
    {F8_OP_ADD, "f32[]", "!add takes 2 operands, not 1", NONE},
    {F8_OP_NEG, "f32[] f32[]", "!neg takes 1 operand, not 2", NONE},
    {F8_OP_MATMUL, "f32[1,1]", "!matmul takes 2 to 4 operands, not 1", NONE},
    {F8_OP_NEG, "f32[]", "!neg: there is no attribute 'axis'", ATTRS(AI(AXIS, 0))},
    {F8_OP_CAST, "f32[]", "!cast: attribute 'to' is out of range", ATTRS(AI(TO, 99))},
    {F8_OP_INPUT, "", "!can't be made", NONE},
};

static const row pointwise[] = {
    {F8_OP_ADD, "f32[8,4] f32[4]", "f32[8, 4]", NONE},
    {F8_OP_ADD, "f32[8,1] f32[4]", "f32[8, 4]", NONE},
    {F8_OP_MUL, "f32[] f32[2,3,4,5,6]", "f32[2, 3, 4, 5, 6]", NONE},
    {F8_OP_ADD, "i32[3] i32[3]", "i32[3]", NONE},
    {F8_OP_ADD, "f32[8] f32[3]",
     "!add: f32[8] (from %x0, line 1:1) and f32[3] (from %x1, line 2:2): sizes 8 and 3 do not "
     "broadcast",
     NONE},
    {F8_OP_ADD, "f32[8] i32[8]", "!dtypes f32 and i32 differ; cast one", NONE},
    {F8_OP_ADD, "bf16[8] bf16[8]", "!operand 1 must be f32 or i32, not bf16; cast it to f32 first",
     NONE},
    {F8_OP_MUL, "f32[8] f8e4m3[8]",
     "!operand 2 must be f32 or i32, not f8e4m3; cast it to f32 first", NONE},
    {F8_OP_DIV, "i32[8] i32[8]", "!operand 1 must be f32, not i32", NONE},
    {F8_OP_FMA, "f32[8,1] f32[4] f32[]", "f32[8, 4]", NONE},
    {F8_OP_FMA, "i32[8] i32[8] i32[8]", "!must be f32, not i32", NONE},
    {F8_OP_RANDOM_BITS, "i32[8,1] i32[4] i32[]", "i32[8, 4]", NONE},
    {F8_OP_RANDOM_BITS, "f32[8] f32[8] f32[8]", "!operand 1 must be i32, not f32", NONE},
    {F8_OP_NEG, "i32[2]", "i32[2]", NONE},
    {F8_OP_EXP, "f32[2]", "f32[2]", NONE},
    {F8_OP_EXP, "i32[2]", "!exp: i32[2] (from %x0, line 1:1): operand 1 must be f32, not i32",
     NONE},
    {F8_OP_LT, "f32[8,1] f32[4]", "bool[8, 4]", NONE},
    {F8_OP_EQ, "i32[8] i32[]", "bool[8]", NONE},
    {F8_OP_LE, "bool[8] bool[8]", "!must be f32 or i32, not bool", NONE},
    {F8_OP_AND, "bool[8] bool[]", "bool[8]", NONE},
    {F8_OP_NOT, "f32[8]", "!must be bool, not f32", NONE},
    {F8_OP_ISFINITE, "f32[8]", "bool[8]", NONE},
    {F8_OP_SELECT, "bool[8,1] bf16[4] bf16[]", "bf16[8, 4]", NONE},
    {F8_OP_SELECT, "f32[8] f32[8] f32[8]", "!condition f32[8] (from %x0", NONE},
    {F8_OP_SELECT, "bool[8] f32[8] i32[8]", "!dtypes f32 and i32 differ", NONE},
    {F8_OP_CAST, "f32[8]", "bf16[8]", ATTRS(AI(TO, F8_BF16))},
    {F8_OP_CAST, "f8e5m2[8]", "f32[8]", NONE},
    {F8_OP_CAST, "bool[8]", "i32[8]", ATTRS(AI(TO, F8_I32))},
    {F8_OP_CAST, "f32[8]", "!a cast to f8e4m3 needs a scale: use quantize", ATTRS(AI(TO, F8_E4M3))},
    {F8_OP_CAST, "f32[8]", "!a cast to bool is a comparison", ATTRS(AI(TO, F8_BOOL))},
    {F8_OP_CAST, "i64[8]", "i32[8]", ATTRS(AI(TO, F8_I32))},
    {F8_OP_CAST, "i32[8]", "i64[8]", ATTRS(AI(TO, F8_I64))},
    {F8_OP_CAST, "i64[8]", "!a cast from i64 to f32: cast to i32 first", NONE},
    {F8_OP_CAST, "bool[8]", "!a cast from bool to i64: cast to i32 first", ATTRS(AI(TO, F8_I64))},
    {F8_OP_CAST, "i32[8]", "!rounds twice", ATTRS(AI(TO, F8_BF16))},
};

static const row reductions[] = {
    {F8_OP_REDUCE_SUM, "f32[2,3,4]", "f32[2, 3, 1]", NONE},
    {F8_OP_REDUCE_SUM, "f32[2,3,4]", "f32[1, 3, 4]", ATTRS(AI(AXIS, 0))},
    {F8_OP_REDUCE_SUM, "f32[2,3,4]", "f32[2, 1, 4]", ATTRS(AI(AXIS, 1))},
    {F8_OP_REDUCE_SUM, "f32[2,3,4]", "f32[1, 3, 1]", ATTRS(AV(AXES, -1, 0))},
    {F8_OP_REDUCE_MAX, "f32[2,3,4]", "f32[2, 1, 4]", ATTRS(AV(AXES, 1))},
    {F8_OP_MEAN, "f32[2,3,4]", "f32[1, 1, 1]", ATTRS(AV(AXES, 0, 1, 2))},
    {F8_OP_REDUCE_AMAX, "f32[2,3,4]", "!there is no axis 3", ATTRS(AV(AXES, 0, 3))},
    {F8_OP_REDUCE_SUM, "f32[2,3,4]", "!axis 2 is listed twice", ATTRS(AV(AXES, 2, 0, -1))},
    {F8_OP_REDUCE_SUM, "f32[2,3,4]", "!axis and axes are both given",
     ATTRS(AV(AXES, 2, 0), AI(AXIS, 1))},
    {F8_OP_REDUCE_SUM, "f32[4,3,4]", "!only the first or the last axis has blocks",
     ATTRS(AV(AXES, 1, 0), AI(BLOCK, 2))},
    {F8_OP_REDUCE_SUM, "f32[2,3]", "!there is no axis 2", ATTRS(AI(AXIS, 2))},
    {F8_OP_REDUCE_SUM, "f32[2,3]", "!there is no axis -3", ATTRS(AI(AXIS, -3))},
    {F8_OP_REDUCE_SUM, "f32[]", "!there is no axis -1", NONE},
    {F8_OP_REDUCE_SUM, "f32[130,4]", "f32[3, 4]", ATTRS(AI(AXIS, 0), AI(BLOCK, 64))},
    {F8_OP_REDUCE_SUM, "f32[130,4]", "!block = 64:", ATTRS(AI(BLOCK, 64))},
    {F8_OP_REDUCE_SUM, "f32[130]", "!block = 64:", ATTRS(AI(AXIS, 0), AI(BLOCK, 64))},
    {F8_OP_REDUCE_MAX, "f32[2,3]", "f32[2, 1]", NONE},
    {F8_OP_REDUCE_AMAX, "bf16[2,3]", "!must be f32, not bf16", NONE},
    {F8_OP_MEAN, "f32[2,3]", "f32[2, 1]", NONE},
};

static const row shapes[] = {
    {F8_OP_RESHAPE, "bf16[2,3,4]", "bf16[6, 4]", ATTRS(AV(SHAPE, 6, 4))},
    {F8_OP_RESHAPE, "f32[6]",
     "!reshape: f32[6] (from %x0, line 1:1): 6 elements do not fill f32[4]", ATTRS(AV(SHAPE, 4))},
    {F8_OP_RESHAPE, "f32[6]", "!size -1 of axis 0 is not positive", ATTRS(AV(SHAPE, -1))},
    {F8_OP_TRANSPOSE, "f32[2,3,4]", "f32[4, 2, 3]", ATTRS(AV(PERM, 2, 0, 1))},
    {F8_OP_TRANSPOSE, "f32[2,3,4]", "f32[4, 2, 3]", ATTRS(AV(PERM, -1, 0, 1))},
    {F8_OP_TRANSPOSE, "f32[2,3]", "!perm must name each of the 2 axes once", ATTRS(AV(PERM, 0, 0))},
    {F8_OP_TRANSPOSE, "f32[2,3]", "!perm must name", ATTRS(AV(PERM, 0, 2))},
    {F8_OP_TRANSPOSE, "f32[2,3]", "!perm must name", ATTRS(AV(PERM, 0))},
    {F8_OP_STOP_GRADIENT, "bf16[2,3,4]", "bf16[2, 3, 4]", NONE},
    {F8_OP_STOP_GRADIENT, "i64[]", "i64[]", NONE},
    {F8_OP_SLICE, "f32[8,6]", "f32[8, 2]", ATTRS(AI(START, 1), AI(STOP, 3))},
    {F8_OP_SLICE, "f32[8,6]",
     "!slice: f32[8, 6] (from %x0, line 1:1): [1, 7) does not lie within axis 1 of size 6",
     ATTRS(AI(START, 1), AI(STOP, 7))},
    {F8_OP_SLICE, "f32[8]", "!does not lie within", ATTRS(AI(START, 3), AI(STOP, 3))},
    {F8_OP_SLICE, "f32[8]", "!does not lie within", ATTRS(AI(START, -1), AI(STOP, 3))},
    {F8_OP_CONCAT, "f32[2,3] f32[2,4] f32[2,1]", "f32[2, 8]", NONE},
    {F8_OP_CONCAT, "f32[2,3] f32[3,3]", "f32[5, 3]", ATTRS(AI(AXIS, 0))},
    {F8_OP_CONCAT, "f32[2,3] f32[3,3]", "!operand 2 must have operand 1's sizes on all axes but 1",
     NONE},
    {F8_OP_CONCAT, "f32[2] i32[2]", "!dtypes f32 and i32 differ", NONE},
    {F8_OP_CONCAT, "f32[2] f32[2,2]", "!operand 2 must have operand 1", NONE},
    {F8_OP_CONCAT, "f32[]", "!there is no axis", NONE},
    {F8_OP_BROADCAST, "f32[3,1]", "f32[2, 3, 4]", ATTRS(AV(SHAPE, 2, 3, 4))},
    {F8_OP_BROADCAST, "f32[3]", "!does not broadcast to f32[2, 4]", ATTRS(AV(SHAPE, 2, 4))},
    {F8_OP_BROADCAST, "f32[3,1]", "!does not broadcast", ATTRS(AV(SHAPE, 3))},
    {F8_OP_ROLL, "f32[2,8]", "f32[2, 8]", ATTRS(AI(SHIFT, 1), AI(GROUP, 4))},
    {F8_OP_ROLL, "f32[2,8]", "!groups of 3 do not divide 8 columns", ATTRS(AI(GROUP, 3))},
    {F8_OP_ROLL, "f32[]", "!no last axis", NONE},
    {F8_OP_PROJECT, "f32[8]", "!input has 1 result: there is no result 1", NONE},
};

static const row gemms[] = {
    {F8_OP_MATMUL, "f32[8,256] f32[256,3]", "f32[8, 3]", NONE},
    {F8_OP_MATMUL, "bf16[2,4,256] bf16[256,3]", "f32[2, 4, 3]", NONE},
    {F8_OP_MATMUL, "f8e4m3[8,4] f8e5m2[4,2]", "f32[8, 2]", NONE},
    {F8_OP_MATMUL, "f32[2,4,6] f32[2,4,5]", "f32[6, 5]", ATTRS(AI(TRANSPOSE_A, 1))},
    {F8_OP_MATMUL, "f32[2,4,6] f32[5,6] f32[2,4,5]", "f32[2, 4, 5]", ATTRS(AI(TRANSPOSE_B, 1))},
    {F8_OP_MATMUL, "f32[4] f32[4,5]", "f32[5]", NONE},
    {F8_OP_MATMUL, "f32[8,256] f32[128,3]",
     "!matmul: a f32[8, 256] (from %x0, line 1:1) and b f32[128, 3] (from %x1, line 2:2): inner "
     "sizes 256 and "
     "128 differ",
     NONE},
    {F8_OP_MATMUL, "f32[4,6] f32[5,6] f32[4,4]",
     "!, b f32[5, 6] (from %x1, line 2:2) and acc f32[4, 4] (from %x2, line 3:3): acc must be the "
     "result's f32[4, 5]",
     ATTRS(AI(TRANSPOSE_B, 1))},
    {F8_OP_MATMUL, "f32[4,4] f32[4,4] bf16[4,4]", "!acc must be the result's f32[4, 4]", NONE},
    {F8_OP_MATMUL, "f32[4,4] f32[4,4] f32[4,4] bool[]", "f32[4, 4]", NONE},
    {F8_OP_MATMUL, "f32[4,4] f32[4,4] f32[4,4] f32[]", "!operand 4 must be a scalar, bool[]", NONE},
    {F8_OP_MATMUL, "f32[4,4] f32[4,4] f32[4,4] bool[1]", "!operand 4 must be a scalar, bool[]",
     NONE},
    {F8_OP_MATMUL, "bf16[4,6] bf16[6,3] bf16[3] bool[]",
     "!what is added to a bf16 result is a bias, always", ATTRS(AI(TO, F8_BF16))},
    {F8_OP_MATMUL, "f32[4,4] bf16[4,4]", "!dtypes f32 and bf16 differ; cast one", NONE},
    {F8_OP_MATMUL, "f8e5m2[4,4] f8e5m2[4,4]", "f32[4, 4]", NONE},
    {F8_OP_MATMUL, "f16[4,4] f16[4,4]",
     "!operand 1 must be f32 or bf16 or f8e4m3 or f8e5m2, not f16", NONE},
    {F8_OP_MATMUL, "f32[4,4] f32[4]", "!both must be matrices", NONE},
    {F8_OP_MATMUL, "f32[] f32[4,4]", "!both must be matrices", NONE},
    {F8_OP_MATMUL, "f32[4,4] f32[4,4]", "f32[4, 4]", ATTRS(AI(ROUND_A, 1), AI(ROUND_B, 1))},
    {F8_OP_MATMUL, "bf16[4,4] bf16[4,4]", "!only an f32 operand can be rounded",
     ATTRS(AI(ROUND_B, 1))},
    {F8_OP_MATMUL, "bf16[2,4,6] bf16[6,3]", "bf16[2, 4, 3]", ATTRS(AI(TO, F8_BF16))},
    {F8_OP_MATMUL, "bf16[4,6] bf16[6,3]", "!the result is f32 or bf16, not f16",
     ATTRS(AI(TO, F8_F16))},
    {F8_OP_MATMUL, "bf16[2,4,6] bf16[6,3] bf16[3]", "bf16[2, 4, 3]", ATTRS(AI(TO, F8_BF16))},
    {F8_OP_MATMUL, "bf16[6] bf16[6,3] bf16[3]", "bf16[3]", ATTRS(AI(TO, F8_BF16))},
    {F8_OP_MATMUL, "bf16[4,6] bf16[6,3] f32[4,3]",
     "!with to = bf16 acc is a bias, which must be bf16[3]", ATTRS(AI(TO, F8_BF16))},
    {F8_OP_MATMUL, "bf16[4,6] bf16[6,3] f32[3]",
     "!with to = bf16 acc is a bias, which must be bf16[3]", ATTRS(AI(TO, F8_BF16))},
    {F8_OP_MATMUL, "bf16[4,6] bf16[6,3] bf16[3]", "!acc must be the result's f32[4, 3]", NONE},
    {F8_OP_SCALED_MATMUL, "f8e4m3[3,4] f32[] f8e4m3[5,4] f32[]", "bf16[3, 5]",
     ATTRS(AI(TRANSPOSE_B, 1), AI(TO, F8_BF16))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[3,4] f32[] f8e4m3[5,4] f32[] bf16[5]", "bf16[3, 5]",
     ATTRS(AI(TRANSPOSE_B, 1), AI(TO, F8_BF16))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[3,4] f32[] f8e4m3[5,4] f32[] f32[3,5]",
     "!with to = bf16 acc is a bias, which must be bf16[5]",
     ATTRS(AI(TRANSPOSE_B, 1), AI(TO, F8_BF16))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[2,3,4] f32[] f8e4m3[4,5] f32[]", "f32[2, 3, 5]", NONE},
    {F8_OP_SCALED_MATMUL, "f8e4m3[2,3,4] f32[2,3,1] f8e4m3[4,5] f32[1,5]", "f32[2, 3, 5]",
     ATTRS(AS(SCALE_A, "row"), AS(SCALE_B, "column"))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[2,3,4] f32[2,3,1] f8e4m3[4,5] f32[4,1]",
     "!a GEMM takes one scale for the tensor", ATTRS(AS(SCALE_A, "row"), AS(SCALE_B, "row"))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[6,200] f32[6,2] f8e4m3[200,5] f32[2,1]", "f32[6, 5]",
     ATTRS(AS(SCALE_A, "block(1,128)"), AS(SCALE_B, "block(128,128)"))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[200,6] f8e8m0[7,6] f8e4m3[200,5] f8e8m0[7,5]", "f32[6, 5]",
     ATTRS(AI(TRANSPOSE_A, 1), AS(SCALE_A, "block(32,1)"), AS(SCALE_B, "block(32,1)"))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[200,6] f8e8m0[7,6] f8e4m3[200,5] f32[7,5]",
     "!a_inv and b_inv must have the same dtype",
     ATTRS(AI(TRANSPOSE_A, 1), AS(SCALE_A, "block(32,1)"), AS(SCALE_B, "block(32,1)"))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[6,200] f32[6,1] f8e4m3[200,5] f32[2,1]",
     "!operand 2 must be f32[6, 2]",
     ATTRS(AS(SCALE_A, "block(1,128)"), AS(SCALE_B, "block(128,128)"))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[3,4] f32[] f8e5m2[3,5] f32[] f32[4,5]", "f32[4, 5]",
     ATTRS(AI(TRANSPOSE_A, 1))},
    {F8_OP_SCALED_MATMUL, "f8e4m3[3,4] f32[] f8e4m3[4,5] f32[] f32[3,5] bool[]", "f32[3, 5]", NONE},
    {F8_OP_SCALED_MATMUL, "f8e5m2[3,4] f32[] f8e5m2[4,5] f32[]", "f32[3, 5]", NONE},
    {F8_OP_SCALED_MATMUL, "f8e4m3[3,4] f32[1] f8e4m3[4,5] f32[]",
     "!operand 2 must be a scalar, f32[]", NONE},
    {F8_OP_SCALED_MATMUL, "bf16[3,4] f32[] f8e4m3[4,5] f32[]",
     "!operand 1 must be f8e4m3 or f8e5m2, not bf16", NONE},
    {F8_OP_SCALED_MATMUL, "f8e4m3[3,4] f32[] f8e4m3[4,5] f32[] f32[3,4]",
     "!acc must be the result's f32[3, 5]", NONE},
    {F8_OP_LINEAR, "f32[2,3,4] f32[4,5] f32[5]", "f32[2, 3, 5]", NONE},
    {F8_OP_LINEAR, "f32[2,3,4] f32[5,4]", "f32[2, 3, 5]", ATTRS(AI(TRANSPOSE_B, 1))},
    {F8_OP_LINEAR, "f32[2,3] f32[4,5]", "!linear: x f32[2, 3] (from %x0, line 1:1) and w f32[4, 5]",
     NONE},
    {F8_OP_LINEAR, "f32[2,4] f32[4,5] f32[4]", "!operand 3 must be f32[5]", NONE},
    {F8_OP_LINEAR, "f32[2,4] f32[1,4,5]", "!w must be a matrix", NONE},
    {F8_OP_LINEAR, "bf16[2,4] f32[4,5]", "!operand 1 must be f32, not bf16; cast it to f32 first",
     NONE},
};

static const row attentions[] = {
    {F8_OP_ATTENTION, "bf16[2,5,8] bf16[2,5,4] bf16[2,5,4]", "bf16[2, 5, 8]",
     ATTRS(AI(HEADS, 4), AI(KV_HEADS, 2))},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,5,8] f32[2,5,8]", "f32[2, 5, 8]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,5,8] bf16[2,5,8]", "!dtypes f32, f32 and bf16 differ",
     NONE},
    {F8_OP_ATTENTION, "f32[5,8] f32[5,8] f32[5,8]",
     "!each must be [batch, positions, heads * size]", NONE},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,5,8] f32[2,5,8]", "!3 heads do not divide 8 columns",
     ATTRS(AI(HEADS, 3))},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,5,8] f32[2,5,8]", "!kv_heads = 3 does not divide heads = 4",
     ATTRS(AI(HEADS, 4), AI(KV_HEADS, 3))},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,5,8] f32[2,5,8]", "!k and v must both be [2, keys, 4]",
     ATTRS(AI(HEADS, 4), AI(KV_HEADS, 2))},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,6,8] f32[2,5,8]", "!k and v must both be [2, keys, 8]",
     NONE},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,6,8] f32[2,6,8]", "f32[2, 5, 8]", NONE},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,6,8] f32[2,6,8] bool[2,1,1,6]", "f32[2, 5, 8]", NONE},
    {F8_OP_ATTENTION, "bf16[2,5,8] bf16[2,6,8] bf16[2,6,8] f32[1,2,5,6]", "bf16[2, 5, 8]",
     ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,6,8] f32[2,6,8] bool[2,1,6,1]",
     "!the mask must be [2, 1, 5, 6]: batch, heads, positions, keys; any size may be 1", NONE},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,6,8] f32[2,6,8] bool[5,6]",
     "!the mask must be [2, 1, 5, 6]", NONE},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,6,8] f32[2,6,8] i32[1,1,5,6]",
     "!operand 4 must be f32 or bool, not i32", NONE},
    {F8_OP_ATTENTION, "f32[2,5,8] f32[2,5,8] f32[2,5,8]",
     "!scale = -1 must be finite and not negative", ATTRS(AF(SCALE, -1))},
    {F8_OP_ATTENTION_GRAD, "f32[2,5,8] f32[2,5,8] f32[2,5,8] f32[2,5,8] f32[2,2,5] f32[2,5,8]",
     "f32[2, 5, 8]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION_GRAD, "f32[2,5,8] f32[2,5,8] f32[2,5,8] f32[2,5,8] f32[2,5] f32[2,5,8]",
     "!o and do must be as q, lse f32[batch, heads, positions]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION_GRAD,
     "f32[2,5,8] f32[2,6,8] f32[2,6,8] f32[2,5,8] f32[2,2,5] f32[2,5,8] bool[1,1,1,6]",
     "f32[2, 5, 8]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION_GRAD,
     "f32[2,5,8] f32[2,6,8] f32[2,6,8] f32[2,5,8] f32[2,2,5] f32[2,5,8] bool[1,1,1,5]",
     "!the mask must be [2, 2, 5, 6]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION_GRAD,
     "f32[2,5,8] f32[2,6,8] f32[2,6,8] f32[2,5,8] f32[2,2,2,5] f32[2,5,8] f32[1,1,1,6]",
     "f32[2, 5, 8]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION_GRAD,
     "f32[2,5,8] f32[2,6,8] f32[2,6,8] f32[2,5,8] f32[2,2,5] f32[2,5,8] f32[1,1,1,6]",
     "!o and do must be as q, lse f32[batch, heads, 2, positions]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ATTENTION_GRAD,
     "f32[2,5,8] f32[2,6,8] f32[2,6,8] f32[2,5,8] f32[2,2,2,5] f32[2,5,8] bool[1,1,1,6]",
     "!o and do must be as q, lse f32[batch, heads, positions]", ATTRS(AI(HEADS, 2))},
};

static const row gathers[] = {
    {F8_OP_EMBEDDING, "f32[50,4] i32[2,3]", "f32[2, 3, 4]", NONE},
    {F8_OP_EMBEDDING, "f32[50,4] f32[2,3]", "!operand 2 must be i32 or i64, not f32", NONE},
    {F8_OP_EMBEDDING, "f32[50,4] i64[2,3]", "f32[2, 3, 4]", NONE},
    {F8_OP_EMBEDDING, "f32[50] i32[2,3]", "!the table must be [V, C]", NONE},
    {F8_OP_EMBEDDING, "f32[50,4] i32[1,1,1,1,2,1,1]", "f32[1, 1, 1, 1, 2, 1, 1, 4]", NONE},
    {F8_OP_EMBEDDING, "f32[50,4] i32[1,1,1,1,1,1,1,1]", "!the ids of at most 7 axes", NONE},
    {F8_OP_EMBEDDING_GRAD, "f32[50,4] i32[2,3] f32[2,3,4]", "f32[50, 4]", NONE},
    {F8_OP_EMBEDDING_GRAD, "f32[50,4] i32[2,3] f32[6,4]", "!dy must be f32[2, 3, 4]", NONE},
    {F8_OP_AMAX, "bf16[2,3]", "f32[]", NONE},
    {F8_OP_AMAX, "f32[2,3]", "!granularity = \"block(0,1)\" is none of",
     ATTRS(AS(GRANULARITY, "block(0,1)"))},
    {F8_OP_AMAX, "f32[2,3]", "!granularity = \"rows\" is none of", ATTRS(AS(GRANULARITY, "rows"))},
    {F8_OP_AMAX, "f32[]", "!a scalar has no rows", ATTRS(AS(GRANULARITY, "row"))},
    {F8_OP_AMAX, "f32[2,3,200]", "f32[2, 3, 1]", ATTRS(AS(GRANULARITY, "row"))},
    {F8_OP_AMAX, "f32[2,3,200]", "f32[1, 200]", ATTRS(AS(GRANULARITY, "column"))},
    {F8_OP_AMAX, "f32[2,3,200]", "f32[2, 3, 2]", ATTRS(AS(GRANULARITY, "block(1,128)"))},
    {F8_OP_AMAX, "f32[2,65,200]", "f32[2, 200]", ATTRS(AS(GRANULARITY, "block(128,1)"))},
    {F8_OP_AMAX, "f32[2,65,200]", "f32[2, 2]", ATTRS(AS(GRANULARITY, "block(128,128)"))},
    {F8_OP_FP8_SCALE, "f32[]", "f32[]", NONE},
    {F8_OP_FP8_SCALE, "f32[7] f32[7]", "f32[7]", ATTRS(AI(FORMAT, F8_E5M2))},
    {F8_OP_FP8_SCALE, "f32[7] f32[6]",
     "!fp8_scale: amax f32[7] (from %x0, line 1:1) and previous f32[6]", NONE},
    {F8_OP_FP8_SCALE, "f32[]", "!format = bf16 is neither f8e4m3 nor f8e5m2",
     ATTRS(AI(FORMAT, F8_BF16))},
    {F8_OP_QUANTIZE, "bf16[2,3] f32[]", "f8e5m2[2, 3]", ATTRS(AI(FORMAT, F8_E5M2))},
    {F8_OP_QUANTIZE, "f32[2,3] f32[2,1]", "f8e4m3[2, 3]", NONE},
    {F8_OP_QUANTIZE, "f32[2,3] f32[1,3]", "f8e4m3[2, 3]", NONE},
    {F8_OP_QUANTIZE, "f32[2,3] f32[2]", "!the scale does not broadcast", NONE},
    {F8_OP_QUANTIZE, "f32[3] f32[2,3]", "!the scale does not broadcast", NONE},
    {F8_OP_QUANTIZE, "f32[2,200] f32[2,2]", "f8e4m3[2, 200]",
     ATTRS(AS(GRANULARITY, "block(1,128)"))},
    {F8_OP_QUANTIZE, "f32[2,200] f32[2,3]", "!operand 2 must be f32[2, 2]",
     ATTRS(AS(GRANULARITY, "block(1,128)"))},
    {F8_OP_QUANTIZE, "f32[2,3] f32[2,1]", "!granularity must be block(ROWS,COLUMNS)",
     ATTRS(AS(GRANULARITY, "row"))},
    {F8_OP_DEQUANTIZE, "f8e5m2[2,200] f8e8m0[2,7]", "f32[2, 200]",
     ATTRS(AS(GRANULARITY, "block(1,32)"))},
    {F8_OP_DEQUANTIZE, "f8e5m2[2,3] f32[2,1]", "f32[2, 3]", NONE},
    {F8_OP_DEQUANTIZE, "f32[2,3] f32[2,1]", "!operand 1 must be f8e4m3 or f8e5m2", NONE},
    {F8_OP_QUANTIZE, "i32[2,3] f32[]", "!operand 1 must be f32 or bf16, not i32", NONE},
    {F8_OP_QUANTIZE, "f32[2] f32[]", "f8e8m0[2]", ATTRS(AI(FORMAT, F8_E8M0))},
    {F8_OP_QUANTIZE, "f32[2] f32[]", "!format = f16 is neither", ATTRS(AI(FORMAT, F8_F16))},
    {F8_OP_HISTORY_PUSH, "f32[3,16] f32[3]", "f32[3, 16]", NONE},
    {F8_OP_HISTORY_PUSH, "f32[3,16] f32[16]", "!the amax must have the history's axes but the last",
     NONE},
};

static const row composites[] = {
    {F8_OP_LAYERNORM, "f32[2,8] f32[8] f32[8]", "f32[2, 8]", NONE},
    {F8_OP_LAYERNORM, "f32[2,8] f32[8] f32[2]", "!operand 3 must be f32[8]", NONE},
    {F8_OP_RMSNORM, "f32[2,8] f32[8]", "f32[2, 8]", NONE},
    {F8_OP_RMSNORM, "f32[2,8] f32[8]", "!eps = -1 must be finite", ATTRS(AF(EPS, -1))},
    {F8_OP_RMSNORM, "f32[] f32[1]", "!a scalar has no last axis", NONE},
    {F8_OP_SOFTMAX, "f32[]", "!a scalar has no last axis", NONE},
    {F8_OP_SOFTMAX, "f32[2,8]", "f32[2, 8]", NONE},
    {F8_OP_GELU, "f32[2]", "f32[2]", ATTRS(AS(APPROXIMATE, "none"))},
    {F8_OP_GELU, "f32[2]", "!approximate = \"erf\" is neither", ATTRS(AS(APPROXIMATE, "erf"))},
    {F8_OP_GELU, "f32[2]", "f32[2]", ATTRS(AI(ROUNDED, F8_BF16))},
    {F8_OP_GELU, "f32[2]", "!rounded = f16 is neither f32 nor bf16", ATTRS(AI(ROUNDED, F8_F16))},
    {F8_OP_SILU, "f32[2]", "f32[2]", ATTRS(AI(ROUNDED, F8_BF16))},
    {F8_OP_SILU, "f32[2]", "!rounded = f16 is neither f32 nor bf16", ATTRS(AI(ROUNDED, F8_F16))},
    {F8_OP_DROPOUT, "f32[2,5,8] i32[]", "f32[2, 5, 8]", NONE},
    {F8_OP_DROPOUT, "bf16[8] i32[]", "!x bf16[8]", NONE},
    {F8_OP_DROPOUT, "f32[8] i32[1]", "!must be a scalar, i32[]", NONE},
    {F8_OP_DROPOUT, "f32[8] i32[]", "f32[8]", ATTRS(AF(P, 0), AI(STREAM, INT32_MAX))},
    {F8_OP_DROPOUT, "f32[8] i32[]", "!p must be 0 or more and below 1, not 1", ATTRS(AF(P, 1))},
    {F8_OP_DROPOUT, "f32[8] i32[]", "!below 1, not -0.1", ATTRS(AF(P, -0.1))},
    {F8_OP_DROPOUT, "f32[8] i32[]", "!below 1, not nan", ATTRS(AF(P, NAN))},
    {F8_OP_DROPOUT, "f32[8] i32[]", "!stream must be 0 to 2147483647, or -1, not -2",
     ATTRS(AI(STREAM, -2))},
    {F8_OP_DROPOUT, "f32[2147483647,2] i32[]", "f32[2147483647, 2]", NONE},
    {F8_OP_DROPOUT, "f32[2147483648,2] i32[]", "!row or column does not fit i32", NONE},
    {F8_OP_DROPOUT, "f32[2,2147483648] i32[]", "!row or column does not fit i32", NONE},
    {F8_OP_ROPE, "f32[2,5,8]", "f32[2, 5, 8]", ATTRS(AI(HEADS, 2))},
    {F8_OP_ROPE, "f32[2,5,6]", "!6 columns are not 2 heads of even size", ATTRS(AI(HEADS, 2))},
    {F8_OP_ROPE, "f32[8]", "!must be [.., positions, heads * size]", NONE},
    {F8_OP_ROPE, "f32[2,8]", "!base = 0 is not positive", ATTRS(AF(BASE, 0))},
    {F8_OP_ROPE, "f32[2,8]", "f32[2, 8]", ATTRS(AF(FACTOR, 8))},
    {F8_OP_ROPE, "f32[2,8]", "!factor = 0.5 is not 1 or more", ATTRS(AF(FACTOR, 0.5))},
    {F8_OP_ROPE, "f32[2,8]",
     "!low_freq_factor = 4 must be positive, and high_freq_factor = 4 greater",
     ATTRS(AF(LOW_FREQ_FACTOR, 4))},
    {F8_OP_ROPE, "f32[2,8]", "!original_max_position = 0 is not positive",
     ATTRS(AI(ORIGINAL_MAX_POSITION, 0))},
    {F8_OP_CROSS_ENTROPY, "f32[2,3,50] i32[2,3]", "f32[]", NONE},
    {F8_OP_CROSS_ENTROPY, "f32[2,3,50] i32[6]",
     "!the targets must have the logits' axes but the last", NONE},
    {F8_OP_CROSS_ENTROPY, "f32[] i32[]", "!the targets must have", NONE},
    {F8_OP_CROSS_ENTROPY_GRAD, "f32[6,50] i32[6] f32[]", "f32[6, 50]", NONE},
    {F8_OP_CROSS_ENTROPY_GRAD, "f32[6,50] i32[6] f32[6]", "!operand 3 must be a scalar", NONE},
};

/* ---- running them ---- */

static f8_type type_from(const char *text)
{
    f8_type t = {.rank = 0};
    size_t n = strcspn(text, "[");
    t.dtype = f8_dtype_by_name(text, n);
    ck_assert_int_ne(t.dtype, F8_DTYPE_COUNT);
    for (const char *p = text + n + 1; *p && *p != ']';) {
        char *end;
        t.dim[t.rank++] = strtoll(p, &end, 10);
        p = *end == ',' ? end + 1 : end;
    }
    return t;
}

static void run_row(const row *c, int index)
{
    f8_diag diag = {0};
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_module *m = f8_module_create(&arena, &diag, "m", "test");
    f8_func *f = f8_module_func(m, "f");
    f8_ref in[8];
    int n_in = 0, n_attr = 0;
    while (c->attr[n_attr].key != F8_A_COUNT)
        n_attr++;
    for (const char *p = c->in; *p; p += strspn(p, " ")) {
        char text[64], name[8];
        size_t n = strcspn(p, " ");
        snprintf(text, sizeof text, "%.*s", (int)n, p);
        snprintf(name, sizeof name, "x%d", n_in);
        f8_type t = type_from(text);
        f->graph->at = (f8_loc){(uint32_t)n_in + 1, (uint32_t)n_in + 1};
        in[n_in++] = f8_func_input(f, name, &t, -1);
        p += n;
    }
    f->graph->at = (f8_loc){77, 3};
    f8_ref r = f8_make(f->graph, c->op, in, n_in, c->attr, n_attr);
    const char *op = f8_op_facts(c->op)->name;
    if (c->want[0] == '!') {
        ck_assert_msg(r == 0, "%s, row %d: made", op, index);
        ck_assert_msg(strstr(diag.text, c->want + 1), "%s, row %d: %s", op, index, diag.text);
        ck_assert_uint_eq(diag.loc.line, 77);
    } else {
        char is[160];
        ck_assert_msg(r != 0, "%s, row %d: %s", op, index, diag.text);
        ck_assert_msg(!strcmp(f8_type_print(f8_type_of(f->graph, r), is, sizeof is), c->want),
                      "%s, row %d: %s", op, index, is);
        ck_assert_uint_eq(f8_make(f->graph, c->op, in, n_in, c->attr, n_attr), r);
        ck_assert_int_eq(f8_func_result(f, "y", r, -1), F8_OK);
        ck_assert_msg(f8_verify(m, &diag) == F8_OK, "%s, row %d: %s", op, index, diag.text);
    }
    f8_arena_end(&arena);
}

#define TABLE(name)                                                                                \
    START_TEST(infer_##name)                                                                       \
    {                                                                                              \
        for (size_t i = 0; i < sizeof name / sizeof name[0]; i++)                                  \
            run_row(&name[i], (int)i);                                                             \
    }                                                                                              \
    END_TEST

TABLE(leaves)
TABLE(pointwise)
TABLE(reductions)
TABLE(shapes)
TABLE(gemms)
TABLE(attentions)
TABLE(gathers)
TABLE(composites)

/* Results beyond the first, and what a message says of operands without a name and of variables. */
START_TEST(infer_results_and_names)
{
    f8_diag diag = {0};
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_module *m = f8_module_create(&arena, &diag, "m", "test");
    f8_var wte = {.name = "wte", .type = type_from("f32[7,3]"), .loc = {3, 1}};
    int32_t var = f8_module_var(m, &wte);
    f8_func *f = f8_module_func(m, "f");
    f8_type q = type_from("bf16[2,5,8]"), k = type_from("bf16[2,5,4]");
    f8_graph *g = f->graph;
    f8_ref in[] = {f8_func_input(f, "q", &q, -1), f8_func_input(f, "k", &k, -1), 0};
    in[2] = in[1];
    f8_attr heads[] = {F8_INT(F8_A_HEADS, 4), F8_INT(F8_A_KV_HEADS, 2)};
    f8_ref o = f8_make(g, F8_OP_ATTENTION, in, 3, heads, 2), lse = f8_project(g, o, 1);
    char text[160];
    ck_assert_str_eq(f8_type_print(f8_type_of(g, lse), text, sizeof text), "f32[2, 4, 5]");
    ck_assert_uint_eq(f8_project(g, o, 0), o);
    f8_ref grad[] = {in[0], in[1], in[2], o, lse, o};
    f8_ref d = f8_make(g, F8_OP_ATTENTION_GRAD, grad, 6, heads, 2);
    ck_assert_str_eq(f8_type_print(f8_type_of(g, f8_project(g, d, 2)), text, sizeof text),
                     "bf16[2, 5, 4]");
    ck_assert_int_eq(diag.status, F8_OK);
    ck_assert_uint_eq(f8_project(g, o, 2), 0);
    ck_assert_ptr_nonnull(strstr(diag.text, "attention has 2 results: there is no result 2"));

    diag = (f8_diag){0};
    g->at = (f8_loc){12, 5};
    f8_ref w = f8_func_var(f, var);
    g->at = (f8_loc){14, 2};
    f8_ref e = f8_unary(g, F8_OP_EXP, f8_const(g, 1));
    ck_assert_uint_eq(f8_binary(g, F8_OP_MATMUL, w, e), 0);
    ck_assert_str_eq(diag.text,
                     "matmul: a f32[7, 3] (from wte, line 12:5) and b f32[] (from exp, line 14:2): "
                     "both must be matrices, [.., rows, columns]");
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("infer");
    TCase *t = tcase_create("rules");
    tcase_add_test(t, infer_leaves);
    tcase_add_test(t, infer_pointwise);
    tcase_add_test(t, infer_reductions);
    tcase_add_test(t, infer_shapes);
    tcase_add_test(t, infer_gemms);
    tcase_add_test(t, infer_attentions);
    tcase_add_test(t, infer_gathers);
    tcase_add_test(t, infer_composites);
    tcase_add_test(t, infer_results_and_names);
    suite_add_tcase(s, t);
    return s;
}
