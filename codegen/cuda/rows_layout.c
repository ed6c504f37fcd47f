/* How a row kernel's work is laid over threads: see print.h. The description and the target decide
 * all of it, so equal descriptions are equal kernels. No result depends on it. */
#include "codegen/cuda/rows_registers.h"
#include "codegen/cuda/rows_shared.h"

enum {
    LANES = F8_SUM_LANES,
    LANE_VECTOR = 8, /* lanes a thread has when a warp shares a row */
    HAND_VECTOR = 4, /* columns a thread of 256 has at once, what is summed being handed on */
    HAND_BYTES = 64 << 10,
    POINT_THREADS = 256,   /* of a block */
    POINT_RESIDENT = 1024, /* threads of a multiprocessor, with 64 registers each */
    POINT_WORDS = 32,      /* the most words in flight of those */
    FULL_RESIDENT = 768,   /* the same with more words, with 80 */
    ROW_THREADS = 256,
    FEW_RESIDENT = 1024, /* threads of a multiprocessor, where cache allows few rows at once */
    STAGED_THREADS = 512,
    STAGED_RESIDENT = 1024,  /* threads of a multiprocessor */
    SECTOR = 32,             /* bytes of memory that are read and written at once */
    BLOCK_REGISTERS = 65536, /* of a multiprocessor */
    NEAR_REGISTERS = 64,
    FLIGHT_BYTES = 64,      /* bytes of loads that a thread should have in flight */
    ROW_FLIGHT_BYTES = 128, /* the same where rows are short of threads */
    ROW_FLIGHT_COLUMNS = 16
};

static int power_of_two(int64_t n)
{
    int p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static bool reduces(const f8_kernel *k)
{
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_reduces(&k->instr[n]))
            return true;
    return false;
}

/* Something happens for each column or block of columns, not only for each row. */
static bool has_columns(const f8_kernel *k)
{
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_is_root(&k->instr[n]) ||
            (k->instr[n].op == F8_K_STORE && (k->instr[n].ext & F8_EXT_BLOCK)))
            return true;
    return false;
}

/* No buffer has a row term: the kernel is for one row. */
static bool one_row(const f8_kernel *k)
{
    for (uint32_t i = 0; i < k->n_buffers; i++)
        if (k->buffer[i].ext & F8_EXT_ROW)
            return false;
    return true;
}

/* Bytes that one column of all loads takes, and the size of the narrowest element. */
static int column_bytes(const f8_kernel *k, int *narrowest)
{
    int all = 0;
    *narrowest = 4;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if ((i->op != F8_K_LOAD && i->op != F8_K_STORE) || !(i->ext & F8_EXT_COL))
            continue;
        const int bytes = f8_cuda_bytes(k->buffer[i->buffer].dtype);
        *narrowest = bytes < *narrowest ? bytes : *narrowest;
        all += i->op == F8_K_LOAD ? bytes : 0;
    }
    return all;
}

/* Threads of a block: what the configuration says, else `model`. */
static int threads_of(const f8_kernel *k, int model)
{
    return k->config.threads ? k->config.threads : model;
}

/* Blocks that should be resident. Without a bound, the compiler would interleave the divisions of
 * so many elements that registers leave too few threads to wait for memory. A kernel of one row is
 * one block, so it may use any number of registers. */
static int resident(const f8_kernel *k, int most, int threads)
{
    return most > threads && !one_row(k) ? most / threads : 1;
}

/* Stages that visit columns. */
static int column_stages(const f8_kernel *k)
{
    int all = 0;
    for (int32_t stage = 0; stage < (int32_t)k->n_stages; stage++)
        for (uint32_t n = 0; n < k->n_instrs; n++)
            if (f8_kinstr_is_root(&k->instr[n]) && k->instr[n].stage == stage) {
                all++;
                break;
            }
    return all;
}

/* ---- elementwise ---- */

