/* The loops of codegen/kernel/kernel.h as they stand there. Values are 32-bit words: f32 bits (also
 * for bf16), i32, 0 or 1, encodings of narrower floats. */
#include "tests/shared/kernel/kernel_desc.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

typedef struct machine {
    const f8_kernel *k;
    const f8_binding *bound;
    const kd_memory *memory;
    int64_t rows, cols;
    uint32_t *value; /* by instruction: of this row and column */
    uint32_t *near;  /* [n_near, cols] */
    uint32_t (*lane)[F8_SUM_LANES]; /* by instruction: SUM */
    uint32_t *best;                 /* by instruction: MAX, AMAX */
    uint32_t *most;                 /* BLOCKAMAX: [n_instrs, cols], the blocks' first */
    uint32_t *block;                /* values of blocks: the same */
    bool *needed;
} machine;

uint8_t *kd_at(const kd_memory *m, const f8_place *p)
{
    switch (p->space) {
    case F8_SPACE_ARENA: return m->arena + p->offset;
    case F8_SPACE_STATE: return m->state + p->offset;
    case F8_SPACE_CONST: return (uint8_t *)m->constants + p->offset;
    case F8_SPACE_INPUT: return (uint8_t *)m->in[p->port] + p->offset;
    case F8_SPACE_OUTPUT: return (uint8_t *)m->out[p->port] + p->offset;
    case F8_SPACE_NONE: break;
    }
    ck_abort_msg("a value without a place");
}

/* Element [row, col] of a buffer; NULL: a gather's id is outside its table. */
static uint8_t *element(const machine *m, int32_t buffer, int64_t row, int64_t col)
{
    const f8_kbuffer *b = &m->k->buffer[buffer];
    const int64_t *ints = m->bound->ints, stride = b->stride >= 0 ? ints[b->stride] : 0;
    const f8_kmap *map = b->map >= 0 ? &m->k->map[b->map] : NULL;
    if (map)
        row = map->shift >= 0 ? row >> map->shift : row / ints[map->div] % ints[map->mod];
    if (b->ids >= 0) {
        int32_t id;
        memcpy(&id, element(m, b->ids, row, 0), sizeof id);
        if (id < 0 || id >= ints[b->limit])
            return NULL;
        row = id;
    }
    row = b->ext & F8_EXT_ROW ? row : 0;
    col = b->ext & (F8_EXT_COL | F8_EXT_BLOCK) ? col : 0;
    const int64_t at = b->transposed ? col * stride + row : row * stride + col;
    return kd_at(m->memory, &m->bound->place[buffer]) + at * (int64_t)f8_dtype_size(b->dtype);
}

static uint32_t load(const machine *m, const f8_kinstr *i, int64_t row, int64_t col)
{
    const f8_dtype t = m->k->buffer[i->buffer].dtype;
    uint32_t v = 0;
    if (i->group) {
        const int64_t in = col % i->group;
        col = col - in + ((in - i->shift) % i->group + i->group) % i->group;
    }
    const uint8_t *from = element(m, i->buffer, row, col);
    if (!from)
        return 0x7fc00000;
    if (t == F8_I64) {
        int64_t wide;
        memcpy(&wide, from, sizeof wide);
        return wide != (int32_t)wide ? wide < 0 ? 0x80000000u : 0x7fffffffu : (uint32_t)wide;
    }
    memcpy(&v, from, f8_dtype_size(t));
    return t == F8_BF16 ? v << 16 : v;
}

static void store(const machine *m, const f8_kinstr *i, int64_t row, int64_t col)
{
    const f8_dtype t = m->k->buffer[i->buffer].dtype;
    const uint32_t v = t == F8_BF16 ? m->value[i->a] >> 16 : m->value[i->a];
    const int64_t wide = (int32_t)v;
    memcpy(element(m, i->buffer, row, col), t == F8_I64 ? (const void *)&wide : &v,
           f8_dtype_size(t));
}

