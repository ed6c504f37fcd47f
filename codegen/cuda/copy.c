/* Strided and transposing copies as CUDA C: see copy.h. */
#include "codegen/cuda/copy.h"

#include <stdio.h>

enum { THREADS = 256, EACH = 4, VECTOR_BYTES = 16 };

enum { RUN_WORDS = 4 }; /* of an instance: from, to, count, tasks */

/* ---- choosing ---- */

/* The widest access, in bytes, that these offsets and strides allow. */
static int64_t widest(int64_t most, const int64_t *bytes, int n)
{
    int64_t w = most;
    for (int i = 0; i < n; i++)
        while (bytes[i] % w)
            w /= 2;
    return w;
}

static void add_axis(f8_copy_kernel *out, int64_t size, int64_t from, int64_t to)
{
    out->ints[out->n_ints++] = size;
    out->ints[out->n_ints++] = from;
    out->ints[out->n_ints++] = to;
}

/* ints: the count of accesses */
static void describe_run(const f8_copy_axes *a, int64_t from_offset, int64_t to_offset,
                         f8_copy_desc *d, f8_copy_kernel *out)
{
    const int64_t bytes[] = {from_offset, to_offset, a->size[0] * a->element};
    const int64_t access = widest(4, bytes, 3); /* few kinds: what is alike becomes one launch */
    out->n_ints = 1;
    out->ints[0] = bytes[2] / access;
    out->n_tasks = (out->ints[0] + THREADS * EACH - 1) / (THREADS * EACH);
    *d = (f8_copy_desc){.kind = F8_COPY_RUN, .element = (int)access};
}

/* ints: the count of accesses, then size, from and to of every axis, in accesses */
static void describe_strided(const f8_copy_axes *a, int64_t from_offset, int64_t to_offset,
                             f8_copy_desc *d, f8_copy_kernel *out)
{
    const int last = a->rank - 1;
    int64_t access = a->element, step = 1;
    if (a->from[last] == 1 && a->to[last] == 1) {
        int64_t bytes[2 * F8_COPY_RANK + 3] = {from_offset, to_offset, a->size[last] * a->element};
        int n = 3;
        for (int i = 0; i < last; i++) {
            bytes[n++] = a->from[i] * a->element;
            bytes[n++] = a->to[i] * a->element;
        }
        access = widest(VECTOR_BYTES, bytes, n);
        step = access / a->element;
    }
    int64_t count = 1;
    out->n_ints = 1;
    for (int i = 0; i < a->rank; i++) {
        const int64_t size = i == last ? a->size[i] / step : a->size[i];
        if (i == last)
            add_axis(out, size, a->from[i], a->to[i]);
        else
            add_axis(out, size, a->from[i] / step, a->to[i] / step);
        count *= size;
    }
    out->ints[0] = count;
    out->n_tasks = (count + THREADS * EACH - 1) / (THREADS * EACH);
    *d = (f8_copy_desc){.kind = F8_COPY_STRIDED,
                        .element = (int)access,
                        .rank = a->rank,
                        .wide = count > INT32_MAX / 2};
}

static int tile_of(int element)
{
    return element == 1 ? 128 : 64;
}

/* Elements of one access along an axis of `size` elements that runs on: all, or one by one. */
static int vector_of(const f8_copy_axes *a, const int64_t *stride, int axis, int64_t offset)
{
    int64_t bytes[F8_COPY_RANK + 2] = {offset, a->size[axis] * a->element};
    int n = 2;
    for (int i = 0; i < a->rank; i++)
        if (i != axis)
            bytes[n++] = stride[i] * a->element;
    return widest(VECTOR_BYTES, bytes, n) == VECTOR_BYTES ? (int)(VECTOR_BYTES / a->element) : 1;
}

/* ints: sizes of axis i (along which `from` runs on) and of j (`to` does), from's stride of j, to's
 * of i, then size, from and to of every other axis */
