/* Components: what all have in common, and those that no GPU needs. See component.h. */
#include "runtime/probe/component.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include "runtime/comm/mpi.h"
#include "runtime/cpu/gemm_onednn.h"

f8_component *f8_component_add(f8_components *all, const char *kind, const char *name,
                               const char *enables, const char *get)
{
    if (all->before)
        all->before(all->user, name);
    f8_component *c = F8_NEW(all->arena, f8_component), **grown;
    grown = f8_arena_grow(all->arena, all->item, all->n, &all->room, all->n + 1, sizeof *grown);
    if (grown && c) {
        all->item = grown;
        grown[all->n++] = c;
    } else {
        c = &all->lost;
    }
    *c = (f8_component){.name = name,
                        .kind = kind,
                        .state = F8_COMPONENT_MISSING,
                        .problem = "found nowhere",
                        .enables = enables,
                        .places = "",
                        .get = get};
    return c;
}

void f8_component_ok(f8_component *c)
{
    c->state = F8_COMPONENT_OK;
    c->usable = true;
    c->problem = NULL;
}

void f8_component_fail(f8_component *c, f8_component_state state, const char *problem)
{
    c->state = state;
    c->usable = false;
    c->problem = problem ? problem : "out of memory";
}

f8_component *f8_component_find(f8_components *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->item[i]->name, name))
            return all->item[i];
    return NULL;
}

const char *f8_component_also(f8_arena *arena, const char *text, const char *more)
{
    return text ? f8_arena_printf(arena, "%s; %s", text, more) : more;
}

static const char *join(f8_arena *arena, const char *const *items, const char *empty)
{
    const char *text = "";
    for (int i = 0; items[i] && text; i++)
        text = f8_arena_printf(arena, "%s%s%s", text, i ? ", " : "", *items[i] ? items[i] : empty);
    return text ? text : "";
}

const char *f8_component_places(f8_arena *arena, const char *const *names,
                                const char *const *folders)
{
    const char *text = f8_arena_printf(arena, "%s in %s", join(arena, names, ""),
                                       join(arena, folders, "the loader's path"));
    return text ? text : "";
}

/* ---- copies ---- */

static const char *describe_file(f8_arena *arena, const f8_dynlib_file *f)
{
    const char *text =
        strcmp(f->path, f->real) ? f8_arena_printf(arena, "%s (%s)", f->path, f->real) : f->path;
    return text ? text : "";
}

static void note_files(f8_components *all, f8_component *c, const f8_dynlib_file *file, size_t n)
{
    enum { SHOWN = 6 };
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        const char *text =
            f8_arena_printf(all->arena, "not used: %s", describe_file(all->arena, &file[i]));
        c->note = f8_component_also(all->arena, c->note, text ? text : "");
    }
}

/* Reports a second mapped copy: each copy has state of its own, and chance decides which one serves
 * a call. */
static void look_for_twins(f8_components *all, f8_component *c, const char *soname)
{
    const char *so = strstr(soname, ".so");
    const char *begins =
        f8_arena_strndup(all->arena, soname, so ? (size_t)(so - soname) + 3 : strlen(soname));
    const char *twin = begins && c->path ? f8_dynlib_mapped(begins, c->path, all->arena) : NULL;
    if (!twin)
        return;
    c->state = F8_COMPONENT_MISMATCHED;
    c->problem = f8_arena_printf(all->arena, "another copy is in this process: %s", twin);
}

void f8_component_copies(f8_components *all, f8_component *c, const char *const *names,
                         const char *const *folders, const char *const *others, const char *refused)
{
    f8_dynlib_file *file;
    size_t n;
    c->places = f8_component_places(all->arena, names, folders);
    if (f8_dynlib_files(names, folders, all->arena, &file, &n, NULL) != F8_OK)
        return;
    if (c->path) {
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (!f8_dynlib_same(file[i].path, c->path))
                file[kept++] = file[i];
        note_files(all, c, file, kept);
        if (refused)
            c->note = f8_component_also(all->arena, c->note, refused + 2);
        look_for_twins(all, c, names[0]);
        return;
    }
    if (refused) {
        f8_component_fail(c, F8_COMPONENT_REFUSED, refused + 2); /* behind "; " */
        return;
    }
    if (others && f8_dynlib_files(others, folders, all->arena, &file, &n, NULL) == F8_OK && n) {
        c->state = F8_COMPONENT_VERSION;
        c->problem =
            f8_arena_printf(all->arena, "%s is needed; there is %s", join(all->arena, names, ""),
                            describe_file(all->arena, &file[0]));
        note_files(all, c, file + 1, n - 1);
    }
}

bool f8_component_search(f8_components *all, f8_component *c, const char *const *names,
                         const char *const *folders, const char *const *others, f8_dynlib *lib)
{
    const char *why;
    const f8_status status = f8_dynlib_search(c->name, names, folders, all->arena, lib, &why, NULL);
    if (status == F8_OK) {
        f8_component_ok(c);
        c->path = lib->name;
    }
    f8_component_copies(all, c, names, folders, others, lib->refused);
    return status == F8_OK;
}

/* ---- oneDNN ---- */