static void points(const f8_kernel *k, f8_cuda_layout *l)
{
    int narrowest;
    const int bytes = column_bytes(k, &narrowest);
    l->points = l->whole = true;
    l->threads = l->columns || !one_row(k) ? threads_of(k, POINT_THREADS) : F8_CUDA_WARP;
    l->vector = narrowest == 4 ? 4 : 8;
    l->sets = l->vectors = l->group = l->rows = l->task_rows = 1;
    if (k->flat) {
        l->vectors = 0;
        while (l->sets < 4 && 2 * l->sets * l->vector * bytes <= FLIGHT_BYTES)
            l->sets *= 2;
        if (k->config.unroll)
            l->sets = k->config.unroll;
    } else if (!l->columns) {
        l->vector = 1;
    } else {
        while (l->vector > 1 && (l->vector > k->cols || (k->cols % l->vector && k->cols < 64)))
            l->vector /= 2;
        l->vectors = (k->cols + l->vector - 1) / l->vector;
    }
    l->min_blocks =
        resident(k, f8_cuda_rows_loaded_words(k, l) <= POINT_WORDS ? POINT_RESIDENT : FULL_RESIDENT,
                 l->threads);
}

/* ---- rows by groups of threads ---- */

/* Wide rows, and kernels for one row, get more threads a row. So do rows of several warps that
 * several stages visit, where a thread would have more columns than leave it 64 registers. */
static int group_of(const f8_kernel *k, bool in_warps)
{
    if (k->cols <= LANES)
        return power_of_two((k->cols + LANE_VECTOR - 1) / LANE_VECTOR);
    if (in_warps)
        return F8_CUDA_WARP;
    if (one_row(k) && k->cols >= 512)
        return LANES;
    const int64_t share = k->n_stages > 1 && k->n_near ? 1024 : 2048;
    int group = F8_CUDA_WARP;
    while (group < LANES &&
           (k->cols > share * (group / F8_CUDA_WARP) ||
            (k->n_near && k->n_near * ((k->cols + group - 1) / group) > NEAR_REGISTERS)))
        group *= 2;
    if (group > F8_CUDA_WARP && 2 * group < LANES && column_stages(k) > 1 &&
        k->cols > F8_CUDA_RESIDENT_COLUMNS * group && k->cols <= F8_CUDA_WHOLE_COLUMNS * group)
        group *= 2;
    return group;
}

/* Vectors whose loads are in flight at once, if not all of them need to be. */
static int sets_of(const f8_kernel *k, const f8_cuda_layout *l)
{
    int narrowest, sets = 1;
    const int bytes = column_bytes(k, &narrowest);
    if (k->config.unroll)
        return k->config.unroll;
    while (2 * sets * l->vector <= ROW_FLIGHT_COLUMNS &&
           2 * sets * l->vector * bytes <= ROW_FLIGHT_BYTES)
        sets *= 2;
    return sets;
}

static bool is_rolled(const f8_kernel *k, int32_t slot)
{
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_ROLL && k->instr[k->instr[n].a].near == slot)
            return true;
    return false;
}

/* Decides what is kept, and where: rolled values in shared memory, because other threads read them;
 * others in registers while there are enough. */
static void choose_near(const f8_kernel *k, f8_cuda_layout *l)
{
    const int64_t words = l->vectors * l->vector;
    int64_t registers = 0;
    l->near_words = 0;
    for (int32_t s = 0; s < (int32_t)k->n_near && s < F8_CUDA_NEAR_MAX; s++) {
        l->near[s] = F8_CUDA_RECOMPUTED;
        if (is_rolled(k, s)) {
            l->near[s] = F8_CUDA_SHARED;
            l->near_at[s] = l->near_words;
            l->near_words += words * l->group;
        } else if (l->whole && registers + words <= NEAR_REGISTERS) {
            l->near[s] = F8_CUDA_REGISTERS;
            registers += words;
        }
    }
    l->block_at = l->near_words;
    for (uint32_t n = 0; n < k->n_instrs && !l->whole; n++)
        if (k->instr[n].op == F8_K_BLOCKAMAX)
            l->near_words += f8_kernel_blocks(k, k->instr[n].block);
    l->near_words = (l->near_words + 3) / 4 * 4; /* what follows is aligned to 16 bytes */
}