static void describe_transpose(const f8_copy_axes *a, int i, int64_t from_offset, int64_t to_offset,
                               f8_copy_desc *d, f8_copy_kernel *out)
{
    const int j = a->rank - 1, tile = tile_of((int)a->element);
    *d = (f8_copy_desc){.kind = F8_COPY_TRANSPOSE,
                        .element = (int)a->element,
                        .rank = a->rank - 2,
                        .from_vector = vector_of(a, a->from, i, from_offset),
                        .to_vector = vector_of(a, a->to, j, to_offset)};
    const int64_t tiles_i = (a->size[i] + tile - 1) / tile,
                  tiles_j = (a->size[j] + tile - 1) / tile;
    const int64_t first[] = {a->size[i], a->size[j], a->from[j], a->to[i]};
    for (out->n_ints = 0; out->n_ints < 4; out->n_ints++)
        out->ints[out->n_ints] = first[out->n_ints];
    out->n_tasks = tiles_i * tiles_j;
    for (int k = 0; k < a->rank; k++) {
        if (k == i || k == j)
            continue;
        add_axis(out, a->size[k], a->from[k], a->to[k]);
        out->n_tasks *= a->size[k];
    }
}

void f8_cuda_copy_describe(const f8_copy_axes *a, int64_t from_offset, int64_t to_offset,
                           f8_copy_desc *desc, f8_copy_kernel *out)
{
    const int last = a->rank - 1;
    if (last == 0 && a->from[0] == 1 && a->to[0] == 1) {
        describe_run(a, from_offset, to_offset, desc, out);
        return;
    }
    int along = -1; /* the axis along which `from` runs on */
    for (int i = 0; i < a->rank; i++)
        if (a->from[i] == 1 && a->size[i] >= 8)
            along = i;
    if (along >= 0 && along != last && a->to[last] == 1 && a->from[last] != 1 && a->size[last] >= 8)
        describe_transpose(a, along, from_offset, to_offset, desc, out);
    else
        describe_strided(a, from_offset, to_offset, desc, out);
}

const char *f8_cuda_copy_text(f8_arena *arena, const f8_copy_desc *d)
{
    switch (d->kind) {
    case F8_COPY_RUN: return f8_arena_printf(arena, "copy of runs of %d bytes", d->element);
    case F8_COPY_STRIDED:
        return f8_arena_printf(arena, "copy of %d bytes, %d axes%s", d->element, d->rank,
                               d->wide ? ", wide" : "");
    case F8_COPY_TRANSPOSE: break;
    }
    return f8_arena_printf(arena, "transpose of %d bytes, vectors %d and %d, %d axes outside",
                           d->element, d->from_vector, d->to_vector, d->rank);
}

uint32_t f8_cuda_copy_most_instances(const f8_copy_desc *d)
{
    return d->kind == F8_COPY_RUN ? (F8_MULTI_WORDS - 1) / RUN_WORDS : 1;
}

/* ---- text ---- */

static const char *access_type(int bytes)
{
    switch (bytes) {
    case 16: return "f8_x4";
    case 8: return "f8_x2";
    case 4: return "f8_u32";
    case 2: return "f8_u16";
    default: return "f8_u8";
    }
}

static void emit_run(f8_text *t, const f8_copy_desc *d, bool multi, const char *symbol)
{
    const char *type = access_type(d->element);
    f8_text_add(t,
                "struct %s_%s {\n    const %s *from;\n    %s *to;\n    f8_i64 count, tasks;\n};\n",
                symbol, multi ? "instance" : "params", type, type);
    if (multi)
        f8_text_add(
            t,
            "struct %s_params {\n    f8_i64 n;\n    %s_instance at[%u];\n};\n"
            "F8_KERNEL(%s, %d, 4)\n{\n"
            "    int which = 0;\n"
            "    for (f8_i64 at = f8_block(); at < p.at[p.n - 1].tasks; at += f8_blocks()) {\n"
            "        while (at >= p.at[which].tasks)\n"
            "            which++;\n"
            "        const %s_instance &a = p.at[which];\n"
            "        const f8_i64 task = which ? at - p.at[which - 1].tasks : at;\n",
            symbol, symbol, f8_cuda_copy_most_instances(d), symbol, THREADS, symbol);
    else
        f8_text_add(t,
                    "F8_KERNEL(%s, %d, 4)\n{\n"
                    "    const %s_params &a = p;\n"
                    "    for (f8_i64 task = f8_block(); task < a.tasks; task += f8_blocks()) {\n",
                    symbol, THREADS, symbol);
    f8_text_add(t,
                "#pragma unroll\n"
                "        for (int e = 0; e < %d; e++) {\n"
                "            const f8_i64 i = task * %d + e * %d + f8_thread();\n"
                "            if (i < a.count)\n"
                "                a.to[i] = a.from[i];\n"
                "        }\n"
                "    }\n}\n",
                EACH, THREADS * EACH, THREADS);
}