void f8_components_onednn(f8_components *all, const f8_allocator *allocator)
{
    static const char *const names[] = {"libdnnl.so.2", NULL}, *const folders[] = {"", NULL},
                             *const others[] = {"libdnnl.so.[0-9]", "libdnnl.so.[0-9].[0-9]*",
                                                NULL};
    f8_component *c =
        f8_component_add(all, "cpu", "oneDNN 2", "GEMMs of target cpu", "Debian package libdnnl2");
    f8_dynlib lib;
    if (!f8_component_search(all, c, names, folders, others, &lib))
        return;
    const dnnl_version_t *(*version)(void);
    void *symbol = f8_dynlib_find(&lib, "dnnl_version");
    memcpy(&version, &symbol, sizeof symbol);
    const dnnl_version_t *v = version ? version() : NULL;
    f8_onednn *dnn;
    f8_diag d = {0};
    const f8_status status = f8_onednn_create(allocator, &dnn, &d);
    if (v) {
        c->major = v->major;
        c->version = f8_arena_printf(all->arena, "%d.%d.%d%s", v->major, v->minor, v->patch,
                                     status != F8_OK               ? ""
                                     : f8_onednn_has_amx_bf16(dnn) ? ", uses AMX"
                                     : f8_onednn_has_bf16(dnn)     ? ", uses AVX512_BF16"
                                                                   : "");
    }
    if (status != F8_OK)
        f8_component_fail(
            c, v && v->major == 2 && v->minor < 5 ? F8_COMPONENT_VERSION : F8_COMPONENT_REFUSED,
            f8_arena_strdup(all->arena, d.text));
    f8_onednn_destroy(dnn);
    f8_dynlib_close(&lib);
}

/* ---- MPI, SQLite ---- */

/* The library behind the shim, which has found it. */
static void ask_mpi(f8_components *all, f8_component *c, const f8_dynlib *shim)
{
    enum { ROOM = 8192 }; /* MPI_MAX_LIBRARY_VERSION_STRING: 256 of Open MPI, 8192 of MPICH */
    int (*version)(char *text, int *length); /* may be called before MPI_Init */
    void *symbol = f8_dynlib_find(shim, "MPI_Get_library_version");
    char *text = f8_arena_array(all->arena, ROOM + 1, 1);
    int length = 0;
    Dl_info info;
    memcpy(&version, &symbol, sizeof symbol);
    if (!text)
        return;
    if (!version || version(text, &length) != 0) {
        f8_component_fail(c, F8_COMPONENT_REFUSED,
                          version ? "MPI_Get_library_version fails"
                                  : "it has no MPI_Get_library_version: older than MPI 3.0");
        return;
    }
    text[strcspn(text, "\n")] = '\0';
    c->version = text;
    if (dladdr(symbol, &info) && info.dli_fname)
        c->path = f8_arena_strdup(all->arena, info.dli_fname);
}

/* MPI is used through a shim alone, so the shim is what is tried. */
static void mpi(f8_components *all)
{
    static const char *const libraries[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", NULL},
                             *const others[] = {"libmpi.so.[0-9]*", "libmpich.so.[0-9]*", NULL},
                             *const folders[] = {"",
                                                 "/usr/lib/x86_64-linux-gnu/openmpi/lib",
                                                 "/usr/lib/x86_64-linux-gnu/mpich/lib",
                                                 "/usr/lib64/openmpi/lib",
                                                 "/usr/lib64/mpich/lib",
                                                 NULL};
    f8_component *c =
        f8_component_add(all, "more", "MPI", "training with several processes, on CPUs",
                         "Debian package libopenmpi3, or libmpich12");
    f8_mpi_places at;
    f8_dynlib shim;
    f8_dynlib_file *file;
    size_t n;
    f8_diag diag = {0};
    if (f8_mpi_find(NULL, all->arena, &at, &diag) != F8_OK) {
        f8_component_fail(c, F8_COMPONENT_REFUSED, f8_arena_strdup(all->arena, diag.text));
        return;
    }
    if (f8_component_search(all, c, at.name, at.folder, NULL, &shim)) {
        const char *why = f8_mpi_refused(&shim, all->arena);
        c->note = f8_arena_printf(all->arena, "used through %s", shim.name);
        if (why)
            f8_component_fail(c, F8_COMPONENT_REFUSED, why);
        else
            ask_mpi(all, c, &shim);
        const char *places = c->places;
        if (c->usable) /* other copies of MPI itself */
            f8_component_copies(all, c, libraries, folders, NULL, NULL);
        c->places = places;
        f8_dynlib_close(&shim);
    } else if (c->state == F8_COMPONENT_MISSING &&
               f8_dynlib_files(others, folders, all->arena, &file, &n, NULL) == F8_OK && n) {
        c->problem =
            f8_arena_printf(all->arena, "there is %s, but fp8c has no shim for it (%s, %s)",
                            file[0].path, at.name[0], at.name[1]);
        c->get = "fp8c built where mpi.h is (Debian package libopenmpi-dev, or libmpich-dev)";
    }
}

static void ask_sqlite(f8_components *all, f8_component *c, const f8_dynlib *lib)
{
    const char *(*version)(void);
    void *symbol = f8_dynlib_find(lib, "sqlite3_libversion");
    memcpy(&version, &symbol, sizeof symbol);
    c->version = version ? f8_arena_strdup(all->arena, version()) : NULL;
    if (version && c->version && sscanf(c->version, "%d", &c->major) == 1)
        return;
    f8_component_fail(c, F8_COMPONENT_REFUSED,
                      "it has no sqlite3_libversion, or one that gives no version");
}

void f8_components_more(f8_components *all)
{
    static const char *const loader[] = {"", NULL}, *const sqlite[] = {"libsqlite3.so.0", NULL};
    f8_dynlib lib;
    f8_component *c = f8_component_add(all, "more", "SQLite", "the tuning database",
                                       "Debian package libsqlite3-0");
    if (f8_component_search(all, c, sqlite, loader, NULL, &lib))
        ask_sqlite(all, c, &lib);
    f8_dynlib_close(&lib);
    mpi(all);
}
