/* Stands before MPI in one rank (LD_PRELOAD): the process stops, or a call fails, while ranks join.
 *
 *     FP8C_TEST_MPI=stop:MPI_Comm_dup       this call stops the process
 *     FP8C_TEST_MPI=fail:MPI_Comm_dup       it returns an error, as where memory ran out
 *     FP8C_TEST_MPI=stop:MPI_Iallgather:N   the Nth call of this one
 *
 * MPI's own header is not needed: handles and pointers are passed on as they are. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { AN_ERROR = 34 /* an error class of each MPI */ };

typedef void *word;
EXPORT int MPI_Comm_dup(word comm, word *out);
EXPORT int MPI_Iallgather(word send, int n, word type, word receive, int m, word other, word comm,
                          word *request);
EXPORT int MPI_Finalize(void);

/* Whether this call is the one. Does not return from a stop before somebody continues the process.
 */
static int is_it(const char *call, int number)
{
    char kind[8] = "", name[32] = "";
    int which = 1;
    const char *asked = getenv("FP8C_TEST_MPI");
    if (!asked || sscanf(asked, "%7[^:]:%31[^:]:%d", kind, name, &which) < 2)
        abort(); /* the test is wrong */
    if (strcmp(name, call) || number != which)
        return 0;
    if (!strcmp(kind, "stop"))
        raise(SIGSTOP);
    return 1;
}

static void *real(const char *name)
{
    static const char *const files[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12"};
    void *library = NULL;
    for (int i = 0; i < 3 && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol)
        abort();
    return symbol;
}

int MPI_Comm_dup(word comm, word *out)
{
    static int number;
    int (*call)(word, word *);
    if (is_it("MPI_Comm_dup", ++number))
        return AN_ERROR;
    void *symbol = real("PMPI_Comm_dup");
    memcpy(&call, &symbol, sizeof call);
    return call(comm, out);
}

int MPI_Finalize(void)
{
    static int number;
    int (*call)(void);
    if (is_it("MPI_Finalize", ++number))
        return AN_ERROR;
    void *symbol = real("PMPI_Finalize");
    memcpy(&call, &symbol, sizeof call);
    return call();
}

int MPI_Iallgather(word send, int n, word type, word receive, int m, word other, word comm,
                   word *request)
{
    static int number;
    int (*call)(word, int, word, word, int, word, word, word *);
    if (is_it("MPI_Iallgather", ++number))
        return AN_ERROR;
    void *symbol = real("PMPI_Iallgather");
    memcpy(&call, &symbol, sizeof call);
    return call(send, n, type, receive, m, other, comm, request);
}