static void emit_strided(f8_text *t, const f8_copy_desc *d, const char *symbol)
{
    const char *type = access_type(d->element), *index = d->wide ? "f8_i64" : "f8_u32";
    f8_text_add(t, "struct %s_params {\n    const %s *from;\n    %s *to;\n    f8_i64 count", symbol,
                type, type);
    for (int i = 0; i < d->rank; i++)
        f8_text_add(t, ", size%d, from%d, to%d", i, i, i);
    f8_text_add(t,
                ", tasks;\n};\n"
                "F8_KERNEL(%s, %d, 4)\n{\n"
                "    const %s count = (%s)p.count;\n"
                "    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {\n"
                "        const %s begin = (%s)(task * %d) + f8_thread();\n"
                "        %s x[%d];\n"
                "        f8_i64 to[%d];\n"
                "#pragma unroll\n"
                "        for (int e = 0; e < %d; e++) {\n"
                "            %s at = begin + e * %d, next;\n"
                "            f8_i64 from = 0;\n"
                "            to[e] = -1;\n"
                "            if (at < count) {\n"
                "                to[e] = 0;\n",
                symbol, THREADS, index, index, index, index, THREADS * EACH, type, EACH, EACH, EACH,
                index, THREADS);
    for (int i = d->rank - 1; i > 0; i--)
        f8_text_add(t,
                    "                next = at / (%s)p.size%d;\n"
                    "                at -= next * (%s)p.size%d;\n"
                    "                from += at * p.from%d;\n"
                    "                to[e] += at * p.to%d;\n"
                    "                at = next;\n",
                    index, i, index, i, i, i);
    f8_text_add(t,
                "                next = at;\n"
                "                x[e] = p.from[from + next * p.from0];\n"
                "                to[e] += next * p.to0;\n"
                "            }\n"
                "        }\n"
                "#pragma unroll\n"
                "        for (int e = 0; e < %d; e++)\n"
                "            if (to[e] >= 0)\n"
                "                p.to[to[e]] = x[e];\n"
                "    }\n}\n",
                EACH);
}

/* Where in its tile this access lies: `wide` accesses along the axis that runs on, two of them side
 * by side in one warp when writing, so that a warp fills sectors and reads few banks twice. */
static void emit_load(f8_text *t, const f8_copy_desc *d, int tile, int pitch)
{
    const int v = d->from_vector, across = tile / v;
    f8_text_add(t,
                "#pragma unroll %d\n"
                "        for (int e = f8_thread(); e < %d; e += %d) {\n"
                "            const int i = e %% %d * %d, j = e / %d;\n"
                "            if (i0 + i < p.size_i && j0 + j < p.size_j)\n",
                v > 1 ? 4 : 8, across * tile, THREADS, across, v, across);
    if (v > 1)
        f8_text_add(t,
                    "                *(f8_x4 *)(tile + j * %d + i) =\n"
                    "                    *(const f8_x4 *)(p.from + from + (i0 + i) + (j0 + j) * "
                    "p.from_j);\n",
                    pitch);
    else
        f8_text_add(
            t,
            "                tile[j * %d + i] = p.from[from + (i0 + i) + (j0 + j) * p.from_j];\n",
            pitch);
    f8_text_add(t, "        }\n");
}

