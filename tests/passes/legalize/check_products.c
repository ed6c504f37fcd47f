/* What legalize makes of products for each target's GEMMs (operands, results, arrays of scales),
 * and what it refuses. */
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include <stdio.h>

static void legalize(test_unit *t, const char *target, const char *text)
{
    char whole[2048];
    snprintf(whole, sizeof whole, "module m\n%s", text);
    test_unit_parse(t, whole, "f32");
    t->unit.options.target = f8_target_by_name(target);
    test_pass(t, f8_pass_legalize);
}

static const struct {
    const char *target, *text, *body;
} products[] = {
    /* a weight's rounding is a kernel of its own */
    {"sm_90a",
     "param w: f32[20, 8] zeros\nfunc forward(%x: bf16[30, 20]) -> (%y: f32[30, 8]) {\n"
     "  return matmul(%x, cast(w) {to = bf16})\n}\n",
     "  %1 = cast(w) {to = bf16}\n  %2 = matmul(%x, %1)\n  return %2\n"},
    {"sm_90a",
     "param w: f32[20, 8] zeros\nfunc forward(%x: bf16[30, 20]) -> (%y: f32[30, 8]) {\n"
     "  return matmul(%x, w) {round_b = true}\n}\n",
     "  %1 = cast(w) {to = bf16}\n  %2 = matmul(%x, %1)\n  return %2\n"},
    /* a result rounded at once, also under a reshape */
    {"sm_90a",
     "func forward(%x: bf16[30, 20], %w: bf16[20, 8]) -> (%y: bf16[3, 10, 8]) {\n"
     "  return cast(reshape(matmul(%x, %w)) {shape = [3, 10, 8]}) {to = bf16}\n}\n",
     "  %1 = matmul(%x, %w) {to = bf16}\n  %2 = reshape(%1) {shape = [3, 10, 8]}\n  return %2\n"},
    /* not where the f32 sum is wanted too, or is added to */
    {"sm_90a",
     "func forward(%x: bf16[30, 20], %w: bf16[20, 8]) -> (%y: bf16[30, 8], %z: f32[30, 8]) {\n"
     "  %p = matmul(%x, %w)\n  return cast(%p) {to = bf16}, %p\n}\n",
     "  %p = matmul(%x, %w)\n  %1 = cast(%p) {to = bf16}\n  return %1, %p\n"},
    {"sm_90a",
     "func forward(%x: bf16[30, 20], %w: bf16[20, 8], %a: f32[30, 8]) -> (%y: bf16[30, 8]) {\n"
     "  return cast(matmul(%x, %w, %a)) {to = bf16}\n}\n",
     "  %1 = matmul(%x, %w, %a)\n  %2 = cast(%1) {to = bf16}\n  return %2\n"},
    {"sm_90a",
     "func forward(%x: bf16[30, 20], %w: bf16[20, 8], %a: f32[8]) -> (%y: bf16[30, 8]) {\n"
     "  return cast(add(matmul(%x, %w), %a)) {to = bf16}\n}\n",
     "  %1 = matmul(%x, %w)\n  %2 = add(%1, %a)\n  %3 = cast(%2) {to = bf16}\n  return %3\n"},
    /* a bf16 bias is added in the epilogue, before the rounding */
    {"sm_90a",
     "param b: f32[8] zeros\nfunc forward(%x: bf16[3, 10, 24], %w: bf16[24, 8]) -> (%y: bf16[30, "
     "8]) {\n  %p = reshape(add(matmul(%x, %w), cast(cast(b) {to = bf16}))) {shape = [30, 8]}\n"
     "  return cast(%p) {to = bf16}\n}\n",
     "  %1 = cast(b) {to = bf16}\n  %2 = matmul(%x, %w, %1) {to = bf16}\n"
     "  %3 = reshape(%2) {shape = [30, 8]}\n  return %3\n"},
    {"sm_89",
     "func forward(%a: f8e4m3[16, 16], %s: f32[], %b: bf16[16]) -> (%x: bf16[16, 16]) {\n"
     "  return cast(add(scaled_matmul(%a, %s, %a, %s) {transpose_b = true}, cast(%b))) {to = "
     "bf16}\n}\n",
     "  %1 = scaled_matmul(%a, %s, %a, %s, %b) {transpose_b = true, to = bf16}\n  return %1\n"},
    /* not where the sum is wanted as f32 too, or where n is padded */
    {"sm_90a",
     "func forward(%x: bf16[30, 24], %w: bf16[24, 8], %b: bf16[8]) -> (%y: bf16[30, 8], %z: "
     "f32[30, 8]) {\n  %p = add(matmul(%x, %w), cast(%b))\n  return cast(%p) {to = bf16}, %p\n}\n",
     "  %1 = matmul(%x, %w)\n  %2 = cast(%b)\n  %p = add(%1, %2)\n  %3 = cast(%p) {to = bf16}\n"
     "  return %3, %p\n"},
    {"sm_90a",
     "func forward(%x: bf16[30, 24], %w: bf16[24, 9], %b: bf16[9]) -> (%y: bf16[30, 9]) {\n"
     "  return matmul(%x, %w, %b) {to = bf16}\n}\n",
     "  %1 = matmul(%x, %w)\n  %2 = cast(%b)\n  %3 = add(%1, %2)\n  %4 = cast(%3) {to = bf16}\n"
     "  return %4\n"},
    /* nor with scales of blocks, whose epilogue no GPU has shown, nor on the CPU */
    {"sm_100a",
     "func forward(%a: f8e4m3[128, 128], %s: f8e8m0[128, 4], %b: bf16[128]) -> (%x: bf16[128, "
     "128]) {\n  return scaled_matmul(%a, %s, %a, %s, %b) {transpose_b = true, "
     "scale_a = \"block(1,32)\", scale_b = \"block(1,32)\", to = bf16}\n}\n",
     "  %1 = reshape(%s) {shape = [1, 4, 32, 1, 4]}\n  %2 = transpose(%1) {perm = [0, 3, 2, 1, "
     "4]}\n"
     "  %3 = scaled_matmul(%a, %2, %a, %2) {transpose_b = true, scale_a = \"block(1,32)\", scale_b "
     "= "
     "\"block(1,32)\", scale_layout = \"cublaslt\"}\n"
     "  %4 = cast(%b)\n  %5 = add(%3, %4)\n  %6 = cast(%5) {to = bf16}\n  return %6\n"},
    {"cpu",
     "func forward(%x: bf16[30, 20], %w: bf16[20, 8], %b: bf16[8]) -> (%y: bf16[30, 8]) {\n"
     "  return matmul(%x, %w, %b) {to = bf16}\n}\n",
     "  %1 = matmul(%x, %w)\n  %2 = cast(%b)\n  %3 = add(%1, %2)\n  %4 = cast(%3) {to = bf16}\n"
     "  return %4\n"},
    /* a part that begins at no multiple of 16 bytes is copied */
    {"sm_90a",
     "func forward(%x: bf16[30, 24], %w: bf16[24, 8], %b: bf16[20]) -> (%y: bf16[30, 8]) {\n"
     "  return matmul(%x, %w, slice(%b) {start = 4, stop = 12}) {to = bf16}\n}\n",
     "  %1 = slice(%b) {start = 4, stop = 12}\n  %2 = broadcast#27751(%1) {shape = [8]}\n"
     "  %3 = matmul(%x, %w, %2) {to = bf16}\n  return %3\n"},
    /* nor of f32 operands: such a GEMM gives f32 only */
    {"sm_90a",
     "func forward(%x: f32[30, 20], %w: f32[20, 8]) -> (%y: bf16[30, 8], %z: bf16[30, 8]) {\n"
     "  return cast(matmul(%x, %w)) {to = bf16}, matmul(%x, %w) {to = bf16}\n}\n",
     "  %1 = matmul(%x, %w)\n  %2 = cast(%1) {to = bf16}\n  return %2, %2\n"},
    /* but of those that it rounds itself */
    {"sm_90a",
     "func forward(%x: f32[30, 20], %w: f32[20, 8]) -> (%y: bf16[30, 8]) {\n"
     "  return cast(matmul(%x, %w) {round_a = true, round_b = true}) {to = bf16}\n}\n",
     "  %1 = cast(%x) {to = bf16}\n  %2 = cast(%w) {to = bf16}\n"
     "  %3 = matmul(%1, %2) {to = bf16}\n  return %3\n"},
    /* the CPU's GEMM gives f32 only */
    {"cpu",
     "func forward(%x: bf16[30, 20], %w: bf16[20, 8]) -> (%y: bf16[30, 8]) {\n"
     "  return matmul(%x, %w) {to = bf16}\n}\n",
     "  %1 = matmul(%x, %w)\n  %2 = cast(%1) {to = bf16}\n  return %2\n"},
    /* k contiguous on both sides; a transpose wanted twice is one node */
    {"sm_90a",
     "func forward(%a: f8e4m3[2, 16, 32], %b: f8e4m3[32, 48], %c: f8e5m2[32, 16], %s: f32[]) -> "
     "(%x: f32[2, 16, 48], %y: f32[32, 16]) {\n"
     "  return scaled_matmul(%a, %s, %b, %s), scaled_matmul(%a, %s, %c, %s) {transpose_a = "
     "true}\n}\n",
     "  %b.t = transpose(%b) {perm = [1, 0]}\n"
     "  %1 = scaled_matmul(%a, %s, %b.t, %s) {transpose_b = true}\n"
     "  %2 = reshape(%a) {shape = [32, 32]}\n  %a.t = transpose(%2) {perm = [1, 0]}\n"
     "  %c.t = transpose(%c) {perm = [1, 0]}\n"
     "  %3 = scaled_matmul(%a.t, %s, %c.t, %s) {transpose_b = true}\n  return %1, %3\n"},
    {"sm_89",
     "func forward(%a: f8e4m3[16, 16], %s: f32[]) -> (%x: bf16[16, 16], %y: f32[16, 16]) {\n"
     "  return scaled_matmul(%a, %s, %a, %s) {to = bf16}, scaled_matmul(%a, %s, %a, %s) "
     "{transpose_a = true, transpose_b = true}\n}\n",
     "  %a.t = transpose(%a) {perm = [1, 0]}\n"
     "  %1 = scaled_matmul(%a, %s, %a.t, %s) {transpose_b = true, to = bf16}\n"
     "  %2 = scaled_matmul(%a.t, %s, %a, %s) {transpose_b = true}\n  return %1, %2\n"},
    /* a part that begins at no multiple of 16 bytes, or whose rows don't, is copied */
    {"sm_90a",
     "func forward(%a: f8e4m3[16, 48], %b: f8e4m3[16, 40], %s: f32[]) -> "
     "(%x: f32[16, 16], %y: f32[16, 16]) {\n"
     "  %a1 = slice(%a) {axis = 1, start = 16, stop = 48}\n"
     "  %a2 = slice(%a) {axis = 1, start = 3, stop = 35}\n"
     "  %b1 = slice(%b) {axis = 1, stop = 32}\n"
     "  return scaled_matmul(%a1, %s, %a2, %s) {transpose_b = true}, "
     "scaled_matmul(%a1, %s, %b1, %s) {transpose_b = true}\n}\n",
     "  %a1 = slice(%a) {start = 16, stop = 48}\n"
     "  %a2 = slice(%a) {start = 3, stop = 35}\n  %b1 = slice(%b) {stop = 32}\n"
     "  %1 = broadcast#27751(%a2) {shape = [16, 32]}\n"
     "  %2 = scaled_matmul(%a1, %s, %1, %s) {transpose_b = true}\n"
     "  %3 = broadcast#27751(%b1) {shape = [16, 32]}\n"
     "  %4 = scaled_matmul(%a1, %s, %3, %s) {transpose_b = true}\n  return %2, %4\n"},
    {"sm_100a",
     "func forward(%a: f8e4m3[16, 32], %b: f8e4m3[32, 48], %s: f32[]) -> (%x: f32[16, 48]) {\n"
     "  return scaled_matmul(%a, %s, %b, %s)\n}\n",
     "  %1 = scaled_matmul(%a, %s, %b, %s)\n  return %1\n"},
    /* scales of rows turn with their codes, and nothing moves */
    {"sm_90a",
     "func forward(%a: f8e4m3[32, 16], %s: f32[1, 16], %b: f8e4m3[32, 48], %t: f32[1, 48]) -> "
     "(%x: f32[16, 48]) {\n  return scaled_matmul(%a, %s, %b, %t) "
     "{transpose_a = true, scale_a = \"column\", scale_b = \"column\"}\n}\n",
     "  %a.t = transpose(%a) {perm = [1, 0]}\n  %b.t = transpose(%b) {perm = [1, 0]}\n"
     "  %1 = reshape(%s) {shape = [16, 1]}\n  %2 = reshape(%t) {shape = [48, 1]}\n"
     "  %3 = scaled_matmul(%a.t, %1, %b.t, %2) {transpose_b = true, scale_a = \"row\", scale_b = "
     "\"row\"}\n"
     "  return %3\n"},
    /* one scale for one operand, one a row for the other: spread */
    {"sm_90a",
     "func forward(%a: f8e4m3[2, 8, 32], %s: f32[2, 8, 1], %b: f8e4m3[48, 32], %t: f32[]) -> "
     "(%x: f32[2, 8, 48]) {\n  return scaled_matmul(%a, %s, %b, %t) "
     "{transpose_b = true, scale_a = \"row\"}\n}\n",
     "  %1 = broadcast(%t) {shape = [48, 1]}\n"
     "  %2 = scaled_matmul(%a, %s, %b, %1) {transpose_b = true, scale_a = \"row\", scale_b = "
     "\"row\"}\n"
     "  return %2\n"},
    /* runs along k: the other axis first; tiles: k first, to a multiple of 4 */
    {"sm_90a",
     "func forward(%a: f8e4m3[2, 16, 256], %s: f32[2, 16, 2], %b: f8e4m3[256, 144], %t: f32[2, 2]) "
     "-> "
     "(%x: f32[2, 16, 144]) {\n  return scaled_matmul(%a, %s, %b, %t) "
     "{scale_a = \"block(1,128)\", scale_b = \"block(128,128)\"}\n}\n",
     "  %b.t = transpose(%b) {perm = [1, 0]}\n  %1 = reshape(%s) {shape = [32, 2]}\n"
     "  %2 = transpose(%1) {perm = [1, 0]}\n  %3 = transpose(%t) {perm = [1, 0]}\n"
     "  %4 = broadcast(0) {shape = [2, 2]}\n  %5 = concat(%3, %4)\n"
     "  %6 = scaled_matmul(%a, %2, %b.t, %5) {transpose_b = true, scale_a = \"block(1,128)\", "
     "scale_b = "
     "\"block(128,128)\", scale_layout = \"cublaslt\"}\n  return %6\n"},
    /* a weight gradient's: as they are */
    {"sm_90a",
     "func forward(%a: f8e4m3[256, 16], %s: f32[2, 16], %b: f8e4m3[256, 32], %t: f32[2, 32]) -> "
     "(%x: f32[16, 32]) {\n  return scaled_matmul(%a, %s, %b, %t) {transpose_a = true, "
     "scale_a = \"block(128,1)\", scale_b = \"block(128,1)\"}\n}\n",
     "  %a.t = transpose(%a) {perm = [1, 0]}\n  %b.t = transpose(%b) {perm = [1, 0]}\n"
     "  %1 = scaled_matmul(%a.t, %s, %b.t, %t) {transpose_b = true, scale_a = \"block(1,128)\", "
     "scale_b = "
     "\"block(1,128)\", scale_layout = \"cublaslt\"}\n  return %1\n"},
    /* tiles of E8M0, whichever axis k is: zeros after them, where no code of theirs is */
    {"sm_100a",
     "func forward(%a: f8e4m3[128, 256], %s: f8e8m0[128, 8], %b: f8e4m3[256, 128], %t: f8e8m0[8, "
     "128]) -> "
     "(%x: f32[128, 128]) {\n  return scaled_matmul(%a, %s, %b, %t) "
     "{scale_a = \"block(1,32)\", scale_b = \"block(32,1)\"}\n}\n",
     "  %1 = reshape(%s) {shape = [1, 4, 32, 2, 4]}\n  %2 = transpose(%1) {perm = [0, 3, 2, 1, "
     "4]}\n"
     "  %3 = reshape(%t) {shape = [2, 4, 1, 4, 32]}\n  %4 = transpose(%3) {perm = [2, 0, 4, 3, "
     "1]}\n"
     "  %5 = scaled_matmul(%a, %2, %b, %4) {scale_a = \"block(1,32)\", scale_b = \"block(32,1)\", "
     "scale_layout = \"cublaslt\"}\n  return %5\n"},
    {"sm_120a",
     "func forward(%a: f8e4m3[144, 80], %s: f8e8m0[144, 3]) -> (%x: f32[144, 144]) {\n"
     "  return scaled_matmul(%a, %s, %a, %s) "
     "{transpose_b = true, scale_a = \"block(1,32)\", scale_b = \"block(1,32)\"}\n}\n",
     "  %1 = quantize(0, 1) {format = f8e8m0}\n  %2 = broadcast(%1) {shape = [112, 3]}\n"
     "  %3 = concat(%s, %2) {axis = 0}\n  %4 = broadcast(%1) {shape = [256, 1]}\n  %5 = concat(%3, "
     "%4)\n"
     "  %6 = reshape(%5) {shape = [2, 4, 32, 1, 4]}\n  %7 = transpose(%6) {perm = [0, 3, 2, 1, "
     "4]}\n"
     "  %8 = scaled_matmul(%a, %7, %a, %7) {transpose_b = true, scale_a = \"block(1,32)\", scale_b "
     "= "
     "\"block(1,32)\", scale_layout = \"cublaslt\"}\n  return %8\n"},
    /* any m: zeros behind the rows of codes, and the result is a part; not on the CPU */
    {"cpu",
     "func forward(%a: f8e4m3[5, 16], %s: f32[], %b: f8e4m3[32, 16]) -> (%x: f32[5, 32]) {\n"
     "  return scaled_matmul(%a, %s, %b, %s) {transpose_b = true}\n}\n",
     "  %1 = scaled_matmul(%a, %s, %b, %s) {transpose_b = true}\n  return %1\n"},
    {"sm_90a",
     "func forward(%a: f8e4m3[5, 3, 16], %s: f32[], %b: f8e4m3[32, 16], %c: bf16[32]) -> (%x: "
     "bf16[5, 3, 32]) {\n  return scaled_matmul(%a, %s, %b, %s, %c) {transpose_b = true, to = "
     "bf16}\n}\n",
     "  %1 = reshape(%a) {shape = [15, 16]}\n  %2 = broadcast#57857(0) {shape = [1, 16]}\n"
     "  %padding = quantize#57857(%2, 1)\n  %a.padded = concat(%1, %padding) {axis = 0}\n"
     "  %3 = scaled_matmul(%a.padded, %s, %b, %s, %c) {transpose_b = true, to = bf16}\n"
     "  %4 = slice(%3) {axis = 0, stop = 15}\n  %5 = reshape(%4) {shape = [5, 3, 32]}\n"
     "  return %5\n"},
    /* an accumulator gets rows, too */
    {"sm_100a",
     "func forward(%a: f8e5m2[16, 5], %b: f8e4m3[16, 32], %c: f32[5, 32]) -> (%x: f32[5, 32]) {\n"
     "  return matmul(%a, %b, %c) {transpose_a = true}\n}\n",
     "  %1 = broadcast#57857(0) {shape = [16, 11]}\n"
     "  %2 = quantize#57857(%1, 1) {format = f8e5m2}\n  %a.padded = concat(%a, %2)\n"
     "  %3 = broadcast#57859(0) {shape = [11, 32]}\n  %c.padded = concat(%c, %3) {axis = 0}\n"
     "  %4 = matmul(%a.padded, %b, %c.padded) {transpose_a = true}\n"
     "  %5 = slice(%4) {axis = 0, stop = 5}\n  return %5\n"},
    /* scales of rows, and of blocks of 128 along k: one for each row */
    {"sm_90a",
     "func forward(%a: f8e4m3[17, 32], %s: f32[17, 1], %b: f8e4m3[48, 32], %t: f32[48, 1]) -> (%x: "
     "f32[17, 48]) {\n  return scaled_matmul(%a, %s, %b, %t) {transpose_b = true, scale_a = "
     "\"row\", scale_b = \"row\"}\n}\n",
     "  %1 = broadcast#57857(0) {shape = [15, 32]}\n  %2 = quantize#57857(%1, 1)\n"
     "  %a.padded = concat(%a, %2) {axis = 0}\n  %3 = broadcast#57858(0) {shape = [15, 1]}\n"
     "  %s.padded = concat(%s, %3) {axis = 0}\n"
     "  %4 = scaled_matmul(%a.padded, %s.padded, %b, %t) {transpose_b = true, scale_a = "
     "\"row\", scale_b = \"row\"}\n  %5 = slice(%4) {axis = 0, stop = 17}\n  return %5\n"},
    {"sm_90a",
     "func forward(%a: f8e4m3[1, 256], %s: f32[1, 2], %b: f8e4m3[128, 256], %t: f32[1, 2]) -> "
     "(%x: f32[1, 128]) {\n  return scaled_matmul(%a, %s, %b, %t) {transpose_b = true, scale_a = "
     "\"block(1,128)\", scale_b = \"block(128,128)\"}\n}\n",
     "  %1 = reshape(%s) {shape = [2, 1]}\n  %2 = broadcast(0) {shape = [1, 2]}\n"
     "  %3 = concat(%t, %2)\n  %4 = broadcast#57857(0) {shape = [15, 256]}\n"
     "  %5 = quantize#57857(%4, 1)\n  %a.padded = concat(%a, %5) {axis = 0}\n"
     "  %6 = broadcast#57861(0) {shape = [2, 15]}\n  %7 = concat(%1, %6)\n"
     "  %8 = scaled_matmul(%a.padded, %7, %b, %3) {transpose_b = true, scale_a = "
     "\"block(1,128)\", scale_b = \"block(128,128)\", scale_layout = \"cublaslt\"}\n"
     "  %9 = slice(%8) {axis = 0, stop = 1}\n  return %9\n"},
    /* any k, as wgrad has it: zeros in both; the scales of blocks along k stay */
    {"sm_90a",
     "func forward(%a: f8e4m3[130, 16], %s: f32[2, 16], %b: f8e4m3[130, 32], %t: f32[2, 32]) -> "
     "(%x: f32[16, 32]) {\n  return scaled_matmul(%a, %s, %b, %t) {transpose_a = true, scale_a = "
     "\"block(128,1)\", scale_b = \"block(128,1)\"}\n}\n",
     "  %a.t = transpose(%a) {perm = [1, 0]}\n  %b.t = transpose(%b) {perm = [1, 0]}\n"
     "  %1 = broadcast#57861(0) {shape = [16, 14]}\n  %2 = quantize#57861(%1, 1)\n"
     "  %a.t.padded = concat(%a.t, %2)\n  %3 = broadcast#57862(0) {shape = [32, 14]}\n"
     "  %4 = quantize#57862(%3, 1)\n  %b.t.padded = concat(%b.t, %4)\n"
     "  %5 = scaled_matmul(%a.t.padded, %s, %b.t.padded, %t) {transpose_b = true, scale_a = "
     "\"block(1,128)\", scale_b = \"block(1,128)\", scale_layout = \"cublaslt\"}\n  return %5\n"},
    {"sm_100a",
     "func forward(%a: f8e4m3[17, 16], %s: f32[], %b: f8e5m2[17, 32], %t: f32[]) -> (%x: f32[16, "
     "32]) {\n  return scaled_matmul(%a, %s, %b, %t) {transpose_a = true}\n}\n",
     "  %1 = broadcast#57857(0) {shape = [15, 16]}\n  %2 = quantize#57857(%1, 1)\n"
     "  %a.padded = concat(%a, %2) {axis = 0}\n  %3 = broadcast#57859(0) {shape = [15, 32]}\n"
     "  %4 = quantize#57859(%3, 1) {format = f8e5m2}\n  %b.padded = concat(%b, %4) {axis = 0}\n"
     "  %5 = scaled_matmul(%a.padded, %s, %b.padded, %t) {transpose_a = true}\n  return %5\n"},
    /* an array that is a part of another is copied, a grid too */
    {"cpu",
     "func forward(%a: f8e4m3[16, 32], %s: f32[16, 2], %t: f32[]) -> (%x: f32[16, 16]) {\n"
     "  return scaled_matmul(%a, slice(%s) {axis = 1, stop = 1}, %a, %t) "
     "{transpose_b = true, scale_a = \"row\"}\n}\n",
     "  %1 = slice(%s) {stop = 1}\n  %2 = broadcast#27751(%1) {shape = [16, 1]}\n"
     "  %3 = scaled_matmul(%a, %2, %a, %t) {transpose_b = true, scale_a = \"row\"}\n  return %3\n"},
};
enum { N_PRODUCTS = sizeof products / sizeof *products };

