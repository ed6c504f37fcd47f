/* See block.h. Four sets of threads: those that can run (a mask per warp), those at f8_sync (a
 * count), those at a warp's operation (a mask per warp), and those that wait for a bulk copy that
 * no thread has begun yet (a mask per warp). If no thread can run and some have not ended, these
 * wait for what never comes. */
#include "tests/emulator/block.h"

#include "tests/emulator/bulk.h"
#include "tests/emulator/common.h"
#include "tests/emulator/copies.h"
#include "tests/emulator/fault.h"
#include "tests/emulator/fiber.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xmmintrin.h>

enum { MAX_WARPS = F8_EMU_MAX_THREADS / F8_EMU_WARP, PAGE = 4096, POISON = 0xff, CANARY = 0xcb };

typedef struct thread {
    void *sp;    /* where it waits; NULL: not begun */
    void *stack; /* the end of its stack, while begun */
    f8_emu_copies copies;
    bool awaited; /* the kernel ahead has ended */
    bool fenced;  /* at f8_fence since the block began */
    bool counted; /* at f8_count, and at no f8_fence since */
} thread;

typedef struct warp {
    uint32_t runnable, at_op, at_sync, at_bulk, at_await;
    f8_emu_lane lane[F8_EMU_WARP];
} warp;

static struct block {
    f8_emu_context context;
    const f8_emu_launch *launch;
    thread thread[F8_EMU_MAX_THREADS];
    warp warp[MAX_WARPS];
    uint32_t n_warps, warps_runnable; /* a mask */
    uint32_t n_ended, n_at_sync, n_at_await;
    bool closed;       /* device memory is out of reach */
    uint32_t n_fenced; /* threads that are `fenced` */
    bool published;    /* all were when they last met at f8_sync */
    thread *running;
    void *host;     /* where the launch waits for the block */
    int failure;    /* CUDA_ERROR_* */
    uint64_t random;
    uint8_t *memory;            /* shared memory: F8_EMU_MAX_SHARED, then a page nobody may touch */
    uint8_t *stacks;            /* each with such a page below it */
    void *free_stack[F8_EMU_MAX_THREADS];
    int n_free;
} B;

/* ---- order ---- */

static uint32_t draw(uint32_t below)
{
    B.random ^= B.random << 13;
    B.random ^= B.random >> 7;
    B.random ^= B.random << 17;
    return (uint32_t)((B.random >> 32) * below >> 32);
}

/* One of the bits of a mask that is not 0: the first, or any. */
static int choose(uint32_t mask)
{
    if (B.launch->seed)
        for (uint32_t skip = draw((uint32_t)__builtin_popcount(mask)); skip; skip--)
            mask &= mask - 1;
    return __builtin_ctz(mask);
}

static thread *next(void)
{
    if (!B.warps_runnable)
        return NULL;
    /* In order: the running thread's warp goes on as long as it can. */
    int w = (int)(B.running - B.thread) / F8_EMU_WARP;
    if (B.launch->seed || !(B.warps_runnable >> w & 1))
        w = choose(B.warps_runnable);
    return &B.thread[w * F8_EMU_WARP + choose(B.warp[w].runnable)];
}

static void set_runnable(int w, uint32_t mask)
{
    B.warp[w].runnable = mask;
    if (mask)
        B.warps_runnable |= 1u << w;
    else
        B.warps_runnable &= ~(1u << w);
}

/* ---- switching ---- */

static void give_up(int failure)
{
    B.failure = failure;
    void *here;
    f8_emu_switch(&here, B.host);
}

static const char *op_name(f8_emu_op op)
{
    static const char *const name[] = {"nothing",      "f8_sync_warp",   "f8_shfl",
                                       "f8_shfl_xor",  "f8_mma_bf16",    "f8_ldmatrix_x4",
                                       "f8_ldmatrix_x4_trans"};
    return name[op];
}

static void report_stuck(void)
{
    uint32_t at_op = 0, at_bulk = 0;
    const char *op = "";
    for (uint32_t w = 0; w < B.n_warps; w++)
        at_bulk += (uint32_t)__builtin_popcount(B.warp[w].at_bulk);
    for (uint32_t w = 0; w < B.n_warps; w++)
        if (B.warp[w].at_op) {
            at_op += (uint32_t)__builtin_popcount(B.warp[w].at_op);
            op = op_name(B.warp[w].lane[__builtin_ctz(B.warp[w].at_op)].op);
        }
    f8_emu_note(
        "%s, block %lld: %u threads have ended, %u wait at f8_await_before, %u at f8_sync, %u at "
        "f8_bulk_wait, %u at a warp's operation %s: none can go on",
        B.launch->kernel->name, B.context.block, B.n_ended, B.n_at_await, B.n_at_sync, at_bulk,
        at_op, op);
}

