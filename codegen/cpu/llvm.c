/* Loads LLVM, chooses the machine, and turns a module of IR into an ELF object: see llvm.h. */
#include "codegen/cpu/llvm.h"

#include "runtime/base/dynlib.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the library ---- */

/* Distributions name the same library differently. The first one that opens is used. */
static const char *const library_names[] = {
    "libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so", NULL,
};

const char *const *f8_llvm_library_names(void)
{
    return library_names;
}

static const char *const api_names[] = {
#define X(name) "LLVM" #name,
    F8_LLVM_API(X)
#undef X
};

/* NULL: no memory, or `s` is NULL, which LLVM gives where it has none. */
static char *copy_text(const f8_allocator *a, const char *s)
{
    if (!s)
        return NULL;
    size_t n = strlen(s) + 1;
    char *t = a->alloc(a->user, n, 1);
    return t ? memcpy(t, s, n) : NULL;
}

static void free_text(const f8_allocator *a, char *s)
{
    if (s)
        a->free(a->user, s, strlen(s) + 1);
}

/* Records path and size of the library, which are part of its identity. */
static f8_status note_file(f8_llvm *x, void *handle, f8_diag *d)
{
    const struct link_map *map = NULL;
    struct stat s;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map->l_name[0] != '/' ||
        stat(map->l_name, &s))
        return F8_OK;
    x->path = copy_text(&x->allocator, map->l_name);
    x->size = s.st_size;
    return x->path ? F8_OK
                   : f8_fail(d, F8_ERR_MEMORY, F8_NOWHERE,
                             "no memory for the path of LLVM (%zu bytes)", strlen(map->l_name) + 1);
}

static f8_status load_api(f8_llvm *x, const char *library, f8_diag *d)
{
    const char *const given[] = {library, NULL};
    f8_dynlib lib;
    F8_TRY(f8_dynlib_open("LLVM 19", library ? given : library_names, &lib, d));
    f8_status s =
        f8_dynlib_symbols(&lib, api_names, sizeof api_names / sizeof *api_names, &x->ll, d);
    if (s == F8_OK)
        s = note_file(x, lib.handle, d);
    f8_dynlib_close(&lib); /* the library stays mapped */
    return s;
}

/* The registry of targets of LLVM is global to the process, and registering is not thread-safe.
 * This lock guards that state of LLVM; nothing of fp8c depends on it. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

static void register_target(const f8_llvm_api *ll)
{
    pthread_mutex_lock(&registry_lock);
    ll->InitializeX86TargetInfo(); /* each call is idempotent */
    ll->InitializeX86Target();
    ll->InitializeX86TargetMC();
    ll->InitializeX86AsmPrinter();
    pthread_mutex_unlock(&registry_lock);
}

static bool has_feature(const char *features, const char *name)
{
    if (!features)
        return false;
    size_t n = strlen(name);
    for (const char *s = features; (s = strstr(s, name)); s += n)
        if (s > features && s[-1] == '+' && (s[n] == 0 || s[n] == ','))
            return true;
    return false;
}

/* Names of CPUs other than this machine; their features follow from the name. */
static bool named_avx512(const char *cpu)
{
    static const char *const names[] = {"x86-64-v4", "skylake-avx512", "icelake-server",
                                        "sapphirerapids", "znver4", "znver5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(cpu, names[i]))
            return true;
    return false;
}

static bool named_avx2(const char *cpu)
{
    static const char *const names[] = {"x86-64-v3", "haswell", "broadwell", "skylake",
                                        "alderlake", "znver1", "znver2", "znver3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(cpu, names[i]))
            return true;
    return named_avx512(cpu);
}

static f8_status choose_machine(f8_llvm *x, const char *cpu, f8_diag *d)
{
    const f8_llvm_api *ll = &x->ll;
    bool avx2;
    if (!cpu || !strcmp(cpu, "native")) {
        char *name = ll->GetHostCPUName(), *features = ll->GetHostCPUFeatures();
        x->cpu = copy_text(&x->allocator, name);
        x->features = copy_text(&x->allocator, features);
        x->avx512 = has_feature(features, "avx512f") && has_feature(features, "avx512bw") &&
                    has_feature(features, "avx512vl") && has_feature(features, "avx512dq");
        avx2 = has_feature(features, "avx2") && has_feature(features, "fma") &&
               has_feature(features, "f16c");
        ll->DisposeMessage(name);
        ll->DisposeMessage(features);
    } else {
        x->cpu = copy_text(&x->allocator, cpu);
        x->features = copy_text(&x->allocator, "");
        x->avx512 = named_avx512(cpu);
        avx2 = named_avx2(cpu);
    }
    x->triple = copy_text(&x->allocator, "x86_64-unknown-linux-gnu");
    if (!x->cpu || !x->features || !x->triple)
        return f8_fail(d, F8_ERR_MEMORY, F8_NOWHERE, "no memory for the CPU's description");
    if (!avx2)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "the CPU target needs AVX2, FMA and F16C, which '%s' lacks or is not known "
                       "to have", x->cpu);
    x->lanes = x->avx512 ? 16 : 8;
    char *message = NULL;
    if (ll->GetTargetFromTriple(x->triple, &x->target, &message)) {
        f8_status s =
            f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE, "LLVM does not support the target %s: %s",
                    x->triple, message ? message : "?");
        ll->DisposeMessage(message);
        return s;
    }
    return F8_OK;
}

