/* Running the fp8c binary as a user does, with its output caught. Every function fails the running
 * Check test on an error of its own. */
#ifndef F8_TEST_CLI_H
#define F8_TEST_CLI_H

#include <stdbool.h>
#include <stddef.h>

/* Valid until the next f8_cli call. code: the exit status, or 128 + the signal. A run that a
 * sanitizer complains about fails the test. */
typedef struct f8_cli_result {
    int code;
    char *out, *err;
    size_t n_out, n_err;
} f8_cli_result;

/* $FP8C, else the fp8c of the build this test belongs to. */
f8_cli_result f8_cli_run(const char *const *args);
/* Until the test ends run fp8c_small_caches instead of fp8c (measure/small_caches.c). */
void f8_cli_use_small_caches(void);
#define F8_CLI(...) f8_cli_run((const char *const[]){__VA_ARGS__, NULL})

/* Fail the test unless the run exited with 0 and said nothing on stderr; or with `code`, saying
 * `message` somewhere there, in few words, and nothing on stdout. */
void f8_cli_ok(f8_cli_result r);
void f8_cli_fails(f8_cli_result r, int code, const char *message);

/* The same with the address space limited to so many bytes. */
f8_cli_result f8_cli_run_within(size_t bytes, const char *const *args);

/* The same with Ctrl-C once it has said `at` on stderr. */
f8_cli_result f8_cli_run_interrupted(const char *at, const char *const *args);

/* The same with signals, each sent once what it waits for is there. An array ends with number 0.
 * Nothing more is sent to a process that ended. */
typedef struct f8_cli_signal {
    int number;
    const char *path,
        *words;            /* the file has the words; path NULL: stderr; words NULL: no waiting */
    const char *temporary; /* instead: the folder has a file that begins so, ends in .tmp, and
                              has bytes */
    long pause;            /* microseconds, then */
    bool caught;           /* the process has a handler for it: before that, nobody can answer */
} f8_cli_signal;
f8_cli_result f8_cli_run_signals(const f8_cli_signal *signals, const char *const *args);

/* The same with a pipe as stdout that nobody reads, and with a full device as stdout. */
f8_cli_result f8_cli_run_unread(const char *const *args);
f8_cli_result f8_cli_run_full(const char *const *args);

/* The same with a pipe as stdout; `out` has F8_CLI_WRITE after what each write wrote. */
enum { F8_CLI_WRITE = '\x1e' };
f8_cli_result f8_cli_run_writes(const char *const *args);

/* The same with a terminal as stderr (whose line ends are \r\n). */
f8_cli_result f8_cli_run_on_terminal(const char *const *args);
f8_cli_result f8_cli_run_to_terminal(const char *const *args); /* as stdout instead */

/* A folder of this test process, removed at its end; NAME inside it (in a few rotating buffers). */
void f8_cli_setup(void);
void f8_cli_teardown(void);
const char *f8_cli_temp(const char *name);
int f8_cli_files(void); /* how many the folder has */
/* Removes a folder with all that it holds, if it is there. */
void f8_cli_forget(const char *folder);
/* Fails the test if a temporary file was left there or below. */
void f8_cli_whole(const char *folder);
const char *f8_cli_write(const char *name, const void *bytes, size_t n); /* gives its path */
/* The same of n bytes of words in an order fixed by a multiplication: more to learn than noise,
 * less than a language. */
const char *f8_cli_write_words(const char *name, size_t n);
char *f8_cli_read(const char *path, size_t *n); /* the caller frees; NUL-terminated */

/* Whether this build has ASan or TSan: address-space limits don't go with them, and time is dear.
 */
bool f8_cli_sanitized(void);

#endif