static void emit_store(f8_text *t, const f8_copy_desc *d, int tile, int pitch)
{
    const int v = d->to_vector, across = tile / v, per_word = 4 / d->element;
    if (v == 1) {
        f8_text_add(t,
                    "        for (int e = f8_thread(); e < %d; e += %d) {\n"
                    "            const int j = e %% %d, i = e / %d;\n"
                    "            if (i0 + i < p.size_i && j0 + j < p.size_j)\n"
                    "                p.to[to + (i0 + i) * p.to_i + (j0 + j)] = tile[j * %d + i];\n"
                    "        }\n",
                    tile * tile, THREADS, tile, tile, pitch);
        return;
    }
    f8_text_add(
        t,
        "        for (int e = f8_thread(); e < %d; e += %d) {\n"
        "            const int i = e / 2 %% %d, j = (e / %d * 2 + e %% 2) * %d;\n"
        "            f8_x4 x;\n"
        "#pragma unroll\n"
        "            for (int w = 0; w < 4; w++) {\n"
        "                x.v[w] = 0;\n"
        "#pragma unroll\n"
        "                for (int b = 0; b < %d; b++)\n"
        "                    x.v[w] |= (f8_u32)tile[(j + w * %d + b) * %d + i] << (b * %d);\n"
        "            }\n"
        "            if (i0 + i < p.size_i && j0 + j < p.size_j)\n"
        "                *(f8_x4 *)(p.to + to + (i0 + i) * p.to_i + (j0 + j)) = x;\n"
        "        }\n",
        across * tile, THREADS, tile, 2 * tile, v, per_word, per_word, pitch,
        per_word == 1 ? 0 : 8 * d->element);
}

static void emit_transpose(f8_text *t, const f8_copy_desc *d, const char *symbol)
{
    const char *type = access_type(d->element);
    const int tile = tile_of(d->element), pitch = tile + VECTOR_BYTES / d->element;
    f8_text_add(t,
                "struct %s_params {\n    const %s *from;\n    %s *to;\n    f8_i64 size_i, size_j, "
                "from_j, to_i",
                symbol, type, type);
    for (int i = 0; i < d->rank; i++)
        f8_text_add(t, ", size%d, from%d, to%d", i, i, i);
    f8_text_add(t,
                ", tasks;\n};\n"
                "F8_KERNEL(%s, %d, 2)\n{\n"
                "    F8_SHARED(%s, tile, %d);\n"
                "    const f8_i64 tiles_i = (p.size_i + %d) / %d, tiles_j = (p.size_j + %d) / %d;\n"
                "    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {\n"
                "        f8_i64 at = task / tiles_i, next, from = 0, to = 0;\n"
                "        const f8_i64 i0 = (task - at * tiles_i) * %d;\n"
                "        next = at / tiles_j;\n"
                "        const f8_i64 j0 = (at - next * tiles_j) * %d;\n"
                "        at = next;\n",
                symbol, THREADS, type, tile * pitch, tile - 1, tile, tile - 1, tile, tile, tile);
    for (int i = d->rank - 1; i >= 0; i--)
        f8_text_add(t,
                    "        next = at / p.size%d;\n"
                    "        from += (at - next * p.size%d) * p.from%d;\n"
                    "        to += (at - next * p.size%d) * p.to%d;\n"
                    "        at = next;\n",
                    i, i, i, i, i);
    emit_load(t, d, tile, pitch);
    f8_text_add(t, "        f8_sync();\n");
    emit_store(t, d, tile, pitch);
    f8_text_add(t, "        f8_sync();\n    }\n}\n");
}

void f8_cuda_copy_emit(f8_text *t, const f8_copy_desc *d, bool multi, const char *symbol,
                       f8_cuda_launch *out)
{
    *out = (f8_cuda_launch){.threads = THREADS, .n_args = 2};
    snprintf(out->symbol, sizeof out->symbol, "%s", symbol);
    switch (d->kind) {
    case F8_COPY_RUN:
        out->n_ints = 1;
        emit_run(t, d, multi, symbol);
        break;
    case F8_COPY_STRIDED:
        out->n_ints = (uint32_t)(1 + 3 * d->rank);
        emit_strided(t, d, symbol);
        break;
    case F8_COPY_TRANSPOSE:
        out->n_ints = (uint32_t)(4 + 3 * d->rank);
        emit_transpose(t, d, symbol);
        break;
    }
}
