/* What LLVM and the machine are, f8_llvm_identity, known without loading LLVM: kernels that are all
 * in the cache need only that of it, and mapping its 130 MB is a tenth of such a compile
 * (bench_warm), more where they must come from a disk.
 *
 *     question = f8_llvm_question(options, arena);
 *     identity = f8_llvm_recall(cache, question, arena);
 *     if (!identity) { f8_llvm_load(&llvm, ...); f8_llvm_remember(cache, question, llvm, arena); }
 *
 * The answer is kept in the cache with the file that gave it, and holds while that file is as it
 * was. Whoever loads LLVM after all compares. */
#ifndef F8_CODEGEN_LLVM_KNOWN_H
#define F8_CODEGEN_LLVM_KNOWN_H

#include "codegen/cache/cache.h"
#include "codegen/cpu/llvm.h"

/* All that decides which LLVM would be loaded, and what it would say of the machine: files of its
 * names where the loader looks, the loader's cache, the CPU asked for, what CPUID says. NULL when
 * it can't be told, or when an LLVM is mapped already: one that is loaded costs nothing to load. */
const char *f8_llvm_question(const f8_llvm_options *options, f8_arena *arena);
/* NULL: not known. question may be NULL. */
const char *f8_llvm_recall(f8_cache *cache, const char *question, f8_arena *arena);
void f8_llvm_remember(f8_cache *cache, const char *question, const f8_llvm *llvm, f8_arena *arena);

#endif
