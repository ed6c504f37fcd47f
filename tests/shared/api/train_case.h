/* For tests that run `fp8c train` many times: a model that compiles fast, a text to train it on,
 * places for the folders of two runs, and a small GPT. */
#ifndef TEST_TRAIN_CASE_H
#define TEST_TRAIN_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/shared/api/cli.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

enum { PATH = 4096, TEXT = 6000 }; /* bytes */

static char file[PATH], data[PATH];       /* paths of the model and of the text */
static char straight[PATH], folder[PATH]; /* of folders for runs, which train makes */

/* Makes a folder with the model, the text and, where tests share no cache of kernels, such a cache,
 * so that each kernel is compiled once. `fields` are those of the optimizer beside clip. A step takes A micro-steps. */
static inline void train_setup(const char *fields)
{
    char model[1000];
    const int n =
        snprintf(model, sizeof model,
                 "module m\n"
                 "dim B = 2, T = 16, C = 16, V = 128, A = 1\n"
                 "param wte: f32[V, C] normal(0.02)\n"
                 "param up: f32[C, C] normal(0.02)\n"
                 "func forward(%%tokens: i32[B, T], %%targets: i32[B, T]) -> (%%loss: f32[]) {\n"
                 "  %%y = linear(embedding(wte, %%tokens), up)\n"
                 "  return cross_entropy(linear(%%y, wte) {transpose_b = true, name = \"head\"}, "
                 "%%targets)\n"
                 "}\n"
                 "optimizer adamw {clip = 1, %s}\n"
                 "accumulate A\n",
                 fields);
    f8_cli_setup();
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 0);
    unsetenv("FP8C_VERBOSE");
    snprintf(file, sizeof file, "%s", f8_cli_write("m.f8", model, (size_t)n));
    snprintf(data, sizeof data, "%s", f8_cli_write_words("text", TEXT));
    snprintf(straight, sizeof straight, "%s", f8_cli_temp("straight"));
    snprintf(folder, sizeof folder, "%s", f8_cli_temp("run"));
}

static inline void train_teardown(void)
{
    f8_cli_forget(straight);
    f8_cli_forget(folder);
    f8_cli_forget(f8_cli_temp("cache"));
    f8_cli_teardown();
}

/* The path of a file in a folder. It holds until the call after the next one. */
static inline const char *in(const char *of, const char *name)
{
    static char path[2][PATH + 300];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", of, name);
    return path[turn];
}

static inline bool there(const char *of, const char *name)
{
    struct stat s;
    return !stat(in(of, name), &s);
}

#endif
