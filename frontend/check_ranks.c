/* Whether variables that every rank has whole have the same bits on all. See fp8c_ranks.h.
 *
 * One exchange of 16 bytes compares all of them. Only if it finds a difference, the ranks exchange
 * a hash of each variable and who they are. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "frontend/program.h"

enum { SAID = 8 }; /* ranks that a message names */

/* Who a rank is, for a message. */
typedef struct identity {
    char host[64], device[80];
} identity;

/* What the ranks exchange if they differ, and what they have together. */
typedef struct comparison {
    fp8c_program *program;
    const f8_comm *comm;
    uint32_t n;          /* variables */
    const identity *who; /* by rank; behind it the rank's hashes of the variables */
    size_t stride;
    uint16_t alike[F8_MAX_RANKS]; /* the first rank with the same hashes */
} comparison;

/* ---- hashes ---- */

/* Whether ranks have variable `v` alike. Shards differ. Kept codes follow from the weights, and at
 * ZeRO 3 from a rank's shards of them, so they are not compared. */
static bool is_compared(const fp8c_program *p, uint32_t v)
{
    return p->now->plan.var[v].rows == 0 && !p->var[v].made;
}

/* The hash of a variable of this rank. `room`: for a copy, where the variable is not in host
 * memory. */
static f8_status hash_variable(fp8c_program *p, uint32_t v, void *room, f8_hash *out, f8_diag *diag)
{
    f8_instance *i = &p->now->instance;
    const void *at = i->kind->var(i, v);
    if (!at) {
        F8_TRY(i->kind->read(i, v, room, diag));
        at = room;
    }
    *out = f8_hash_bytes(at, (size_t)f8_type_bytes(&p->now->plan.var[v].type));
    return F8_OK;
}

/* Of variables that are shared the hash is 0. */
static f8_status hash_all(fp8c_program *p, f8_hash *hash, f8_diag *diag)
{
    const f8_plan *plan = &p->now->plan;
    const f8_allocator *a = &p->ctx->allocator;
    size_t most = 1;
    f8_status status = F8_OK;
    for (uint32_t v = 0; v < plan->n_vars; v++)
        if (is_compared(p, v) && (size_t)f8_type_bytes(&plan->var[v].type) > most)
            most = (size_t)f8_type_bytes(&plan->var[v].type);
    void *room = p->now->instance.cuda ? a->alloc(a->user, most, 64) : NULL;
    if (!room && p->now->instance.cuda)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       most);
    for (uint32_t v = 0; v < plan->n_vars && status == F8_OK; v++) {
        hash[v] = (f8_hash){0, 0};
        if (is_compared(p, v))
            status = hash_variable(p, v, room, &hash[v], diag);
    }
    if (room)
        a->free(a->user, room, most);
    return status;
}

/* ---- who differs ---- */

static const f8_hash *hashes_of(const comparison *c, int rank)
{
    return (const f8_hash *)(const void *)((const uint8_t *)c->who + (size_t)rank * c->stride +
                                           sizeof(identity));
}

static const identity *identity_of(const comparison *c, int rank)
{
    return (const identity *)(const void *)((const uint8_t *)c->who + (size_t)rank * c->stride);
}

static void find_alike(comparison *c)
{
    for (int r = 0; r < c->comm->ranks; r++) {
        int first = 0;
        while (first < r && memcmp(hashes_of(c, first), hashes_of(c, r), c->n * sizeof(f8_hash)))
            first++;
        c->alike[r] = (uint16_t)first;
    }
}

/* The rank whose values more than half of the ranks have; -1: there is none. */
static int majority(const comparison *c)
{
    int n[F8_MAX_RANKS] = {0};
    for (int r = 0; r < c->comm->ranks; r++)
        if (2 * ++n[c->alike[r]] > c->comm->ranks)
            return c->alike[r];
    return -1;
}

static void add(char *text, size_t size, const char *words)
{
    const size_t n = strlen(text);
    if (n + 1 < size)
        snprintf(text + n, size - n, "%s", words);
}

/* "rank 2 (host a, GPU 1)". */
static void add_rank(const comparison *c, int rank, char *text, size_t size)
{
    char words[sizeof(identity) + 60];
    const identity *who = identity_of(c, rank);
    snprintf(words, sizeof words, "rank %d (host %.*s, %.*s)", rank, (int)sizeof who->host - 1,
             who->host, (int)sizeof who->device - 1, who->device);
    add(text, size, words);
}

/* "'w'", or "'w' and 3 more variables": those in which two ranks differ. */
static void add_variables(const comparison *c, int rank, int other, char *text, size_t size)
{
    const char *first = "";
    char words[200];
    int n = 0;
    for (uint32_t v = 0; v < c->n; v++)
        if (!f8_hash_equal(hashes_of(c, rank)[v], hashes_of(c, other)[v]) && !n++)
            first = c->program->now->plan.var[v].name;
    snprintf(words, sizeof words, n > 1 ? "'%.120s' and %d more variable%s" : "'%.120s'", first,
             n - 1, n > 2 ? "s" : "");
    add(text, size, words);
}