static void thread_main(void);
static void misuse(const char *what);
static void check(const char *wrong);

/* Go on with t. Comes back when somebody goes on with the running thread. */
static void go(thread *t)
{
    thread *from = B.running;
    if (t == from)
        return;
    if (!t) {
        report_stuck();
        give_up(CUDA_ERROR_LAUNCH_FAILED);
    }
    if (!t->sp) {
        t->stack = B.free_stack[--B.n_free];
        t->sp = f8_emu_fiber_start(t->stack, thread_main);
    }
    B.running = t;
    B.context.thread = (int)(t - B.thread);
    f8_emu_switch(&from->sp, t->sp);
}

/* A fiber's life: its own thread, then any that has not begun. */
static void thread_main(void)
{
    for (;;) {
        thread *t = B.running;
        B.launch->kernel->run(B.launch->params);
        const int i = (int)(t - B.thread), w = i / F8_EMU_WARP;
        if (B.launch->dependent && !t->awaited)
            misuse("ends without having waited for the kernel ahead");
        check(f8_emu_copies_end(&t->copies));
        set_runnable(w, B.warp[w].runnable & ~(1u << i % F8_EMU_WARP));
        B.n_ended++;
        thread *to = next();
        if (to && !to->sp) {
            to->stack = t->stack;
            to->sp = t; /* begun */
            B.running = to;
            B.context.thread = (int)(to - B.thread);
            continue;
        }
        if (!to && B.n_ended == (uint32_t)B.context.threads)
            give_up(0);
        B.free_stack[B.n_free++] = t->stack;
        go(to);
    }
}

/* ---- what threads do together ---- */

/* Blocks run one after the other here, so nothing shows that a fence is missing but this. */
static void misuse(const char *what)
{
    f8_emu_note("%s, block %lld, thread %d %s", B.launch->kernel->name, B.context.block,
                B.context.thread, what);
    give_up(CUDA_ERROR_LAUNCH_FAILED);
}

/* Device memory comes into reach when all threads of the block are here. A device lets each go on
 * by itself. */
static void await_before(void)
{
    const int i = (int)(B.running - B.thread), w = i / F8_EMU_WARP;
    if (!B.launch->dependent || B.running->awaited)
        return;
    B.running->awaited = true;
    B.warp[w].at_await |= 1u << i % F8_EMU_WARP;
    set_runnable(w, B.warp[w].runnable & ~(1u << i % F8_EMU_WARP));
    if (++B.n_at_await == (uint32_t)B.context.threads) {
        if (B.closed)
            B.launch->reach(true);
        B.closed = false;
        B.n_at_await = 0;
        for (uint32_t v = 0; v < B.n_warps; v++) {
            set_runnable((int)v, B.warp[v].at_await);
            B.warp[v].at_await = 0;
        }
        if (!B.launch->seed)
            return;
    }
    go(next());
}

static void fence(void)
{
    B.n_fenced += !B.running->fenced;
    B.running->fenced = true;
    B.running->counted = false;
}

/* Counts for the block, whose threads have stored: all have fenced, and met since. */
static unsigned count(unsigned *counter, unsigned most)
{
    const unsigned was = *counter;
    if (!B.published)
        misuse("counts before all threads of the block have fenced and met");
    *counter = was >= most ? 0 : was + 1;
    B.running->counted = true;
    return was;
}

static void block_sync(void)
{
    const int i = (int)(B.running - B.thread), w = i / F8_EMU_WARP;
    if (B.running->counted)
        misuse("does not fence between f8_count and f8_sync");
    B.warp[w].at_sync |= 1u << i % F8_EMU_WARP;
    set_runnable(w, B.warp[w].runnable & ~(1u << i % F8_EMU_WARP));
    if (++B.n_at_sync == (uint32_t)B.context.threads) {
        B.n_at_sync = 0;
        B.published = B.n_fenced == (uint32_t)B.context.threads;
        for (uint32_t v = 0; v < B.n_warps; v++) {
            set_runnable((int)v, B.warp[v].at_sync);
            B.warp[v].at_sync = 0;
        }
        if (!B.launch->seed)
            return;
    }
    go(next());
}