f8_status f8_llvm_load(f8_llvm **out, const f8_llvm_options *options, f8_diag *d)
{
    *out = NULL;
    f8_allocator a = options->allocator ? *options->allocator : f8_default_allocator();
    f8_llvm *x = a.alloc(a.user, sizeof *x, sizeof(void *));
    if (!x)
        return f8_fail(d, F8_ERR_MEMORY, F8_NOWHERE, "no memory for LLVM's table (%zu bytes)",
                       sizeof *x);
    *x = (f8_llvm){.allocator = a, .lock = PTHREAD_MUTEX_INITIALIZER};
    f8_status s = load_api(x, options->library, d);
    if (s == F8_OK) {
        unsigned major = 0, minor = 0, patch = 0;
        x->ll.GetVersion(&major, &minor, &patch);
        snprintf(x->version, sizeof x->version, "%u.%u.%u", major, minor, patch);
        if (major != 19)
            s = f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE, "LLVM %s was found, but LLVM 19 is needed",
                        x->version);
    }
    if (s == F8_OK) {
        register_target(&x->ll);
        s = choose_machine(x, options->cpu, d);
    }
    if (s != F8_OK) {
        f8_llvm_free(x);
        return s;
    }
    *out = x;
    return F8_OK;
}

void f8_llvm_free(f8_llvm *x)
{
    if (!x)
        return;
    f8_allocator a = x->allocator;
    for (int fast = 0; fast < 2; fast++)
        for (int i = 0; i < x->machines[fast].n; i++)
            x->ll.DisposeTargetMachine(x->machines[fast].at[i]);
    pthread_mutex_destroy(&x->lock);
    free_text(&a, x->cpu);
    free_text(&a, x->features);
    free_text(&a, x->triple);
    free_text(&a, x->path);
    a.free(a.user, x, sizeof *x);
}

const char *f8_llvm_identity(const f8_llvm *x, f8_arena *arena)
{
    return f8_arena_printf(
        arena, "llvm %s, a file of %lld bytes\ntriple %s\ncpu %s\nfeatures %s\nlanes %d\n",
        x->version, (long long)x->size, x->triple, x->cpu, x->features, x->lanes);
}

bool f8_llvm_identity_read(const char *identity, f8_arena *arena, const char **version,
                           const char **cpu)
{
    static const char first[] = "llvm ", second[] = "\ncpu ";
    const char *name = strstr(identity, second);
    if (strncmp(identity, first, sizeof first - 1) || !name)
        return false;
    identity += sizeof first - 1;
    name += sizeof second - 1;
    *version = f8_arena_strndup(arena, identity, strcspn(identity, ","));
    *cpu = f8_arena_strndup(arena, name, strcspn(name, "\n"));
    return *version && *cpu;
}

/* ---- one module ---- */

/* Without a handler LLVM prints to stderr and may exit. This one keeps the first error for the
 * caller. */
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
    f8_llvm_module *m = user;
    if (m->message[0] || m->ll->GetDiagInfoSeverity(info) != LLVMDSError)
        return;
    char *text = m->ll->GetDiagInfoDescription(info);
    snprintf(m->message, sizeof m->message, "%s", text ? text : "an error");
    m->ll->DisposeMessage(text);
}

/* A machine is used by one thread at a time: takes one that no module uses, or makes one. */
static LLVMTargetMachineRef take_machine(f8_llvm *x, bool fast)
{
    f8_llvm_machines *idle = &x->machines[fast];
    LLVMTargetMachineRef machine = NULL;
    pthread_mutex_lock(&x->lock);
    if (idle->n)
        machine = idle->at[--idle->n];
    pthread_mutex_unlock(&x->lock);
    if (machine)
        return machine;
    return x->ll.CreateTargetMachine(x->target, x->triple, x->cpu, x->features,
                                     fast ? LLVMCodeGenLevelNone : LLVMCodeGenLevelAggressive,
                                     LLVMRelocPIC, LLVMCodeModelSmall);
}

static void give_machine(f8_llvm *x, bool fast, LLVMTargetMachineRef machine)
{
    f8_llvm_machines *idle = &x->machines[fast];
    pthread_mutex_lock(&x->lock);
    const bool kept = idle->n < F8_LLVM_MACHINES;
    if (kept)
        idle->at[idle->n++] = machine;
    pthread_mutex_unlock(&x->lock);
    if (!kept)
        x->ll.DisposeTargetMachine(machine);
}

