/* See codec_run.h. */
#include "tests/shared/num/codec_run.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/num/fp8.h"

void codec_of_ir(const codec_way *way, const uint32_t *in, uint8_t *code)
{
    for (size_t i = 0; i < CODEC_CHUNK; i++)
        code[i] = (uint8_t)f8_encode(way->format, f8_from_bits(in[i]), way->saturate);
}

void codec_of_oracle(const codec_way *way, const uint32_t *in, uint8_t *code)
{
    codec_oracle o;
    codec_oracle_make(&o, way);
    codec_oracle_codes(&o, in, CODEC_CHUNK, code);
}

/* ---- tallies ---- */

void codec_tally_add(codec_tally *t, const uint32_t *in, const uint8_t *got, const uint8_t *want,
                     size_t n)
{
    t->inputs += n;
    if (!memcmp(got, want, n))
        return;
    for (size_t i = 0; i < n; i++) {
        if (got[i] == want[i])
            continue;
        if (!t->wrong++)
            t->bits = in[i], t->got = got[i], t->want = want[i];
    }
}

void codec_tally_check(const codec_tally *t, const char *who, const codec_way *way)
{
    printf("%s, %s: %" PRIu64 " inputs, %" PRIu64 " wrong\n", who, way->name, t->inputs, t->wrong);
    fflush(stdout);
    ck_assert_uint_eq(t->inputs, (uint64_t)codec_chunks() * CODEC_CHUNK);
    ck_assert_msg(!t->wrong, "%s, %s: %08x gives %02x, not %02x", who, way->name, t->bits, t->got,
                  t->want);
}

/* ---- on every CPU ---- */

typedef struct job {
    const codec_way *way;
    codec_fn *got, *want;
    atomic_uint next;
} job;

typedef struct worker {
    job *job;
    codec_tally tally;
    uint32_t in[CODEC_CHUNK];
    uint8_t got[CODEC_CHUNK], want[CODEC_CHUNK];
} worker;

static void *work(void *p)
{
    worker *w = p;
    job *j = w->job;
    for (uint32_t chunk; (chunk = atomic_fetch_add(&j->next, 1)) < codec_chunks();) {
        codec_inputs(chunk, w->in);
        j->got(j->way, w->in, w->got);
        j->want(j->way, w->in, w->want);
        codec_tally_add(&w->tally, w->in, w->got, w->want, CODEC_CHUNK);
    }
    return NULL;
}

void codec_compare(const char *who, const codec_way *way, codec_fn *got, codec_fn *want)
{
    enum { MOST = 64 };
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = cpus < 1 ? 1 : cpus > MOST ? MOST : (int)cpus;
    job j = {.way = way, .got = got, .want = want};
    pthread_t thread[MOST];
    worker *w = calloc((size_t)n, sizeof *w);
    ck_assert_ptr_nonnull(w);
    for (int i = 0; i < n; i++) {
        w[i].job = &j;
        ck_assert(!pthread_create(&thread[i], NULL, work, &w[i]));
    }
    codec_tally all = {0};
    for (int i = 0; i < n; i++) {
        ck_assert(!pthread_join(thread[i], NULL));
        const codec_tally *t = &w[i].tally, first = all.wrong ? all : *t;
        all = (codec_tally){all.inputs + t->inputs, all.wrong + t->wrong, first.bits, first.got,
                            first.want};
    }
    free(w);
    codec_tally_check(&all, who, way);
}

Suite *codec_suite(Suite *s, TCase *t)
{
    printf("seed %u\n", codec_seed);
    tcase_set_timeout(t, codec_all() ? 0 : 120);
    suite_add_tcase(s, t);
    return s;
}
