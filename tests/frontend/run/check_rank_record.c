/* Records of ranks: what is read is what was written, and a half one is recognised. */
#include "frontend/run/ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/suite.h"

static char folder[64], path[128];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fp8c_record_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/0", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void make(f8_rank_file *f)
{
    f8_diag diag = {0};
    ck_assert_msg(f8_rank_create(f, path, "rank 0 of 2, host a", &diag) == F8_OK, "%s", diag.text);
}

static void look(f8_rank_file *f)
{
    f8_diag diag = {0};
    ck_assert_msg(f8_rank_open(f, path, &diag) == F8_OK, "%s", diag.text);
}

/* A record whose fields all follow from its number. */
static f8_rank_at record_of(uint64_t n, char name[F8_RANK_TEXT])
{
    snprintf(name, F8_RANK_TEXT, "grad.%llu .. %0*llu", (unsigned long long)n, (int)(n % 40) + 1,
             (unsigned long long)n);
    return (f8_rank_at){.number = n,
                        .op = n % 2 ? "all_gather" : "all_to_all",
                        .function = n % 3 ? "micro_step" : NULL,
                        .name = name,
                        .bytes = (int64_t)n * 4,
                        .step = (int64_t)n / 10,
                        .micro_step = (int64_t)n % 10,
                        .time = 1.5 + (double)n};
}

static void is(const f8_rank_at *got, uint64_t n)
{
    char name[F8_RANK_TEXT];
    const f8_rank_at want = record_of(n, name);
    ck_assert_uint_eq(got->number, n);
    ck_assert_str_eq(got->op, want.op);
    ck_assert_str_eq(got->function, want.function ? want.function : "-");
    ck_assert_str_eq(got->name, want.name);
    ck_assert_int_eq(got->bytes, want.bytes);
    ck_assert_int_eq(got->step, want.step);
    ck_assert_int_eq(got->micro_step, want.micro_step);
    ck_assert_double_eq(got->time, want.time);
}

START_TEST(written_and_read)
{
    f8_rank_file own, other;
    f8_rank_at at;
    char name[F8_RANK_TEXT], who[100];
    make(&own);
    look(&other);
    f8_rank_who(&other, who, sizeof who);
    ck_assert_str_eq(who, "rank 0 of 2, host a");
    ck_assert(!f8_rank_read(&other, &at));
    for (uint64_t n = 1; n < 300; n += 1 + n % 2) {
        const f8_rank_at next = record_of(n, name);
        f8_rank_write(&own, &next);
        ck_assert(f8_rank_read(&other, &at));
        is(&at, n);
        ck_assert_int_eq(at.state, F8_RANK_WAITS);
        for (f8_rank_state s = F8_RANK_ENDED; s <= F8_RANK_FAILED; s++) {
            f8_rank_become(&own, s);
            ck_assert(f8_rank_read(&other, &at));
            is(&at, n);
            ck_assert_int_eq(at.state, s);
        }
    }
    f8_rank_close(&own);
    ck_assert(f8_rank_read(&other, &at)); /* it outlives its writer */
    is(&at, 299);
    f8_rank_close(&other);
}
END_TEST

/* A text as long as the record, and a name that would not fit. */
START_TEST(long_names)
{
    f8_rank_file own;
    f8_rank_at at;
    char name[600];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    make(&own);
    f8_rank_write(&own, &(f8_rank_at){.number = UINT64_MAX,
                                      .op = "all_to_all",
                                      .function = name,
                                      .name = name,
                                      .bytes = INT64_MAX,
                                      .step = INT64_MAX,
                                      .micro_step = INT64_MAX,
                                      .time = 1e15});
    ck_assert(f8_rank_read(&own, &at));
    ck_assert_uint_eq(at.number, UINT64_MAX);
    ck_assert_int_eq(at.bytes, INT64_MAX);
    ck_assert_uint_ge(strlen(at.name), 100);
    ck_assert_uint_eq(strspn(at.name, "x"), strlen(at.name));
    f8_rank_close(&own);
}
END_TEST

/* A writer that was killed inside a record: at each byte of the file, what differs between the file
 * before and after a record was or was not written yet, in the order in which it is written. */
START_TEST(half_records)
{
    enum { SIZE = 1536, RECORD = 512 };
    f8_rank_file own;
    f8_rank_at at;
    unsigned char before[SIZE], after[SIZE], half[SIZE];
    char name[F8_RANK_TEXT];
    make(&own);
    for (uint64_t n = 11; n <= 12; n++) {
        const f8_rank_at next = record_of(n, name);
        f8_rank_write(&own, &next);
    }
    memcpy(before, own.bytes, SIZE);
    const f8_rank_at next = record_of(13, name);
    f8_rank_write(&own, &next);
    memcpy(after, own.bytes, SIZE);
    int first = 0;
    while (before[first] == after[first])
        first++;
    const int record = first / RECORD * RECORD;
    for (int done = 0; done < RECORD; done++) { /* the word at the end, the text, the first word */
        memcpy(half, before, SIZE);
        memcpy(half + record + RECORD - 8, after + record + RECORD - 8,
               (size_t)(done < 8 ? done : 8));
        if (done > 8)
            memcpy(half + record + 8, after + record + 8, (size_t)(done - 8));
        memcpy(own.bytes, half, SIZE);
        ck_assert(f8_rank_read(&own, &at));
        is(&at, 12);
    }
    memcpy(own.bytes, after, SIZE);
    ck_assert(f8_rank_read(&own, &at));
    is(&at, 13);
    f8_rank_close(&own);
}
END_TEST

START_TEST(no_record)
{
    f8_rank_file f;
    f8_diag diag = {0};
    ck_assert_int_eq(f8_rank_open(&f, path, &diag), F8_ERR_IO);
    ck_assert_ptr_null(f.bytes);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_eq(write(fd, "x", 1), 1);
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_rank_open(&f, path, &diag), F8_ERR_INPUT);
    ck_assert_int_eq(ftruncate(fd, 1536), 0);
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_rank_open(&f, path, &diag), F8_ERR_INPUT);
    close(fd);
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_rank_create(&f, path, "rank 0", &diag), F8_ERR_IO); /* it is there */
    ck_assert_ptr_nonnull(strstr(diag.text, "File exists"));
}
END_TEST

/* ---- a reader beside the writer ---- */

static atomic_bool over;

static void *write_all(void *user)
{
    char name[F8_RANK_TEXT];
    for (uint64_t n = 2; n < 30000; n++) {
        const f8_rank_at next = record_of(n, name);
        f8_rank_write(user, &next);
    }
    over = true;
    return NULL;
}

START_TEST(beside_a_writer)
{
    f8_rank_file own, other;
    f8_rank_at at;
    pthread_t thread;
    char name[F8_RANK_TEXT];
    uint64_t last = 0;
    make(&own);
    look(&other);
    const f8_rank_at first = record_of(1, name);
    f8_rank_write(&own, &first);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_all, &own), 0);
    while (!over) {
        if (!f8_rank_read(&other, &at))
            continue;
        is(&at, at.number);
        ck_assert_uint_ge(at.number + 1, last); /* it may be the one before */
        last = at.number;
    }
    pthread_join(thread, NULL);
    ck_assert(f8_rank_read(&other, &at));
    is(&at, 29999);
    f8_rank_close(&own);
    f8_rank_close(&other);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("rank_record");
    TCase *c = tcase_create("records");
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, written_and_read);
    tcase_add_test(c, long_names);
    tcase_add_test(c, half_records);
    tcase_add_test(c, no_record);
    tcase_add_test(c, beside_a_writer);
    suite_add_tcase(s, c);
    return s;
}
