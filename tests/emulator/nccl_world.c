/* Ranks that share memory: see nccl.h. A communicator is one shared object with a place for each
 * rank, and one more for each rank with the bytes that it sends. They have names until all ranks
 * have opened them. */
#include "tests/emulator/nccl.h"
#include "tests/emulator/common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READY = 0x6e63636c, NAME = 64, SECONDS = 30 };

typedef struct place {
    int claimed, joined, opened, left, device;
    pid_t pid;
    uint64_t posted, taken; /* numbers of operations */
    f8_emu_post post;
} place;

struct f8_emu_world {
    int ready, ranks, refused;
    place place[F8_EMU_RANKS];
};
typedef struct f8_emu_world world;

#define GET(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define SET(x, v) __atomic_store_n(&(x), v, __ATOMIC_RELEASE)

/* ---- names ---- */

bool f8_emu_world_name(char id[F8_EMU_ID])
{
    const char *address = getenv("NCCL_COMM_ID");
    uint64_t number;
    if (address && *address)
        number = f8_emu_hash(1, address, strlen(address));
    else if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return false;
    memset(id, 0, F8_EMU_ID);
    snprintf(id, NAME, "/fp8c-nccl-%016llx", (unsigned long long)number);
    return true;
}

static void file_name(char *name, const char *id, int rank)
{
    snprintf(name, NAME, "%.40s.%d", id, rank);
}

/* ---- joining ---- */

static bool lives(pid_t pid)
{
    char path[64], text[256];
    if (kill(pid, 0) && errno == ESRCH)
        return false;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    return state && state[2] != 'Z';
}

static world *map(int fd)
{
    struct stat at;
    world *w = MAP_FAILED;
    if (fd >= 0 && !fstat(fd, &at) && at.st_size >= (off_t)sizeof *w) /* its maker sets the size */
        w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return w == MAP_FAILED ? NULL : w;
}

static world *make(const char *id, int ranks)
{
    shm_unlink(id);
    const int fd = shm_open(id, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(world)))
        return NULL;
    world *w = map(fd);
    if (!w)
        return NULL;
    w->ranks = ranks;
    w->place[0].pid = getpid();
    SET(w->ready, READY);
    return w;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 200000};
    nanosleep(&moment, NULL);
}

/* What rank 0 has made; what a process left behind that ended is none. */
static world *find(const f8_emu_member *m, const char *id, double until)
{
    for (; seconds_now() < until && !GET(m->cancelled); pause_a_moment()) {
        world *w = map(shm_open(id, O_RDWR, 0));
        if (w && GET(w->ready) == READY && lives(w->place[0].pid))
            return w;
        if (w)
            munmap(w, sizeof *w);
    }
    return NULL;
}

static int count(const world *w, bool opened)
{
    int n = 0;
    for (int r = 0; r < w->ranks; r++)
        n += opened ? GET(w->place[r].opened) : GET(w->place[r].joined);
    return n;
}

static bool all(const f8_emu_member *m, bool opened, double until)
{
    const world *w = m->world;
    while (count(w, opened) < w->ranks && seconds_now() < until && !GET(w->refused) &&
           !GET(m->cancelled))
        pause_a_moment();
    return count(w, opened) == w->ranks;
}

static bool open_files(f8_emu_member *m, const char *id, bool own)
{
    char name[NAME];
    for (int r = 0; r < m->ranks; r++) {
        if ((r == m->rank) != own)
            continue;
        file_name(name, id, r);
        m->file[r] = shm_open(name, own ? O_RDWR | O_CREAT : O_RDONLY, 0600);
        if (m->file[r] < 0)
            return false;
    }
    return true;
}

