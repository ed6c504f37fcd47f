/* The identity of LLVM and of the machine (f8_llvm_identity), found without loading LLVM. A compile
 * whose kernels are all in the cache needs nothing else of LLVM. Mapping its 130 MB takes a tenth
 * of such a compile (bench_warm), or more if the library must be read from a disk.
 *
 *     question = f8_llvm_question(options, arena);
 *     identity = f8_llvm_recall(cache, question, arena);
 *     if (!identity) { f8_llvm_load(&llvm, ...); f8_llvm_remember(cache, question, llvm, arena); }
 *
 * The answer is kept in the cache with the file that gave it, and is valid while that file is
 * unchanged. A caller that loads LLVM after all compares the identities. */
#ifndef F8_CODEGEN_LLVM_KNOWN_H
#define F8_CODEGEN_LLVM_KNOWN_H

#include "codegen/cache/cache.h"
#include "codegen/cpu/llvm.h"

/* All that decides which LLVM would be loaded, and what it would say of the machine: the files of
 * its names where the loader looks, the cache of the loader, the CPU asked for, and CPUID. NULL:
 * this cannot be told, or an LLVM is mapped already; then loading it costs nothing. */
const char *f8_llvm_question(const f8_llvm_options *options, f8_arena *arena);
/* NULL: unknown. question may be NULL. */
const char *f8_llvm_recall(f8_cache *cache, const char *question, f8_arena *arena);
void f8_llvm_remember(f8_cache *cache, const char *question, const f8_llvm *llvm, f8_arena *arena);

#endif
