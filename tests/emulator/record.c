/* What the driver stand-in was asked to do, for tests: which stream each piece of work went to, and
 * how often the host waited. The driver's lock is held by all callers within the driver. */
#include "tests/emulator/driver.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

static f8_emulator_work *work;
static int n_work, room;
static bool recording;

static const char *const wait_names[F8_EMU_WAITS] = {
    [F8_EMU_WAIT_STREAM] = "cuStreamSynchronize", [F8_EMU_WAIT_EVENT] = "cuEventSynchronize",
    [F8_EMU_WAIT_CONTEXT] = "cuCtxSynchronize",   [F8_EMU_WAIT_COPY] = "synchronous copy",
    [F8_EMU_WAIT_PAGEABLE] = "pageable copy",     [F8_EMU_WAIT_FREE] = "free"};
static int64_t waits[F8_EMU_WAITS];

/* More than MOST is not kept: a test that records so much asks wrongly, and finds too little. */
void f8_emu_record_work(const char *kind, CUstream stream, bool graph, int branch)
{
    if (!recording || n_work == MOST)
        return;
    if (n_work == room) {
        const int more = room ? 2 * room : 256;
        f8_emulator_work *grown = realloc(work, (size_t)more * sizeof *grown);
        if (!grown)
            return;
        work = grown;
        room = more;
    }
    work[n_work++] = (f8_emulator_work){kind, stream, graph, branch};
}

void f8_emu_record_wait(f8_emu_wait kind)
{
    waits[kind]++;
}

void f8_emulator_record(void)
{
    f8_emu_lock();
    recording = true;
    n_work = 0;
    memset(waits, 0, sizeof waits);
    f8_emu_unlock();
}

int f8_emulator_recorded(int index, f8_emulator_work *out)
{
    f8_emu_lock();
    const bool is = index >= 0 && index < n_work;
    if (is)
        *out = work[index];
    f8_emu_unlock();
    return is;
}

int64_t f8_emulator_waits(const char *what)
{
    int64_t n = what ? -1 : 0;
    f8_emu_lock();
    for (int i = 0; i < F8_EMU_WAITS; i++) {
        if (!what)
            n += waits[i];
        else if (strcmp(what, wait_names[i]) == 0)
            n = waits[i];
    }
    f8_emu_unlock();
    return n;
}