static float f_of(uint32_t u)
{
    return f8_from_bits(u);
}

static void add_lane(machine *m, uint32_t n, int64_t col)
{
    uint32_t *lane = &m->lane[n][col % F8_SUM_LANES];
    const uint32_t x = m->value[m->k->instr[n].a];
    *lane = col < F8_SUM_LANES ? x : f8_bits(f_of(*lane) + f_of(x));
}

static uint32_t sum_of(machine *m, uint32_t n)
{
    uint32_t *lane = m->lane[n];
    const int64_t lanes = m->cols < F8_SUM_LANES ? m->cols : F8_SUM_LANES;
    for (int64_t h = F8_SUM_LANES / 2; h > 0; h /= 2)
        for (int64_t j = 0; j < h && j + h < lanes; j++)
            lane[j] = f8_bits(f_of(lane[j]) + f_of(lane[j + h]));
    return lane[0];
}

static void column_reduction(machine *m, const f8_kinstr *i, int64_t row, int64_t col)
{
    uint8_t *to = element(m, i->buffer, row / i->imm, col);
    const uint32_t x = m->value[i->a];
    uint32_t result = 0;
    if (row % i->imm)
        memcpy(&result, to, sizeof result);
    if (i->op == F8_K_COLAMAX)
        result = f8_amax_bits(result, f_of(x));
    else
        result = row % i->imm ? f8_bits(f_of(result) + f_of(x)) : x;
    memcpy(to, &result, sizeof result);
}

/* What instruction n does at [row, col]; stores and reductions included. */
static void execute(machine *m, uint32_t n, int64_t row, int64_t col)
{
    const f8_kinstr *i = &m->k->instr[n];
    uint32_t *v = &m->value[n];
    const uint32_t *u = m->value;
    switch ((f8_kop)i->op) {
    case F8_K_LOAD: *v = load(m, i, row, col); break;
    case F8_K_INDEX: *v = (uint32_t)col; break;
    case F8_K_SCALAR:
        if (i->sub == F8_S_CONST_F || i->sub == F8_S_CONST_I)
            *v = i->imm;
        else
            f8_scalar_op_eval(i->sub, &u[i->a], &u[i->b], &u[i->c], v, 1);
        break;
    case F8_K_CALL: f8_scalar_eval(i->sub, &u[i->a], v, 1); break;
    case F8_K_ROLL: {
        const int64_t in = col % i->group;
        const int64_t from = col - in + ((in - i->shift) % i->group + i->group) % i->group;
        ck_assert_int_ge(m->k->instr[i->a].near, 0);
        *v = m->near[m->k->instr[i->a].near * m->cols + from];
        break;
    }
    case F8_K_SUM: add_lane(m, n, col); break;
    case F8_K_MAX:
        m->best[n] = f8_bits(f8_maximum(f_of(m->best[n]), f_of(u[i->a])));
        break;
    case F8_K_AMAX: m->best[n] = f8_amax_bits(m->best[n], f_of(u[i->a])); break;
    case F8_K_BLOCKAMAX: {
        uint32_t *most = &m->most[n * m->cols + col / i->block];
        *most = f8_amax_bits(*most, f_of(u[i->a]));
        break;
    }
    case F8_K_COLSUM:
    case F8_K_COLAMAX: column_reduction(m, i, row, col); break;
    case F8_K_STORE: store(m, i, row, col); break;
    case F8_KOP_COUNT: ck_abort();
    }
}

/* Makes the values of blocks, of size `size` or (0) of the sizes that column `at` is in, those of
 * this block or column. */
static void take_blocks(machine *m, int32_t size, int64_t at)
{
    for (uint32_t n = 0; n < m->k->n_instrs; n++) {
        const f8_kinstr *i = &m->k->instr[n];
        if ((i->ext & F8_EXT_BLOCK) && (!size || i->block == size))
            m->value[n] = m->block[n * m->cols + (size ? at : at / i->block)];
    }
}

