/* Libraries found at run time: one of several names is loaded, and a table of its functions is
 * filled.
 *
 * One X-macro for each library lists the functions that are wanted. It makes both the type of the
 * table and the list of names (the library's own headers give the types):
 *
 *     #define FOO_SYMBOLS(X) X(foo_open) X(foo_close)
 *     typedef struct foo_api { FOO_SYMBOLS(F8_DYNLIB_FIELD) } foo_api;
 *     static const char *const foo_names[] = {FOO_SYMBOLS(F8_DYNLIB_NAME)};
 *     f8_dynlib_symbols(lib, foo_names, sizeof foo_names / sizeof *foo_names, &api, diag); */
#ifndef F8_DYNLIB_H
#define F8_DYNLIB_H

#include "ir/base/status.h"

#define F8_DYNLIB_FIELD(symbol) __typeof__(&symbol) symbol;
#define F8_DYNLIB_NAME(symbol)  #symbol,

/* A loaded library. It stays mapped until the process ends, even when it is closed: libraries with
 * thread-local state (OpenMP runtimes, LLVM) leave destructors behind that outlive the last user.
 */
typedef struct f8_dynlib {
    void *handle;
    const char *name; /* the file name that was found; borrowed from f8_dynlib_open's list */
    const char *refused; /* of f8_dynlib_search: "; FILE does not load (reason)" of each file that
                            is there and was passed over; NULL: none. The arena's */
} f8_dynlib;

/* Loads the first of `names` that loads (NULL-terminated; sonames or absolute paths; the strings
 * outlive the library). `what` is for people: "oneDNN 2". F8_ERR_LIBRARY has every name that was
 * tried and the loader's last reason. F8_ERR_MEMORY: there was no memory to map one of them. */
f8_status f8_dynlib_open(const char *what, const char *const *names, f8_dynlib *out, f8_diag *diag);

/* The same over a list of folders (NULL-terminated), with every name in each folder in turn. A
 * folder may be a glob(3) pattern; of its matches the last in alphabetical order comes first. "" is
 * the loader's own path. A relative folder is passed over, and the message says so. out->name is
 * the full path of the file. On F8_ERR_LIBRARY *why is the whole message, however long: the names,
 * every folder as given, and why a file that exists did not load. The arena owns both. */
f8_status f8_dynlib_search(const char *what, const char *const *names, const char *const *folders,
                           f8_arena *arena, f8_dynlib *out, const char **why, f8_diag *diag);

/* The files of these names (glob(3) patterns, too) in these folders, loaded or not, in the order in
 * which f8_dynlib_search looks. A file is listed once, whatever links lead to it. "" stands for the
 * folders that the loader would search (without its cache). For reports on other copies. */
typedef struct f8_dynlib_file {
    const char *path; /* as it was found; the arena's */
    const char *real; /* after following links: often has the whole version in its name */
    uint64_t device, inode;
    int64_t bytes;
} f8_dynlib_file;
f8_status f8_dynlib_files(const char *const *names, const char *const *folders, f8_arena *arena,
                          f8_dynlib_file **out, size_t *n, f8_diag *diag);
/* Whether a folder of such a list is looked in: it is absolute, or "". */
static inline bool f8_dynlib_looks_in(const char *folder)
{
    return !*folder || *folder == '/';
}
/* The folder of the program or library that this code is in, whatever name it was started by:
 * absolute, with links followed. NULL: /proc does not say, or memory ran out. The arena's. */
const char *f8_dynlib_own_folder(f8_arena *arena);
/* Whether two paths lead to one file. */
bool f8_dynlib_same(const char *a, const char *b);
/* The path of a library that this process has mapped: the first whose file name begins with
 * `begins` and that is not `known` (may be NULL). NULL if there is none. The arena's. */
const char *f8_dynlib_mapped(const char *begins, const char *known, f8_arena *arena);

void f8_dynlib_close(f8_dynlib *lib);

/* The address of one symbol, or NULL. */
void *f8_dynlib_find(const f8_dynlib *lib, const char *symbol);

/* Fills `table`, a struct of `count` function pointers in the order of `names`. F8_ERR_LIBRARY
 * names the first that is missing; the table is then unspecified. */
f8_status f8_dynlib_symbols(const f8_dynlib *lib, const char *const *names, size_t count,
                            void *table, f8_diag *diag);

#endif