static int64_t hand_bytes(const f8_cuda_layout *l)
{
    return l->hand_words * 4 * (l->whole ? 1 : 2);
}

static void rows_of_block(const f8_kernel *k, f8_cuda_layout *l, int threads)
{
    l->threads = threads;
    l->rows = threads / l->group;
    l->task_rows = k->n_partials ? (int)f8_kernel_task_rows(k) : l->rows;
    l->tile_at = l->rows * l->near_words * 4;
    l->tile_size = l->staged ? f8_cuda_tile_bytes(k, l) : hand_bytes(l);
    l->turns = 1;
    l->shared = l->tile_at + l->tile_size;
}

/* Takes fewer vectors at once, until the threads of a staged kernel are lean. false: they never
 * are, and nothing changes. */
static bool take_parts(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    const int sets = l->sets;
    l->whole = false;
    while (!k->config.unroll && l->sets > 1 && !f8_cuda_rows_are_lean(target, k, l))
        l->sets /= 2;
    if (l->sets < l->vectors && f8_cuda_rows_are_lean(target, k, l))
        return true;
    l->sets = sets;
    return false;
}

/* The vectors of a row, for l->group and l->vector. */
static void vectors_of(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    const int64_t step = l->group * l->vector;
    l->vectors = (l->cols + step - 1) / step;
    l->sets = (int)(l->vectors < sets_of(k, l) ? l->vectors : sets_of(k, l));
    const bool fits =
        l->vectors * l->vector <= F8_CUDA_WHOLE_COLUMNS && (l->staged || column_stages(k) > 1);
    /* with column sums, or maxima and much else, a row of several vectors leaves a thread too few
     * registers */
    const bool full = l->vectors > 1 && target->shared_large &&
                      (f8_cuda_rows_count(k, F8_K_COLSUM) || (f8_cuda_rows_count(k, F8_K_COLAMAX) &&
                                                              k->n_instrs > F8_CUDA_STAGED_INSTRS));
    if (l->staged && (!fits || full) && take_parts(target, k, l))
        return;
    if (fits)
        l->sets = (int)l->vectors;
    l->whole = l->sets == l->vectors;
}

/* Columns of the widest rows in vectors, where a thread has but one lane of sums. */
static void widen(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    if (l->group < LANES || l->staged || one_row(k))
        return;
    l->vector = HAND_VECTOR;
    vectors_of(target, k, l);
    l->hand_words = f8_kernel_most_sums(k) * l->group * l->vector * l->sets;
    if (hand_bytes(l) <= HAND_BYTES)
        return;
    l->hand_words = 0;
    l->vector = 1;
    vectors_of(target, k, l);
}

/* The number of rows visited several times that fit the second level of cache; 0: no limit. */
static int64_t rows_in_cache(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l)
{
    int64_t row = 0;
    if (l->whole || l->staged || column_stages(k) < 2)
        return 0;
    for (uint32_t i = 0; i < k->n_buffers; i++)
        if (k->buffer[i].ext == F8_EXT_FULL && !k->buffer[i].write)
            row += k->cols * f8_cuda_bytes(k->buffer[i].dtype);
    const int64_t rows = row ? target->cache_bytes / row : 0;
    return !row ? 0 : rows > 0 ? rows : 1;
}

/* The number of blocks for which such rows still fit; 0: no limit. It is never so small that
 * multiprocessors have no work or too few threads wait for memory, however wide the rows are. */
