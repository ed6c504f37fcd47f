/* Rows added to a table by index, in order of position: see scatter.h. */
#include "codegen/cuda/scatter.h"

#include <stdio.h>
#include <string.h>

#include "codegen/kernel/scatter.h"

enum { WARPS = F8_CUDA_SCATTER_POSITIONS, THREADS = 32 * WARPS };

int64_t f8_cuda_scatter_tasks(int64_t positions)
{
    return (positions + F8_CUDA_SCATTER_POSITIONS - 1) / F8_CUDA_SCATTER_POSITIONS;
}

/* Positions in the list: as many as one round of the block may add twice over. */
static const char text[] =
    "struct @_params {\n"
    "    float *table;\n"
    "    const f8_i32 *ids;\n"
    "    const @_dy *dy;\n"
    "    f8_i64 n, rows, columns, table_stride, dy_stride, tasks;\n"
    "};\n"
    "/* row[] += dy[list[0], ], dy[list[1], ], ... one after the other */\n"
    "F8_DEV void @_add(const @_params &p, float *row, const f8_u32 *list, int n)\n"
    "{\n"
    "    const bool vectors = p.columns % 4 == 0 && p.dy_stride % 4 == 0 &&\n"
    "                         (f8_u64)row % 16 == 0 && (f8_u64)p.dy % sizeof(@_dy4) == 0;\n"
    "    for (f8_i64 c = 4 * f8_thread(); vectors && c < p.columns; c += 4 * f8_threads()) {\n"
    "        f8_x4 sum = *(f8_x4 *)(row + c);\n"
    "        int i = 0;\n"
    "        for (; i + 8 <= n; i += 8) {\n"
    "            @_dy4 x[8];\n"
    "#pragma unroll\n"
    "            for (int k = 0; k < 8; k++)\n"
    "                x[k] = *(const @_dy4 *)(p.dy + list[i + k] * p.dy_stride + c);\n"
    "#pragma unroll\n"
    "            for (int k = 0; k < 8; k++)\n"
    "                @_add4(sum, x[k]);\n"
    "        }\n"
    "        for (; i < n; i++)\n"
    "            @_add4(sum, *(const @_dy4 *)(p.dy + list[i] * p.dy_stride + c));\n"
    "        *(f8_x4 *)(row + c) = sum;\n"
    "    }\n"
    "    for (f8_i64 c = f8_thread(); !vectors && c < p.columns; c += f8_threads()) {\n"
    "        float sum = row[c];\n"
    "        for (int i = 0; i < n; i++)\n"
    "            sum += @_value(p.dy[list[i] * p.dy_stride + c]);\n"
    "        row[c] = sum;\n"
    "    }\n"
    "}\n"
    "/* Whether no position before this warp's has its id. */\n"
    "F8_DEV bool @_first(const @_params &p, f8_i64 at)\n"
    "{\n"
    "    const f8_i32 id = at < p.n ? p.ids[at] : -1;\n"
    "    f8_u32 seen = id < 0 || id >= p.rows;\n"
    "    for (f8_i64 i = 0; i < at && !seen; i += 256) {\n"
    "#pragma unroll\n"
    "        for (int k = 0; k < 8; k++) {\n"
    "            const f8_i64 j = i + 32 * k + f8_thread() % 32;\n"
    "            seen |= j < at && p.ids[j] == id;\n"
    "        }\n"
    "        for (int mask = 16; mask; mask /= 2)\n"
    "            seen |= f8_shfl_xor(seen, mask);\n"
    "    }\n"
    "    return !seen;\n"
    "}\n"
    "F8_KERNEL(@, #THREADS, 2)\n"
    "{\n"
    "    F8_SHARED(f8_u32, list, 8 * #THREADS);\n"
    "    F8_SHARED(f8_u32, count, #WARPS);\n"
    "    F8_SHARED(f8_u32, first, #WARPS);\n"
    "    const int thread = f8_thread(), lane = thread % 32, warp = thread / 32;\n"
    "    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {\n"
    "        const bool mine = @_first(p, task * #WARPS + warp);\n"
    "        f8_sync();\n"
    "        if (lane == 0)\n"
    "            first[warp] = mine;\n"
    "        f8_sync();\n"
    "        for (int w = 0; w < #WARPS; w++) {\n"
    "            if (!first[w])\n"
    "                continue;\n"
    "            const f8_i64 start = task * #WARPS + w;\n"
    "            const f8_i32 id = p.ids[start];\n"
    "            float *row = p.table + id * p.table_stride;\n"
    "            int n = 1;\n"
    "            if (thread == 0)\n"
    "                list[0] = (f8_u32)start;\n"
    "            for (f8_i64 base = start + 1; base < p.n; base += 4 * #THREADS) {\n"
    "                f8_u32 hit[4], hits = 0;\n"
    "#pragma unroll\n"
    "                for (int k = 0; k < 4; k++) {\n"
    "                    const f8_i64 at = base + 4 * thread + k;\n"
    "                    hit[k] = at < p.n && p.ids[at] == id;\n"
    "                    hits += hit[k];\n"
    "                }\n"
    "                f8_u32 upto = hits; /* of the warp's threads up to this one */\n"
    "#pragma unroll\n"
    "                for (int d = 1; d < 32; d *= 2) {\n"
    "                    const f8_u32 other = f8_shfl(upto, (lane - d) & 31);\n"
    "                    upto += lane >= d ? other : 0;\n"
    "                }\n"
    "                if (lane == 31)\n"
    "                    count[warp] = upto;\n"
    "                f8_sync();\n"
    "                int to = n + (int)(upto - hits);\n"
    "                for (int v = 0; v < #WARPS; v++) {\n"
    "                    to += v < warp ? (int)count[v] : 0;\n"
    "                    n += (int)count[v];\n"
    "                }\n"
    "#pragma unroll\n"
    "                for (int k = 0; k < 4; k++)\n"
    "                    if (hit[k])\n"
    "                        list[to++] = (f8_u32)(base + 4 * thread + k);\n"
    "                f8_sync();\n"
    "                if (n > 4 * #THREADS) { /* another round may not fit */\n"
    "                    @_add(p, row, list, n);\n"
    "                    n = 0;\n"
    "                    f8_sync();\n"
    "                }\n"
    "            }\n"
    "            f8_sync();\n"
    "            @_add(p, row, list, n);\n"
    "            f8_sync();\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char bf16[] =
    "typedef f8_u16 @_dy;\n"
    "typedef f8_x2 @_dy4;\n"
    "F8_DEV float @_value(f8_u16 x) { return f8_from_bf16(x); }\n"
    "F8_DEV void @_add4(f8_x4 &sum, const f8_x2 &x)\n"
    "{\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 4; k++) {\n"
    "        const float y = f8_from_bf16(x.v[k / 2] >> 16 * (k % 2) & 0xffff);\n"
    "        sum.v[k] = f8_bits(f8_from_bits(sum.v[k]) + y);\n"
    "    }\n"
    "}\n";

