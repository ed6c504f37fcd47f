/* See copies.h. PTX, "cp.async", "cp.async.commit_group" and "cp.async.wait_group". */
#include "tests/emulator/copies.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xff };

static void land(const f8_emu_copy *c)
{
    if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, 0, c->bytes);
}

bool f8_emu_copies_begin(f8_emu_copies *c, void *to, const void *from, uint32_t bytes, bool at_once)
{
    const f8_emu_copy copy = {to, from, bytes, c->group};
    if (at_once) {
        land(&copy);
        return true;
    }
    if (c->n == c->room) {
        const uint32_t room = c->room ? 2 * c->room : 16;
        f8_emu_copy *more = realloc(c->at, room * sizeof *more);
        if (!more)
            return false;
        c->at = more;
        c->room = room;
    }
    memset(to, POISON, bytes);
    c->at[c->n++] = copy;
    return true;
}

void f8_emu_copies_commit(f8_emu_copies *c)
{
    c->group++;
}

void f8_emu_copies_wait(f8_emu_copies *c, uint32_t pending)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->at[i].group + pending < c->group) /* no wait covers the open group */
            land(&c->at[i]);
        else
            c->at[kept++] = c->at[i];
    c->n = kept;
}

const char *f8_emu_copies_end(f8_emu_copies *c)
{
    const bool under_way = c->n > 0;
    c->n = 0;
    return under_way ? "ends with asynchronous copies under way" : NULL;
}