static f8_status say_odd(const comparison *c, int right, f8_diag *diag)
{
    char text[900] = "";
    int said = 0, odd = 0;
    for (int r = 0; r < c->comm->ranks; r++) {
        if (c->alike[r] == right || odd++ >= SAID)
            continue;
        add(text, sizeof text, said++ ? "; " : "");
        add_rank(c, r, text, sizeof text);
        add(text, sizeof text, " in ");
        add_variables(c, r, right, text, sizeof text);
    }
    if (odd > said)
        snprintf(text + strlen(text), sizeof text - strlen(text), "; %d more ranks", odd - said);
    return f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "%s other bits than the other %d ranks of %d: %s",
                   odd == 1 ? "one rank has" : "some ranks have", c->comm->ranks - odd,
                   c->comm->ranks, text);
}

static f8_status say_all(const comparison *c, f8_diag *diag)
{
    char text[900] = "";
    int other = 1, said = 0;
    while (c->alike[other] == 0)
        other++;
    for (int r = 0; r < c->comm->ranks && said < SAID; r++) {
        add(text, sizeof text, said++ ? ", " : "");
        add_rank(c, r, text, sizeof text);
    }
    add(text, sizeof text, c->comm->ranks > said ? " and others differ in " : " differ in ");
    add_variables(c, 0, other, text, sizeof text);
    return f8_fail(diag, F8_ERR_IO, F8_NOWHERE,
                   "%s: no bits are those of most ranks, so it is not known who is wrong", text);
}

/* ---- the check ---- */

static void identify(const fp8c_program *p, identity *out)
{
    f8_cuda_facts facts;
    f8_diag diag = {0};
    *out = (identity){.host = "?", .device = "CPU"};
    if (gethostname(out->host, sizeof out->host))
        snprintf(out->host, sizeof out->host, "?");
    out->host[sizeof out->host - 1] = 0;
    if (!p->now->instance.cuda)
        return;
    if (f8_cuda_device_facts(p->cuda, &facts, &diag) != F8_OK)
        facts.name[0] = 0;
    snprintf(out->device, sizeof out->device, "GPU %d%s%.48s", (int)p->run.device,
             *facts.name ? " " : "", facts.name);
}

/* The ranks differ: finds out which, and in what. */
static f8_status explain(fp8c_program *p, const f8_comm *comm, const f8_hash *hash, f8_diag *diag)
{
    const f8_allocator *a = &p->ctx->allocator;
    comparison c = {.program = p, .comm = comm, .n = p->now->plan.n_vars};
    const size_t hashes = c.n * sizeof *hash;
    c.stride = sizeof(identity) + hashes;
    const size_t room = c.stride * ((size_t)comm->ranks + 1);
    uint8_t *all = a->alloc(a->user, room, 64);
    if (!all)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "ranks have other bits in their variables, and to tell which %zu bytes of "
                       "memory were wanted",
                       room);
    uint8_t *own = all + c.stride * (size_t)comm->ranks;
    identify(p, (identity *)(void *)own);
    memcpy(own + sizeof(identity), hash, hashes);
    c.who = (const identity *)(const void *)all;
    f8_status status =
        f8_comm_gather(comm, "hashes of all variables", own, all, (int64_t)c.stride, diag);
    if (status == F8_OK) {
        find_alike(&c);
        const int right = majority(&c);
        status = right >= 0 ? say_odd(&c, right, diag) : say_all(&c, diag);
    }
    a->free(a->user, all, room);
    return status;
}

static f8_status check_ranks(fp8c_program *p, const f8_comm *comm, f8_hash *hash, f8_diag *diag)
{
    f8_hash all[F8_MAX_RANKS];
    f8_diag own = {0};
    /* A rank that can't say what it has takes part all the same, or the others would wait. */
    const f8_status hashed = hash_all(p, hash, &own);
    const f8_hash mine =
        hashed == F8_OK ? f8_hash_bytes(hash, p->now->plan.n_vars * sizeof *hash) : (f8_hash){0, 0};
    const f8_status gathered =
        f8_comm_gather(comm, "hash of the variables", &mine, all, sizeof mine, diag);
    if (hashed != F8_OK)
        return f8_fail(diag, hashed, F8_NOWHERE, "%s", own.text);
    F8_TRY(gathered);
    for (int r = 0; r < comm->ranks; r++)
        if (!all[r].lo && !all[r].hi)
            return f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "rank %d can't read its variables", r);
    for (int r = 1; r < comm->ranks; r++)
        if (!f8_hash_equal(all[r], all[0]))
            return explain(p, comm, hash, diag);
    return F8_OK;
}

fp8c_status fp8c_program_check_ranks(fp8c_program *p)
{
    f8_diag diag = {0};
    const f8_comm *comm = f8_program_comm(p);
    const f8_allocator *a = &p->ctx->allocator;
    if (!comm || comm->ranks == 1)
        return FP8C_OK;
    const size_t room = (p->now->plan.n_vars + 1) * sizeof(f8_hash);
    f8_status status = f8_program_has_memory(p, &diag);
    if (status == F8_OK)
        status = f8_variables_bound(p, &diag);
    if (status == F8_OK)
        status = f8_sums_settle(p, &diag);
    f8_hash *hash = status == F8_OK ? a->alloc(a->user, room, 16) : NULL;
    if (status == F8_OK && !hash)
        status =
            f8_fail(&diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted", room);
    if (status == F8_OK)
        status = check_ranks(p, comm, hash, &diag);
    if (hash)
        a->free(a->user, hash, room);
    return f8_api_result(p->ctx, &diag, status);
}