/* Instructions of blocks of this stage, in order, block by block. */
static void blocks(machine *m, uint32_t stage, int64_t row)
{
    for (uint32_t n = 0; n < m->k->n_instrs; n++) {
        const f8_kinstr *i = &m->k->instr[n];
        if (!f8_kinstr_of_blocks(i) || i->stage != (int32_t)stage)
            continue;
        for (int64_t at = 0; at < f8_kernel_blocks(m->k, i->block); at++) {
            take_blocks(m, i->block, at);
            execute(m, n, row, at);
            m->block[n * m->cols + at] = m->value[n];
        }
    }
}

static void column(machine *m, uint32_t stage, int64_t row, int64_t col)
{
    const f8_kernel *k = m->k;
    take_blocks(m, 0, col);
    for (int stores = 0; stores < 2; stores++) /* within a column loads come before stores */
        for (uint32_t n = 0; n < k->n_instrs; n++) {
            const f8_kinstr *i = &k->instr[n];
            if (!m->needed[n] || stores != (i->op == F8_K_STORE))
                continue;
            uint32_t *slot = i->near >= 0 ? &m->near[i->near * m->cols + col] : NULL;
            if (slot && f8_kinstr_known(i) < (int32_t)stage) {
                m->value[n] = *slot;
                continue;
            }
            execute(m, n, row, col);
            if (slot)
                *slot = m->value[n];
        }
}

static void row_stage(machine *m, uint32_t stage, int64_t row)
{
    const f8_kernel *k = m->k;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (!(i->ext & (F8_EXT_COL | F8_EXT_BLOCK)) && i->stage == (int32_t)stage &&
            !f8_kinstr_reduces(i))
            execute(m, n, row, 0);
        if (i->stage == (int32_t)stage && f8_kinstr_reduces(i))
            m->best[n] = i->op == F8_K_MAX ? 0xff800000 : 0;
        if (i->stage == (int32_t)stage && i->op == F8_K_BLOCKAMAX)
            memset(&m->most[n * m->cols], 0, (size_t)m->cols * sizeof *m->most);
    }
    blocks(m, stage, row);
    if (f8_kernel_needed(k, stage, m->needed))
        for (int64_t col = 0; col < m->cols; col++)
            column(m, stage, row, col);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_reduces(&k->instr[n]) && k->instr[n].stage == (int32_t)stage)
            m->value[n] = k->instr[n].op == F8_K_SUM ? sum_of(m, n) : m->best[n];
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_BLOCKAMAX && k->instr[n].stage == (int32_t)stage)
            memcpy(&m->block[n * m->cols], &m->most[n * m->cols],
                   (size_t)m->cols * sizeof *m->most);
}

void kd_run(const f8_kernel *k, const f8_binding *bound, const kd_memory *memory)
{
    machine m = {.k = k, .bound = bound, .memory = memory};
    m.rows = k->flat ? 1 : bound->ints[0];
    m.cols = k->flat ? bound->ints[0] : k->cols;
    m.value = calloc(k->n_instrs + 1u, sizeof *m.value);
    m.best = calloc(k->n_instrs + 1u, sizeof *m.best);
    m.lane = calloc(k->n_instrs + 1u, sizeof *m.lane);
    m.most = calloc((size_t)(k->n_instrs * m.cols) + 1, sizeof *m.most);
    m.block = calloc((size_t)(k->n_instrs * m.cols) + 1, sizeof *m.block);
    m.needed = calloc(k->n_instrs + 1u, sizeof *m.needed);
    m.near = calloc((size_t)(k->n_near * m.cols) + 1, sizeof *m.near);
    for (int64_t row = 0; row < m.rows; row++)
        for (uint32_t stage = 0; stage < k->n_stages; stage++)
            row_stage(&m, stage, row);
    free(m.value);
    free(m.best);
    free(m.most);
    free(m.block);
    free(m.lane);
    free(m.needed);
    free(m.near);
}