static int64_t blocks_in_cache(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l)
{
    const int64_t rows = rows_in_cache(target, k, l), blocks = rows / l->rows;
    const int64_t each = l->threads < ROW_THREADS ? ROW_THREADS / l->threads : 1;
    const int64_t least = target->multiprocessors * each;
    return !rows ? 0 : blocks > least ? blocks : least;
}

/* More threads for the widest rows, where the cache allows so few rows that 256 threads for each
 * would leave multiprocessors waiting. What is summed is handed on in any case. The rows stay too
 * wide for registers, of which a thread then has but 64. */
static void spread(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    const int64_t rows = rows_in_cache(target, k, l), each = rows / target->multiprocessors;
    if (!l->hand_words || l->whole || !rows)
        return;
    while (2 * l->group * (each ? each : 1) <= FEW_RESIDENT &&
           k->cols > (int64_t)2 * l->group * F8_CUDA_WHOLE_COLUMNS)
        l->group *= 2;
    vectors_of(target, k, l);
    l->hand_words = f8_kernel_most_sums(k) * l->group * l->vector * l->sets;
    while (hand_bytes(l) > HAND_BYTES && l->sets > 1) {
        l->sets /= 2;
        l->hand_words /= 2;
    }
}

/* Whether blocks of `rows` rows write whole sectors where they store values transposed. */
static bool writes_sectors(const f8_kernel *k, int rows)
{
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (i->op == F8_K_STORE && k->buffer[i->buffer].transposed &&
            rows * f8_cuda_bytes(k->buffer[i->buffer].dtype) % SECTOR)
            return false;
    }
    return true;
}

/* The threads of a staged kernel's block. Where threads have parts of a row at once, a
 * multiprocessor has STAGED_RESIDENT with 64 registers each. They are one block if two would write
 * parts of sectors, or if rows have amaxes: a tail mostly follows them, which one block computes.
 * Whether it does must not matter: its host's tasks stay. */
static int staged_threads(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l)
{
    const bool in_parts = !l->whole && f8_cuda_rows_are_lean(target, k, l);
    const bool in_two =
        writes_sectors(k, STAGED_THREADS / l->group) && !f8_cuda_rows_count(k, F8_K_AMAX);
    return in_parts && !in_two ? STAGED_RESIDENT : STAGED_THREADS;
}

/* The blocks of a kernel by rows that should be resident. A staged kernel should have
 * STAGED_RESIDENT threads resident, if they have registers enough, so that some work while others
 * wait at a barrier or for memory. Tiles are filled and read in turns if that leaves room. */
static void row_blocks(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l)
{
    const int64_t room = f8_cuda_shared_most(target);
    if (!l->staged) {
        const int most = f8_cuda_rows_resident(target, k, l);
        l->min_blocks = resident(k, most, l->threads);
        l->branches = l->whole && most == F8_CUDA_ROW_RESIDENT;
        return;
    }
    l->min_blocks = 1;
    l->branches = !target->shared_large || f8_cuda_rows_count(k, F8_K_BLOCKAMAX);
    const int sums = f8_cuda_rows_count(k, F8_K_COLSUM);
    if (f8_cuda_rows_are_lean(target, k, l) && l->threads < STAGED_RESIDENT &&
        (l->whole || k->config.threads || writes_sectors(k, l->rows) || sums == 0 ||
         (sums == 1 && k->n_instrs <= F8_CUDA_STAGED_INSTRS)) &&
        l->shared * (STAGED_RESIDENT / l->threads) <= room)
        l->min_blocks = STAGED_RESIDENT / l->threads;
    if ((l->shared + l->tile_size) * l->min_blocks <= room) {
        l->turns = 2;
        l->shared += l->tile_size;
    }
}

