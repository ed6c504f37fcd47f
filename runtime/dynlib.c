/* Loading libraries at run time: see dynlib.h. */
#include "runtime/dynlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A table of function pointers is filled as an array of void *: POSIX makes them alike. */
_Static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym returns function pointers");

f8_status f8_dynlib_open(const char *what, const char *const *names, f8_dynlib *out, f8_diag *diag)
{
    char tried[256] = "";
    size_t used = 0;
    *out = (f8_dynlib){0};
    for (int i = 0; names[i]; i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle) {
            *out = (f8_dynlib){handle, names[i]};
            return F8_OK;
        }
        int n = snprintf(tried + used, sizeof tried - used, "%s%s", i ? ", " : "", names[i]);
        if (n > 0)
            used = used + (size_t)n < sizeof tried ? used + (size_t)n : sizeof tried - 1;
    }
    const char *reason = dlerror();
    return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "can't load %s: tried %s (%s)", what, tried,
                   reason ? reason : "no names were given");
}

void f8_dynlib_close(f8_dynlib *lib)
{
    if (lib->handle)
        dlclose(lib->handle);
    *lib = (f8_dynlib){0};
}

void *f8_dynlib_find(const f8_dynlib *lib, const char *symbol)
{
    return lib->handle ? dlsym(lib->handle, symbol) : NULL;
}

f8_status f8_dynlib_symbols(const f8_dynlib *lib, const char *const *names, size_t count,
                            void *table, f8_diag *diag)
{
    for (size_t i = 0; i < count; i++) {
        void *address = f8_dynlib_find(lib, names[i]);
        if (!address)
            return f8_fail(diag, F8_ERR_LIBRARY, F8_NOWHERE, "%s has no symbol %s",
                           lib->name ? lib->name : "(no library)", names[i]);
        memcpy((char *)table + i * sizeof address, &address, sizeof address);
    }
    return F8_OK;
}