/* The running thread's lane, to be filled before meet(). */
static f8_emu_lane *my_lane(f8_emu_op op)
{
    const int i = (int)(B.running - B.thread);
    f8_emu_lane *lane = &B.warp[i / F8_EMU_WARP].lane[i % F8_EMU_WARP];
    lane->op = op;
    return lane;
}

static void meet(void)
{
    const int i = (int)(B.running - B.thread), w = i / F8_EMU_WARP;
    warp *p = &B.warp[w];
    p->at_op |= 1u << i % F8_EMU_WARP;
    set_runnable(w, p->runnable & ~(1u << i % F8_EMU_WARP));
    if (p->at_op == UINT32_MAX) {
        for (int l = 1; l < F8_EMU_WARP; l++)
            if (p->lane[l].op != p->lane[0].op) {
                f8_emu_note("%s, block %lld: lane 0 of warp %d is at %s, lane %d at %s",
                            B.launch->kernel->name, B.context.block, w, op_name(p->lane[0].op), l,
                            op_name(p->lane[l].op));
                give_up(CUDA_ERROR_LAUNCH_FAILED);
            }
        f8_emu_warp_op(p->lane);
        p->at_op = 0;
        set_runnable(w, UINT32_MAX);
        if (!B.launch->seed)
            return;
    }
    go(next());
}

static void sync_warp(void)
{
    my_lane(F8_EMU_OP_SYNC);
    meet();
}

static unsigned shuffle(f8_emu_op op, unsigned x, int lane)
{
    f8_emu_lane *l = my_lane(op);
    l->value = x;
    l->lane = lane;
    meet();
    return l->value;
}

static unsigned shfl(unsigned x, int lane)
{
    return shuffle(F8_EMU_OP_SHFL, x, lane);
}

static unsigned shfl_xor(unsigned x, int mask)
{
    return shuffle(F8_EMU_OP_SHFL_XOR, x, mask);
}

static void mma_bf16(float *d, const unsigned *a, const unsigned *b)
{
    f8_emu_lane *l = my_lane(F8_EMU_OP_MMA_BF16);
    l->out = d;
    l->in[0] = a;
    l->in[1] = b;
    meet();
}