f8_status f8_llvm_module_begin(f8_llvm_module **out, f8_llvm *x, const char *name, f8_diag *d)
{
    const f8_llvm_api *ll = &x->ll;
    *out = NULL;
    f8_llvm_module *m = x->allocator.alloc(x->allocator.user, sizeof *m, sizeof(void *));
    if (!m)
        return f8_fail(d, F8_ERR_MEMORY, F8_NOWHERE, "no memory for a module (%zu bytes)",
                       sizeof *m);
    *m = (f8_llvm_module){.ll = ll, .llvm = x, .lanes = x->lanes};
    m->context = ll->ContextCreate();
    ll->ContextSetDiagnosticHandler(m->context, on_diagnostic, m);
    m->module = ll->ModuleCreateWithNameInContext(name, m->context);
    m->b = ll->CreateBuilderInContext(m->context);
    ll->SetTarget(m->module, x->triple);
    m->void_ = ll->VoidTypeInContext(m->context);
    m->i1 = ll->Int1TypeInContext(m->context);
    m->i8 = ll->Int8TypeInContext(m->context);
    m->i16 = ll->Int16TypeInContext(m->context);
    m->i32 = ll->Int32TypeInContext(m->context);
    m->i64 = ll->Int64TypeInContext(m->context);
    m->f32 = ll->FloatTypeInContext(m->context);
    m->f64 = ll->DoubleTypeInContext(m->context);
    m->ptr = ll->PointerTypeInContext(m->context, 0);
    LLVMTypeRef p[] = {m->ptr, m->ptr, m->i64, m->i64, m->ptr};
    m->phase_type = ll->FunctionType(m->void_, p, 5, 0);
    *out = m;
    return F8_OK;
}

void f8_llvm_module_end(f8_llvm_module *m)
{
    if (!m)
        return;
    m->ll->DisposeBuilder(m->b);
    m->ll->DisposeModule(m->module);
    m->ll->ContextDispose(m->context);
    const f8_allocator *a = &m->llvm->allocator;
    a->free(a->user, m, sizeof *m);
}

/* Emitters write vectors and unroll loops themselves, so the pipeline only cleans up: promotion of
 * allocas, common subexpressions, loop invariants, dead code. There is no vectorizer. There is no
 * loop-idiom pass, which would make calls to memcpy and memset that the linker cannot resolve. */
static const char pipeline[] =
    "always-inline,function(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(loop-rotate,licm),early-cse<memssa>,adce)";

static f8_status optimize(f8_llvm_module *m, LLVMTargetMachineRef machine, f8_diag *d)
{
    const f8_llvm_api *ll = m->ll;
    LLVMPassBuilderOptionsRef o = ll->CreatePassBuilderOptions();
    LLVMErrorRef error = ll->RunPasses(m->module, pipeline, machine, o);
    ll->DisposePassBuilderOptions(o);
    if (!error)
        return F8_OK;
    char *text = ll->GetErrorMessage(error); /* frees the error */
    f8_status s = f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "LLVM's pass pipeline: %s", text);
    ll->DisposeErrorMessage(text);
    return s;
}

static f8_status emit(f8_llvm_module *m, LLVMTargetMachineRef machine, f8_arena *arena,
                      f8_object *out, f8_diag *d)
{
    const f8_llvm_api *ll = m->ll;
    char *message = NULL;
    LLVMMemoryBufferRef buffer = NULL;
    if (ll->TargetMachineEmitToMemoryBuffer(machine, m->module, LLVMObjectFile, &message,
                                            &buffer)) {
        f8_status s = f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "LLVM can't emit an object: %s",
                              message ? message : "?");
        ll->DisposeMessage(message);
        return s;
    }
    size_t size = ll->GetBufferSize(buffer);
    uint8_t *bytes = f8_arena_array(arena, size, 1);
    if (bytes) {
        memcpy(bytes, ll->GetBufferStart(buffer), size);
        *out = (f8_object){bytes, size};
    }
    ll->DisposeMemoryBuffer(buffer);
    if (!bytes)
        return f8_arena_status(arena, d);
    if (m->message[0])
        return f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "LLVM: %s", m->message);
    return F8_OK;
}

f8_status f8_llvm_module_compile(f8_llvm_module *m, f8_arena *arena, f8_object *out, f8_diag *d)
{
    const f8_llvm_api *ll = m->ll;
    char *message = NULL;
    if (ll->VerifyModule(m->module, LLVMReturnStatusAction, &message)) {
        f8_status s = f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "a kernel's IR is malformed: %s",
                              message ? message : "?");
        ll->DisposeMessage(message);
        return s;
    }
    ll->DisposeMessage(message);
    LLVMTargetMachineRef machine = take_machine(m->llvm, m->fast);
    if (!machine)
        return f8_fail(d, F8_ERR_LIBRARY, F8_NOWHERE, "LLVM cannot make code for the CPU '%s'",
                       m->llvm->cpu);
    LLVMTargetDataRef layout = ll->CreateTargetDataLayout(machine);
    ll->SetModuleDataLayout(m->module, layout);
    ll->DisposeTargetData(layout);
    f8_status s = optimize(m, machine, d);
    if (s == F8_OK)
        s = emit(m, machine, arena, out, d);
    give_machine(m->llvm, m->fast, machine);
    return s;
}

char *f8_llvm_module_text(f8_llvm_module *m, f8_arena *arena)
{
    char *text = m->ll->PrintModuleToString(m->module);
    char *copy = text ? f8_arena_strdup(arena, text) : NULL;
    m->ll->DisposeMessage(text);
    return copy;
}