static int join(f8_emu_member *m, const char *id, int device, char *why, size_t room)
{
    const double until =
        seconds_now() + (double)f8_emu_setting("FP8C_EMULATOR_NCCL_SECONDS", SECONDS);
    world *w = m->world = m->rank ? find(m, id, until) : make(id, m->ranks);
    int free_place = 0;
    if (!w) {
        snprintf(why, room, "rank 0 did not come");
        return ncclSystemError;
    }
    place *p = &w->place[m->rank];
    if (w->ranks != m->ranks || !__atomic_compare_exchange_n(&p->claimed, &free_place, 1, false,
                                                             __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        SET(w->refused, 1);
        snprintf(why, room, "rank %d of %d joins %d ranks", m->rank, m->ranks, w->ranks);
        return ncclInvalidUsage;
    }
    p->pid = getpid();
    p->device = device;
    if (!open_files(m, id, true))
        return ncclSystemError;
    SET(p->joined, 1);
    if (!all(m, false, until)) {
        snprintf(why, room, GET(w->refused) ? "a rank was refused" : "%d of %d ranks came",
                 count(w, false), w->ranks);
        return GET(w->refused) ? ncclInvalidUsage : ncclSystemError;
    }
    for (int a = 0; a < m->ranks; a++)
        for (int b = 0; b < a; b++)
            if (w->place[a].device == w->place[b].device) {
                snprintf(why, room,
                         "Duplicate GPU detected : rank %d and rank %d both on CUDA "
                         "device %d",
                         b, a, w->place[a].device);
                return ncclInvalidUsage;
            }
    if (!open_files(m, id, false))
        return ncclSystemError;
    SET(p->opened, 1);
    return all(m, true, until) ? ncclSuccess : ncclSystemError;
}

int f8_emu_join(f8_emu_member *m, const char *id, int device, char *why, size_t room)
{
    char name[NAME];
    for (int r = 0; r < F8_EMU_RANKS; r++)
        m->file[r] = -1;
    snprintf(why, room, "shared memory failed");
    const int result = join(m, id, device, why, room);
    file_name(name, id, m->rank);
    shm_unlink(name);
    if (m->rank == 0)
        shm_unlink(id);
    if (result != ncclSuccess && m->world)
        munmap(m->world, sizeof *m->world);
    for (int r = 0; result != ncclSuccess && r < F8_EMU_RANKS; r++)
        if (m->file[r] >= 0)
            close(m->file[r]);
    return result;
}

/* The memory stays: an operation of this rank may still look. */
void f8_emu_leave_world(f8_emu_member *m)
{
    SET(m->world->place[m->rank].left, 1);
    for (int r = 0; r < m->ranks; r++)
        close(m->file[r]);
}

/* ---- operations ---- */

static bool in_parts(const f8_emu_post *post)
{
    return post->kind == F8_EMU_GROUP || post->kind == F8_EMU_SCATTER;
}

/* The offset of the bytes for `to` in the file of a rank with this post. */
static uint64_t offset(const f8_emu_post *post, int to)
{
    uint64_t at = 0;
    for (int r = 0; in_parts(post) && r < to; r++)
        at += post->sends[r];
    return at;
}

static void move(int file, bool reads, void *at, uint64_t bytes, uint64_t from)
{
    for (uint64_t done = 0; done < bytes;) {
        char *p = (char *)at + done;
        const ssize_t n = reads ? pread(file, p, bytes - done, (off_t)(from + done))
                                : pwrite(file, p, bytes - done, (off_t)(from + done));
        if (n <= 0)
            abort(); /* /dev/shm is full, or a file is shorter than it was said to be */
        done += (uint64_t)n;
    }
}

bool f8_emu_post_operation(f8_emu_member *m, uint64_t number, const f8_emu_post *post,
                           const void *const *from)
{
    place *p = &m->world->place[m->rank];
    for (int r = 0; r < m->ranks; r++)
        if (GET(m->world->place[r].taken) + 1 < number)
            return false;
    for (int r = 0; r < m->ranks; r++)
        if (in_parts(post) || r == 0)
            move(m->file[m->rank], false, (void *)(uintptr_t)from[r], post->sends[r],
                 offset(post, r));
    p->post = *post;
    SET(p->posted, number);
    return true;
}

bool f8_emu_all_posted(const f8_emu_member *m, uint64_t number)
{
    for (int r = 0; r < m->ranks; r++)
        if (GET(m->world->place[r].posted) < number)
            return false;
    return true;
}

bool f8_emu_fits(const f8_emu_member *m, const f8_emu_post *post, char *why, size_t room)
{
    static const char *const name[] = {"", "a gather", "a group", "a reduction",
                                       "a reduction to parts"};
    for (int r = 0; r < m->ranks; r++) {
        const f8_emu_post *other = &m->world->place[r].post;
        if (other->kind == post->kind && other->sends[m->rank] == post->receives[r] &&
            other->receives[m->rank] == post->sends[r])
            continue;
        snprintf(why, room, "%s that receives %llu bytes from rank %d, whose is %s that sends %llu",
                 name[post->kind], (unsigned long long)post->receives[r], r, name[other->kind],
                 (unsigned long long)other->sends[m->rank]);
        return false;
    }
    return true;
}

/* From the last rank to the first: the order is the library's own, and nobody may count on it. */
static void take_sum(const f8_emu_member *m, const f8_emu_post *post, float *sum)
{
    const uint64_t bytes = post->receives[0];
    float *one = malloc(bytes + 1);
    if (!one)
        abort();
    for (int r = m->ranks - 1; r >= 0; r--) {
        move(m->file[r], true, one, bytes, offset(&m->world->place[r].post, m->rank));
        for (uint64_t i = 0; i < bytes / sizeof *sum; i++)
            sum[i] = r == m->ranks - 1 ? one[i] : sum[i] + one[i];
    }
    free(one);
}

void f8_emu_take(f8_emu_member *m, uint64_t number, const f8_emu_post *post, void *const *to)
{
    const bool adds = post->kind == F8_EMU_REDUCE || post->kind == F8_EMU_SCATTER;
    if (adds)
        take_sum(m, post, to[0]);
    for (int r = 0; r < m->ranks && !adds; r++)
        move(m->file[r], true, to[r], post->receives[r], offset(&m->world->place[r].post, m->rank));
    SET(m->world->place[m->rank].taken, number);
}

int f8_emu_gone(const f8_emu_member *m, uint64_t number)
{
    if (f8_emu_setting("FP8C_EMULATOR_NCCL_SILENT", 0))
        return -1;
    for (int r = 0; r < m->ranks; r++) {
        const place *p = &m->world->place[r];
        if (GET(p->posted) < number && (GET(p->left) || !lives(p->pid)))
            return r;
    }
    return -1;
}