static f8_status by_rows(const f8_target *target, const f8_kernel *k, bool rings, f8_cuda_layout *l,
                         f8_diag *d)
{
    const bool blocks = f8_cuda_rows_count(k, F8_K_BLOCKAMAX) > 0;
    l->split = (l->staged || blocks) && !reduces(k) && !f8_cuda_rows_count(k, F8_K_ROLL) &&
               k->cols > F8_CUDA_SPLIT;
    l->cols = l->split ? F8_CUDA_SPLIT : k->cols;
    l->group = group_of(k, l->staged || blocks);
    l->vector = l->group <= F8_CUDA_WARP ? LANE_VECTOR : LANES / l->group;
    vectors_of(target, k, l);
    widen(target, k, l);
    spread(target, k, l);
    choose_near(k, l);
    l->holds = l->whole &&
               f8_cuda_rows_count(k, F8_K_COLAMAX) * l->vectors * l->vector <= F8_CUDA_HELD_COLUMNS;
    const bool lean = l->staged && f8_cuda_rows_are_lean(target, k, l);
    const int registers = lean ? F8_CUDA_STAGED_SHARE : f8_cuda_rows_registers(k, l);
    const int staged = staged_threads(target, k, l);
    int threads = threads_of(k, l->staged ? staged : ROW_THREADS);
    while (l->staged && threads > ROW_THREADS && registers * threads > BLOCK_REGISTERS)
        threads /= 2;
    if (l->group > F8_CUDA_WARP)
        threads = l->group;
    else if (one_row(k))
        threads = F8_CUDA_WARP;
    const int tallest = k->n_partials ? (int)f8_kernel_task_rows(k) : F8_COLSUM_BLOCK;
    if (l->staged && threads > tallest * l->group)
        threads = tallest * l->group;
    if (threads < F8_CUDA_WARP)
        threads = F8_CUDA_WARP;
    const int least = l->group > F8_CUDA_WARP ? l->group : F8_CUDA_WARP;
    rows_of_block(k, l, threads);
    if (staged > STAGED_THREADS && threads > STAGED_THREADS && !k->config.threads &&
        l->shared + l->tile_size > f8_cuda_shared_most(target)) /* all would wait at each barrier */
        rows_of_block(k, l, threads = STAGED_THREADS);
    while (l->shared > f8_cuda_shared_most(target) && threads > least)
        rows_of_block(k, l, threads /= 2);
    if (l->shared > f8_cuda_shared_most(target))
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "rolled values of rows of %lld columns take %lld bytes of shared memory a "
                       "block; %s has %lld",
                       (long long)k->cols, (long long)l->shared, target->name,
                       (long long)f8_cuda_shared_most(target));
    row_blocks(target, k, l);
    if (!rings || !f8_cuda_choose_ring(target, k, l))
        f8_cuda_keep_own(target, k, l);
    l->max_blocks = blocks_in_cache(target, k, l);
    return F8_OK;
}

static f8_status layout(const f8_target *target, const f8_kernel *k, bool rings, f8_cuda_layout *l,
                        f8_diag *d)
{
    *l = (f8_cuda_layout){
        .cols = k->cols, .min_blocks = 1, .parts = 1, .turns = 1, .columns = has_columns(k)};
    if (k->n_near > F8_CUDA_NEAR_MAX || k->cols > INT32_MAX / 4)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "a kernel keeps %u values near over %lld columns: that is too many for CUDA",
                       k->n_near, (long long)k->cols);
    l->staged = k->n_partials > 0 || f8_kernel_transposes(k);
    if (!reduces(k) && !l->staged && !f8_cuda_rows_count(k, F8_K_ROLL) &&
        !f8_cuda_rows_count(k, F8_K_BLOCKAMAX)) {
        points(k, l);
        return F8_OK;
    }
    return by_rows(target, k, rings, l, d);
}

f8_status f8_cuda_rows_layout(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l,
                              f8_diag *d)
{
    return layout(target, k, true, l, d);
}

f8_status f8_cuda_rows_layout_many(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l,
                                   f8_diag *d)
{
    return layout(target, k, false, l, d);
}
