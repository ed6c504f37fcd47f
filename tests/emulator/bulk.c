/* See bulk.h. PTX, "mbarrier": a phase ends when its arrivals are done, here the one of
 * f8_bulk_expect, and its bytes have arrived. */
#include "tests/emulator/bulk.h"

#include <stdint.h>
#include <string.h>

enum { MOST_BARRIERS = 256, MOST_COPIES = 1024, POISON = 0xff };
#define MARK 0xf8ba55e5f8ba55e5u /* what the memory of a barrier holds, once begun */

typedef struct barrier {
    const unsigned long long *at;
    unsigned phase;
    bool expects; /* this phase's bytes have been announced */
    long long bytes;
} barrier;

typedef struct copy {
    uint8_t *to;
    const void *from;
    int bytes;
    barrier *of;
} copy;

static barrier barriers[MOST_BARRIERS];
static copy copies[MOST_COPIES];
static int n_barriers, n_copies;

void f8_emu_bulk_reset(void)
{
    n_barriers = n_copies = 0;
}

const char *f8_emu_bulk_begin(unsigned long long *at, int n)
{
    for (int i = 0; i < n; i++) {
        if (n_barriers == MOST_BARRIERS)
            return "begins more barriers than the emulator has";
        at[i] = MARK;
        barriers[n_barriers++] = (barrier){.at = at + i};
    }
    return NULL;
}

static barrier *find(const unsigned long long *at)
{
    for (int i = n_barriers; i-- > 0;)
        if (barriers[i].at == at)
            return *at == MARK ? &barriers[i] : NULL;
    return NULL;
}

static void close_phase(barrier *b)
{
    if (!b->expects || b->bytes)
        return;
    b->phase ^= 1;
    b->expects = false;
}

static const char *land(const copy *c)
{
    memcpy(c->to, c->from, (size_t)c->bytes);
    c->of->bytes -= c->bytes;
    if (c->of->bytes < 0)
        return "copies more bytes than its barrier expects";
    close_phase(c->of);
    return NULL;
}

const char *f8_emu_bulk_expect(const unsigned long long *at, int bytes)
{
    barrier *b = find(at);
    if (!b)
        return "expects bytes at memory that is no barrier, or has been overwritten";
    if (b->expects)
        return "expects bytes twice in a phase";
    b->expects = true;
    b->bytes += bytes;
    close_phase(b);
    return NULL;
}

const char *f8_emu_bulk_copy(void *to, const void *from, int bytes, const unsigned long long *at,
                             bool at_once)
{
    const copy c = {to, from, bytes, find(at)};
    if (!c.of)
        return "copies with memory that is no barrier, or has been overwritten";
    if (bytes <= 0 || bytes % 16)
        return "copies a number of bytes that is no multiple of 16";
    if (!c.of->expects)
        return "copies before its barrier expects anything";
    for (int i = 0; i < n_copies; i++)
        if (c.to < copies[i].to + copies[i].bytes && copies[i].to < c.to + c.bytes)
            return "copies to memory that another copy is under way to";
    if (at_once)
        return land(&c);
    if (n_copies == MOST_COPIES)
        return "has more copies under way than the emulator has room for";
    memset(to, POISON, (size_t)bytes);
    copies[n_copies++] = c;
    return NULL;
}

const char *f8_emu_bulk_wait(const unsigned long long *at, unsigned phase, bool *done)
{
    barrier *b = find(at);
    if (!b || phase > 1)
        return "waits at memory that is no barrier, or has been overwritten";
    int kept = 0;
    const char *wrong = NULL;
    for (int i = 0; i < n_copies; i++)
        if (b->phase == phase && copies[i].of == b)
            wrong = wrong ? wrong : land(&copies[i]);
        else
            copies[kept++] = copies[i];
    n_copies = kept;
    *done = b->phase != phase;
    return wrong;
}

const char *f8_emu_bulk_end(void)
{
    if (n_copies)
        return "ends with bulk copies under way";
    for (int i = 0; i < n_barriers; i++)
        if (barriers[i].expects)
            return "ends before a barrier has all its bytes";
    return NULL;
}
