/* What a training is given, and how its caller hears of it. The sources of this folder share it.
 *
 * A function that returns bool and takes an `f8_train *` calls `failed` before it returns false,
 * unless its declaration says what false means. */
#ifndef F8_TRAIN_H
#define F8_TRAIN_H

#include "frontend/fp8c_diagnose.h"
#include "frontend/train/data/options.h"
#include "frontend/train/options.h"
#include "frontend/train/ranks/ranks.h"
#include "ir/base/file.h"

/* What a caller does when something happens. `user` is what each function gets; all but `user` must
 * be given. They are called in the thread that calls. */
typedef struct f8_train_call {
    void *user;
    /* Why a call fails: a whole message, without the end of its line. It may come more than once.
     */
    void (*failed)(void *user, f8_status status, const char *text);
    /* What people should know: one or several lines, without the last one's end. */
    void (*say)(void *user, const char *text);
    /* Takes over a record of what happens. false: it or an earlier one could not be written, and
     * the caller says why. Nobody would read how the training ends, so it ends. */
    bool (*record)(void *user, json_t *record);
    /* Why the caller wants the training to stop, as the number of a signal; 0: it does not. */
    int32_t (*stopped)(void *user);
    /* A new context, for f8_train_load and replays, which destroy it. NULL after `failed`. */
    fp8c_context *(*context)(void *user);
} f8_train_call;

/* What is pointed to must live as long as this. */
typedef struct f8_train {
    f8_train_options *options; /* a run that goes on fills in what it has */
    f8_train_call call;
    const char *who;    /* whom messages about options come from: "fp8c train" */
    const char *file;   /* of the model's text */
    const char *source; /* that text; NULL: the file has it */
    fp8c_dim part;      /* of several ranks: a dim, and how much of it this one has; no name: all */
    f8_ranks *ranks;    /* NULL: one process */
    f8_temporaries *list;
    f8_status
        failure; /* the last one; F8_ERR_CANCELLED: a call has stopped, as the caller wished */
} f8_train;

/* ---- failures and words ---- */

/* Whether a call of the API has succeeded. Else says the context's message, but not for
 * FP8C_ERR_CANCELLED: the caller knows that it wanted to stop. */
bool f8_train_ok(f8_train *t, const fp8c_context *ctx, fp8c_status status);
/* The same of a call with a diag. */
bool f8_train_done(f8_train *t, f8_status status, const f8_diag *diag);
/* Gives a record to the caller. */
bool f8_train_record(f8_train *t, json_t *record);
/* Says a whole message, and returns false. */
bool f8_train_fail(f8_train *t, f8_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool f8_train_no_memory(f8_train *t);
void f8_train_say(f8_train *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- the model ---- */

/* Parses t->file in a context, with the dims, this rank's part and the rules of the options. NULL
 * after `failed`. */
fp8c_module *f8_train_parse(f8_train *t, fp8c_context *ctx);
/* The same in a new context. false: there is nothing to destroy. */
bool f8_train_load(f8_train *t, fp8c_context **ctx, fp8c_module **module);
/* An fp8c_write_fn whose `user` is a FILE. */
int f8_write_stream(void *file, const char *text, size_t size);
/* The text of a module, which the caller frees. NULL after `failed`. */
char *f8_train_text(f8_train *t, const fp8c_module *module, size_t *size);

/* ---- data ---- */

/* What the options say of the data, for one of the ranks. The caller adds whom to ask whether to
 * stop, and who needs the data. */
f8_data_options f8_train_data_options(const f8_train_options *o, const f8_ranks *ranks);

/* ---- ranks ---- */

/* Joins the processes that the options or the environment say there are; if these are several,
 * t->ranks becomes `r`. The caller has set own->call. When the ranks are left it destroys own->ctx,
 * also after a failure. */
bool f8_train_join(f8_train *t, f8_ranks *r, f8_ranks_options *own);
/* Divides the dim B of the module among the ranks: t->part. On GPUs it also joins them; then it
 * watches them. */
bool f8_train_divide(f8_train *t, f8_ranks_options *own, const fp8c_module *module);
bool f8_train_on_gpus(const f8_train_options *o);
/* How many processes train together, and whether this one is not their first. */
int f8_train_ranks(const f8_train *t);
bool f8_train_follows(const f8_train *t);
/* Whether any rank wants to stop: all get the same answer at once. With `flag` *flag becomes true
 * if it is on any rank. Also if they can't be asked: t->ranks->lost. */
bool f8_train_stops(f8_train *t, bool *flag);
/* The same as f8_ranks_gather and f8_ranks_agree. */
bool f8_train_gather(f8_train *t, const char *what, const void *mine, void *all, size_t bytes);
bool f8_train_agree(f8_train *t, const char *what, const char *text);
/* Whether all ranks have the same version of fp8c, the same model, and the same options, but for
 * those that each may have for itself. All call it together, when they are joined. The message
 * names an option, say, and a rank that has another value than rank 0. */
bool f8_train_agree_all(f8_train *t, const fp8c_module *module);
/* The same of what a function of f8_ranks says. */
bool f8_train_ranks_done(f8_train *t, f8_status status, const f8_diag *diag);

#endif
