/* Rows that come through a ring (codegen/cuda/print.h). A warp has N chunks of SIZE bytes in shared
 * memory. For each chunk, in the order of the ring:
 *
 *     f8_ring_wait                the chunk has come
 *     f8_get                      each thread reads its vectors
 *     f8_ring_empty               all have read them
 *     if (f8_ring_fills)          the copies of the chunk that takes its place
 *         f8_ring_expect, f8_ring_copy
 *     f8_ring_close
 *     f8_ring_next                or, where a turn goes once around, f8_ring_around after it
 *
 * Both kinds of ring have these calls. `slot` is the number of a chunk. */

/* One thread begins bulk copies for its warp. A chunk's barrier counts their bytes. */
template <int N, int SIZE> struct f8_bulk_ring {
    f8_u8 *chunks;
    f8_u64 *bars;
    int slot = 0;
    f8_u32 phase = 0; /* of the barriers from `slot` on; those before it are in the next */
};

/* Each thread copies its own vector of a chunk, which no other thread reads. It closes a group of
 * copies for each chunk, also where it copies nothing. So N - 1 groups are younger than the one that
 * it waits for. */
template <int N, int SIZE> struct f8_own_ring {
    f8_u8 *chunks;
    int slot = 0;
};

/* Before all: the barriers. */
template <int N, int SIZE> F8_DEV void f8_ring_begin(const f8_bulk_ring<N, SIZE> &ring)
{
    if (f8_elect())
        f8_bulk_begin(ring.bars, N);
    f8_sync_warp();
}
template <int N, int SIZE> F8_DEV void f8_ring_begin(const f8_own_ring<N, SIZE> &) {}

/* The first column of a chunk that this thread copies; vectors have V. */
template <int V, int N, int SIZE> F8_DEV int f8_ring_own(const f8_bulk_ring<N, SIZE> &)
{
    return 0;
}
template <int V, int N, int SIZE> F8_DEV int f8_ring_own(const f8_own_ring<N, SIZE> &)
{
    return f8_thread() % 32 * V;
}

template <int N, int SIZE> F8_DEV void f8_ring_wait(const f8_bulk_ring<N, SIZE> &ring, int slot)
{
    f8_bulk_wait(ring.bars + slot, ring.phase);
}
template <int N, int SIZE> F8_DEV void f8_ring_wait(const f8_own_ring<N, SIZE> &, int)
{
    f8_copy_wait<N - 1>();
}

template <int N, int SIZE> F8_DEV void f8_ring_empty(const f8_bulk_ring<N, SIZE> &)
{
    f8_sync_warp();
}
template <int N, int SIZE> F8_DEV void f8_ring_empty(const f8_own_ring<N, SIZE> &) {}

/* Whether this thread begins copies. */
template <int N, int SIZE> F8_DEV bool f8_ring_fills(const f8_bulk_ring<N, SIZE> &)
{
    return f8_elect();
}
template <int N, int SIZE> F8_DEV bool f8_ring_fills(const f8_own_ring<N, SIZE> &) { return true; }

/* All bytes that the copies of a chunk bring. */
template <int N, int SIZE>
F8_DEV void f8_ring_expect(const f8_bulk_ring<N, SIZE> &ring, int slot, int bytes)
{
    f8_bulk_expect(ring.bars + slot, bytes);
}
template <int N, int SIZE> F8_DEV void f8_ring_expect(const f8_own_ring<N, SIZE> &, int, int) {}

/* Of the row at `from`, `columns` elements of S bytes to the place `to` in chunk `slot`. `from` is at
 * this thread's f8_ring_own<V>. */
template <int S, int V, int N, int SIZE>
F8_DEV void f8_ring_copy(const f8_bulk_ring<N, SIZE> &ring, int slot, f8_u8 *to, const void *from,
                         int columns)
{
    f8_bulk_copy(to, from, S * columns, ring.bars + slot);
}
template <int S, int V, int N, int SIZE>
F8_DEV void f8_ring_copy(const f8_own_ring<N, SIZE> &ring, int, f8_u8 *to, const void *from,
                         int columns)
{
    const int own = f8_ring_own<V>(ring);
    if (own < columns)
        f8_copy_vector<S * V>(to + own * S, from);
}

/* The copies of a chunk have begun, if there are any. */
template <int N, int SIZE> F8_DEV void f8_ring_close(const f8_bulk_ring<N, SIZE> &) {}
template <int N, int SIZE> F8_DEV void f8_ring_close(const f8_own_ring<N, SIZE> &)
{
    f8_copy_commit();
}

template <int N, int SIZE> F8_DEV void f8_ring_next(f8_bulk_ring<N, SIZE> &ring)
{
    if constexpr (N == 2) {
        ring.phase ^= (f8_u32)ring.slot;
        ring.slot ^= 1;
    } else if (++ring.slot == N) {
        ring.slot = 0;
        ring.phase ^= 1;
    }
}
template <int N, int SIZE> F8_DEV void f8_ring_next(f8_own_ring<N, SIZE> &ring)
{
    if constexpr (N == 2)
        ring.slot ^= 1;
    else if (++ring.slot == N)
        ring.slot = 0;
}
template <int N, int SIZE> F8_DEV void f8_ring_around(f8_bulk_ring<N, SIZE> &ring)
{
    ring.phase ^= 1;
}
template <int N, int SIZE> F8_DEV void f8_ring_around(f8_own_ring<N, SIZE> &) {}