/* `bytes` aligned bytes of this block's shared memory, or the launch fails. */
static void check_shared(const void *p, int bytes, const char *what)
{
    const uint8_t *at = p, *end = B.memory + F8_EMU_MAX_SHARED;
    const size_t all = (size_t)(end - B.context.shared);
    if ((size_t)(at - B.context.shared) > all - (size_t)bytes) {
        f8_emu_note("%s, block %lld: %s at an address that is not shared memory",
                    B.launch->kernel->name, B.context.block, what);
        give_up(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    if ((uintptr_t)p % (uintptr_t)bytes) {
        f8_emu_note("%s, block %lld: %s at a misaligned address", B.launch->kernel->name,
                    B.context.block, what);
        give_up(CUDA_ERROR_MISALIGNED_ADDRESS);
    }
}

/* The same of memory that a copy reads. */
static void check_global(const void *p, int bytes, const char *what)
{
    if ((uintptr_t)p % (uintptr_t)bytes) {
        f8_emu_note("%s, block %lld: %s from a misaligned address", B.launch->kernel->name,
                    B.context.block, what);
        give_up(CUDA_ERROR_MISALIGNED_ADDRESS);
    }
}

static void ldmatrix(unsigned *r, const void *row, int transpose)
{
    check_shared(row, 16, "ldmatrix");
    f8_emu_lane *l = my_lane(transpose ? F8_EMU_OP_LDMATRIX_TRANS : F8_EMU_OP_LDMATRIX);
    l->out = r;
    l->in[0] = row;
    meet();
}

/* ---- asynchronous copies ---- */

static void copy(void *shared, const void *global, int bytes, int valid)
{
    check_shared(shared, bytes, "an asynchronous copy");
    check_global(valid ? global : NULL, bytes, "an asynchronous copy");
    if (!f8_emu_copies_begin(&B.running->copies, shared, valid ? global : NULL, (uint32_t)bytes,
                             B.launch->seed && draw(2)))
        give_up(CUDA_ERROR_LAUNCH_FAILED);
}

static void copy_commit(void)
{
    f8_emu_copies_commit(&B.running->copies);
}

static void copy_wait(int groups)
{
    f8_emu_copies_wait(&B.running->copies, (uint32_t)groups);
}

static void check(const char *wrong)
{
    if (wrong)
        misuse(wrong);
}

/* What threads at f8_bulk_wait wait for may have come. */
static void wake(void)
{
    for (uint32_t w = 0; w < B.n_warps; w++) {
        set_runnable((int)w, B.warp[w].runnable | B.warp[w].at_bulk);
        B.warp[w].at_bulk = 0;
    }
}

static void bulk_begin(unsigned long long *barrier, int n)
{
    check(f8_emu_bulk_begin(barrier, n));
}

static void bulk_expect(unsigned long long *barrier, int bytes)
{
    check(f8_emu_bulk_expect(barrier, bytes));
    wake();
}

static void bulk_copy(void *shared, const void *global, int bytes, unsigned long long *barrier)
{
    check_shared(shared, 16, "a bulk copy");
    check_shared((uint8_t *)shared + bytes - 16, 16, "a bulk copy");
    check_global(global, 16, "a bulk copy");
    check(f8_emu_bulk_copy(shared, global, bytes, barrier, B.launch->seed && draw(2)));
    wake();
}

static void bulk_wait(unsigned long long *barrier, unsigned phase)
{
    const int i = (int)(B.running - B.thread), w = i / F8_EMU_WARP;
    for (;;) {
        bool done = false;
        check(f8_emu_bulk_wait(barrier, phase, &done));
        if (done)
            return;
        B.warp[w].at_bulk |= 1u << i % F8_EMU_WARP;
        set_runnable(w, B.warp[w].runnable & ~(1u << i % F8_EMU_WARP));
        go(next());
    }
}

/* ---- faults ---- */

static void on_fault(int error, const char *what, const void *address)
{
    if (B.closed && error == CUDA_ERROR_ILLEGAL_ADDRESS) {
        what = "touched memory before all threads had waited for the kernel ahead";
        error = CUDA_ERROR_LAUNCH_FAILED;
    }
    f8_emu_note("%s, block %lld, thread %d %s (%p)", B.launch->kernel->name, B.context.block,
                B.context.thread, what, address);
    B.failure = error;
}

/* ---- blocks ---- */

static bool reserve(void)
{
    const f8_emu_context functions = {.await_before = await_before,
                                      .sync = block_sync,
                                      .sync_warp = sync_warp,
                                      .shfl = shfl,
                                      .shfl_xor = shfl_xor,
                                      .fence = fence,
                                      .count = count,
                                      .mma_bf16 = mma_bf16,
                                      .ldmatrix = ldmatrix,
                                      .copy = copy,
                                      .copy_commit = copy_commit,
                                      .copy_wait = copy_wait,
                                      .bulk_begin = bulk_begin,
                                      .bulk_expect = bulk_expect,
                                      .bulk_copy = bulk_copy,
                                      .bulk_wait = bulk_wait};
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const size_t stacks = (size_t)F8_EMU_MAX_THREADS * (F8_EMU_STACK + PAGE);
    if (B.memory)
        return true;
    uint8_t *memory = mmap(NULL, F8_EMU_MAX_SHARED + PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    B.stacks = mmap(NULL, stacks, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED || B.stacks == MAP_FAILED)
        return false;
    mprotect(memory + F8_EMU_MAX_SHARED, PAGE, PROT_NONE);
    for (int i = 0; i < F8_EMU_MAX_THREADS; i++)
        mprotect(B.stacks + (size_t)i * (F8_EMU_STACK + PAGE), PAGE, PROT_NONE);
    B.context = functions;
    B.memory = memory;
    return true;
}

/* Dynamic shared memory ends where the forbidden page begins (but for its alignment); static arrays
 * lie below it, redzones around each. */
static void place_shared(void)
{
    const f8_emu_launch *l = B.launch;
    B.context.dynamic = B.memory + F8_EMU_MAX_SHARED - (l->dynamic_bytes + 127) / 128 * 128;
    B.context.shared = B.context.dynamic - l->static_bytes;
}

static void fill_shared(void)
{
    const f8_emu_launch *l = B.launch;
    memset(B.context.shared, CANARY, (size_t)(B.memory + F8_EMU_MAX_SHARED - B.context.shared));
    memset(B.context.dynamic, POISON, l->dynamic_bytes);
    for (unsigned i = 0; i < l->n_arrays; i++)
        memset(B.context.shared + l->array[i]->offset, POISON, l->array[i]->bytes);
}

static bool is_canary(const uint8_t *from, const uint8_t *to)
{
    while (from < to && *from == CANARY)
        from++;
    return from >= to;
}

static void check_redzones(void)
{
    const f8_emu_launch *l = B.launch;
    bool good = is_canary(B.context.dynamic + l->dynamic_bytes, B.memory + F8_EMU_MAX_SHARED);
    const uint8_t *at = B.context.shared;
    for (unsigned i = 0; i < l->n_arrays; i++) {
        good = good && is_canary(at, B.context.shared + l->array[i]->offset);
        at = B.context.shared + l->array[i]->offset + l->array[i]->bytes;
    }
    if (good && is_canary(at, B.context.dynamic))
        return;
    f8_emu_note("%s, block %lld wrote past an array in shared memory", l->kernel->name,
                B.context.block);
    B.failure = CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* `apart`: device memory is out of reach at first. */
static void run_block(int64_t block, bool apart)
{
    const uint32_t threads = B.launch->threads;
    B.context.block = block;
    B.context.threads = (int)threads;
    B.n_warps = (threads + F8_EMU_WARP - 1) / F8_EMU_WARP;
    B.n_ended = B.n_at_sync = B.n_at_await = B.n_fenced = 0;
    B.published = false;
    for (uint32_t i = 0; i < threads; i++) {
        B.thread[i].sp = NULL;
        B.thread[i].copies.n = 0;
        B.thread[i].awaited = B.thread[i].fenced = B.thread[i].counted = false;
    }
    for (uint32_t w = 0; w < B.n_warps; w++) {
        const uint32_t lanes = threads - w * F8_EMU_WARP;
        B.warp[w].at_op = B.warp[w].at_sync = B.warp[w].at_bulk = B.warp[w].at_await = 0;
        set_runnable((int)w, lanes >= F8_EMU_WARP ? UINT32_MAX : (1u << lanes) - 1);
    }
    B.n_free = 0;
    for (uint32_t i = threads; i-- > 0;)
        B.free_stack[B.n_free++] = B.stacks + (size_t)(i + 1) * (F8_EMU_STACK + PAGE);
    fill_shared();
    f8_emu_bulk_reset();
    B.closed = apart;
    if (B.closed)
        B.launch->reach(false);
    B.running = &B.thread[0];
    thread *first = next();
    first->stack = B.free_stack[--B.n_free];
    first->sp = f8_emu_fiber_start(first->stack, thread_main);
    B.running = first;
    B.context.thread = (int)(first - B.thread);
    f8_emu_switch(&B.host, first->sp);
    if (B.closed)
        B.launch->reach(true);
    B.closed = false;
    const char *wrong = B.failure ? NULL : f8_emu_bulk_end();
    if (wrong) {
        f8_emu_note("%s, block %lld %s", B.launch->kernel->name, B.context.block, wrong);
        B.failure = CUDA_ERROR_LAUNCH_FAILED;
    }
    if (!B.failure)
        check_redzones();
}

/* For an order of n blocks that needs no memory: i -> (step i + at) mod n, step prime to n. */
static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

int f8_emu_run(const f8_emu_launch *launch)
{
    if (!reserve())
        return CUDA_ERROR_OUT_OF_MEMORY;
    const unsigned mode = _mm_getcsr();
    B.launch = launch;
    B.failure = 0;
    B.random = launch->seed ? launch->seed * 0x9e3779b97f4a7c15u | 1 : 1;
    B.context.blocks = launch->blocks;
    *launch->context = &B.context;
    place_shared();
    uint64_t step = 1, at = 0;
    if (launch->seed) {
        const uint32_t n = (uint32_t)launch->blocks;
        do
            step = draw(n) + 1;
        while (gcd(step, n) != 1);
        at = draw(n);
    }
    f8_emu_faults_catch(&B.host, on_fault);
    _mm_setcsr(0x1f80); /* the default: to nearest, subnormals kept, no traps */
    for (int64_t i = 0; i < launch->blocks && !B.failure; i++) {
        /* Taking memory out of reach takes long: of two blocks, which run the same code as others.
         */
        run_block((int64_t)at, launch->apart && (i == 0 || i == launch->blocks - 1));
        at = (at + step) % (uint64_t)launch->blocks;
    }
    _mm_setcsr(mode);
    f8_emu_faults_release();
    return B.failure;
}