static const char f32[] =
    "typedef float @_dy;\n"
    "typedef f8_x4 @_dy4;\n"
    "F8_DEV float @_value(float x) { return x; }\n"
    "F8_DEV void @_add4(f8_x4 &sum, const f8_x4 &x)\n"
    "{\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 4; k++)\n"
    "        sum.v[k] = f8_bits(f8_from_bits(sum.v[k]) + f8_from_bits(x.v[k]));\n"
    "}\n";

/* @ stands for the symbol, #THREADS and #WARPS for their numbers. */
static void add_template(f8_text *t, const char *from, const char *symbol)
{
    while (*from) {
        const size_t run = strcspn(from, "@#");
        f8_text_add(t, "%.*s", (int)run, from);
        from += run;
        if (*from == '@') {
            f8_text_add(t, "%s", symbol);
            from++;
        } else if (!strncmp(from, "#THREADS", 8)) {
            f8_text_add(t, "%d", THREADS);
            from += 8;
        } else if (!strncmp(from, "#WARPS", 6)) {
            f8_text_add(t, "%d", WARPS);
            from += 6;
        } else if (*from) {
            f8_text_add(t, "%c", *from++);
        }
    }
}

f8_status f8_cuda_scatter_emit(f8_text *t, f8_dtype dy, const char *symbol, f8_cuda_launch *out,
                               f8_diag *d)
{
    if (dy != F8_F32 && dy != F8_BF16)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "embedding_grad takes gradients of f32 or bf16, not %s", f8_dtype_name(dy));
    add_template(t, dy == F8_BF16 ? bf16 : f32, symbol);
    add_template(t, text, symbol);
    *out = (f8_cuda_launch){.threads = THREADS, .n_args = 3, .n_ints = F8_SCATTER_INTS};
    snprintf(out->symbol, sizeof out->symbol, "%s", symbol);
    return F8_OK;
}