START_TEST(products_as_the_target_takes_them)
{
    test_unit t;
    legalize(&t, products[_i].target, products[_i].text);
    ck_assert_str_eq(test_print(&t, "forward"), products[_i].body);
    test_unit_end(&t);
}
END_TEST

static const struct {
    const char *target, *text, *message;
} refused[] = {
    {"sm_90a",
     "func forward(%a: f8e4m3[16, 40], %b: f8e4m3[40, 40], %s: f32[]) -> (%x: f32[16, 40]) {\n"
     "  return scaled_matmul(%a, %s, %b, %s)\n}\n",
     "scaled_matmul: FP8 GEMMs of sm_90a need multiples of 16 for n, but the operands are [16, 40] "
     "and [40, 40]"},
    {"sm_90a",
     "func forward(%a: f8e5m2[16, 32], %b: f8e5m2[32, 48]) -> (%x: f32[16, 48]) {\n"
     "  return matmul(%a, %b)\n}\n",
     "matmul: no GEMM of sm_90a multiplies f8e5m2 by f8e5m2"},
#define SCALED(target, sa, sb, attrs, message)                                                     \
    {target,                                                                                       \
     "func forward(%a: f8e4m3[128, 256], %s: " sa ", %b: f8e4m3[128, 256], %t: " sb                \
     ") -> (%x: f32[128, 128]) {\n  return scaled_matmul(%a, %s, %b, %t) {transpose_b = "          \
     "true, " attrs "}\n}\n",                                                                      \
     "scaled_matmul: " message}
    SCALED("sm_89", "f32[128, 1]", "f32[128, 1]", "scale_a = \"row\", scale_b = \"row\"",
           "FP8 GEMMs of sm_89 have no scales of rows and columns of the result: f32 row and row"),
    SCALED("sm_100a", "f32[128, 2]", "f32[1, 2]",
           "scale_a = \"block(1,128)\", scale_b = \"block(128,128)\"",
           "FP8 GEMMs of sm_100a have no scales of blocks of 128: f32 block(1,128) and "
           "block(128,128)"),
    SCALED("sm_90a", "f32[1, 2]", "f32[1, 2]",
           "scale_a = \"block(128,128)\", scale_b = \"block(128,128)\"",
           "FP8 GEMMs of sm_90a have no scales of 128 x 128 blocks for both operands: f32 "
           "block(128,128) and "
           "block(128,128)"),
    SCALED("sm_90a", "f8e8m0[128, 8]", "f8e8m0[128, 8]",
           "scale_a = \"block(1,32)\", scale_b = \"block(1,32)\"",
           "FP8 GEMMs of sm_90a have no f8e8m0 scales: f8e8m0 block(1,32) and block(1,32)"),
    SCALED("sm_90a", "f32[128, 2]", "f32[]", "scale_a = \"block(1,128)\"",
           "FP8 GEMMs of sm_90a have no scales of these granularities in one GEMM: f32 "
           "block(1,128) "
           "and tensor"),
    SCALED("sm_90a", "f32[128, 8]", "f32[128, 8]",
           "scale_a = \"block(1,32)\", scale_b = \"block(1,32)\"",
           "FP8 GEMMs of sm_90a have no scales of these granularities in one GEMM: f32 "
           "block(1,32) "
           "and block(1,32)"),
    SCALED("cpu", "f32[2, 128]", "f32[2, 128]",
           "scale_a = \"block(1,128)\", scale_b = \"block(1,128)\", scale_layout = \"cublaslt\"",
           "GEMMs of cpu read scales as a grid, not as cuBLASLt does"),
};
enum { N_REFUSED = sizeof refused / sizeof *refused };

START_TEST(refused_products)
{
    test_unit t;
    char whole[2048];
    snprintf(whole, sizeof whole, "module m\n%s", refused[_i].text);
    test_unit_parse(&t, whole, "f32");
    t.unit.options.target = f8_target_by_name(refused[_i].target);
    ck_assert_int_eq(test_pass_fails(&t, f8_pass_legalize), F8_ERR_UNSUPPORTED);
    ck_assert_str_eq(t.diag.text, refused[_i].message);
    ck_assert_uint_eq(t.diag.loc.line, 3);
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("products");
    TCase *t = tcase_create("products");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, products_as_the_target_takes_them, 0, N_PRODUCTS);
    tcase_add_loop_test(t, refused_products, 0, N_REFUSED);
    suite_add_tcase(s, t);
    return s;
}
