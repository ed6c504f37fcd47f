# The test programs, the fuzz targets, the emulator, and the targets that run them. The Makefile
# includes this file.

# ---- sources ----

# A test program is named after its source, in whichever folder of tests/ that is.
TEST_SOURCES := $(sort $(shell find tests -name 'check_*.c'))
TESTS := $(sort $(basename $(notdir $(TEST_SOURCES))))
SHARED := $(call files,tests/shared,*.c)
# Sources of the fuzz targets: the language and the readers of files. All of it is built with the
# sanitizers.
LANGUAGE := $(call files,ir frontend/text,*.c) $(wildcard frontend/checkpoint/safetensors*.c)
PACKAGE := $(addprefix frontend/f8x/,package.c read.c compile_report_file.c) runtime/plan_file.c runtime/plan_check.c \
           runtime/comm/comm.c \
           runtime/base/cpu.c runtime/base/gemm_desc.c

# libcheck makes a system call at every assertion that holds, which took half of the time of some
# tests. The linker puts an empty function of tests/shared/main.c in its place. Where an assertion
# fails is known without it.
UNMARKED := -Wl,--wrap=_mark_point
# make check links about 350 programs. gold takes two thirds of the time of ld.bfd, and lld two
# thirds of gold's.
FAST_LINKER := $(if $(shell command -v ld.lld),-fuse-ld=lld -Wl$(comma)--threads=1,$(if \
                 $(shell command -v ld.gold),-fuse-ld=gold))
CHECK := $(FAST_LINKER) $(UNMARKED) -lcheck -lsubunit
test_object = $(call object,$(filter %/$(1).c,$(TEST_SOURCES)))

# Optimizing a test program's own code takes longer than running it with less: its loops over
# numbers are in tests/shared.
FLAGS_test_release := -O1 -g1
FLAGS_test_asan := -O0
FLAGS_test_tsan := -O0
$(call object,$(TEST_SOURCES)): CFLAGS += $(FLAGS_test_$(VARIANT))
# Slow evaluators that tests compare with. They compute on memory of their own, so no variant
# sanitizes them: under sanitizers they would take longer than what they judge.
ORACLES := $(addprefix tests/shared/,kernel/gemm_problem.c recipe/recipe_oracle.c \
           num/codec_oracle.c)
$(call object,$(ORACLES)): CFLAGS += -O2 -fno-sanitize=all

# ---- test programs and fuzz targets ----

$(BUILD)/tests/%: $$(call test_object,$$*) $(call object,$(SHARED)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(LINK_$(VARIANT)) -o $@ $(filter %.o,$^) $(LIBRARY) $(CHECK) $(LDLIBS) -ljansson
$(BUILD)/fuzz_npy: $(call object,frontend/checkpoint/npy.c)
# These tests see the library as an embedder does: by the public header and the shared library.
EMBEDDERS := $(addprefix $(BUILD)/tests/check_,api auto builder cycles lifetime serve)
$(EMBEDDERS): $(BUILD)/tests/%: $$(call test_object,$$*) $(call object,tests/shared/main.c) $(SO)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(SO) -Wl,-rpath,'$$ORIGIN/..' $(CHECK) $(LDLIBS)
$(call test_object,check_codecs_header): CFLAGS += -isystem $(CUDA_INCLUDE)
# tests/peers/codecs.py loads this.
$(BUILD)/tests/codecs.so: $(call object,tests/peers/codecs.c tests/shared/num/codec_inputs.c ir/num/fp8.c)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -shared -o $@ $^ -lm
# tests/ranks_faults puts the first in the place of a shim, and the other before MPI.
RANK_FAULTS := $(BUILD)/tests/flip_shim.so $(BUILD)/tests/stop_mpi.so
$(RANK_FAULTS): $(BUILD)/tests/%.so: $(BUILD)/obj/tests/faults/%.o
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -shared -o $@ $^ -ldl
# The command with faults that the linker puts around functions of the library
# (tests/faults/README.md).
FAULTS := $(addprefix tests/faults/,choose.c damage.c spec.c values.c wrap.c)
FAULTY := $(addprefix -Wl$(comma)--wrap=,fp8c_compile fp8c_program_destroy fp8c_program_run \
            fp8c_program_run_witnessed f8_exec_run_step)
$(BUILD)/tests/fp8c_faulty: $(call object,$(CLI) $(FAULTS) tests/faults/faulty.c) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(LINK_$(VARIANT)) $(FAST_LINKER) $(FAULTY) -o $@ $^ $(LDLIBS) -ljansson
$(BUILD)/tests/check_triage: | $(BUILD)/tests/fp8c_faulty
$(BUILD)/tests/check_witness: $(call object,$(FAULTS))
$(BUILD)/tests/check_witness: private CHECK += $(FAULTY)
# The shim over a stand-in of MPI, which the test has.
$(BUILD)/tests/check_mpi_shim: $(call object,runtime/comm/shim/mpi.c)
$(call test_object,check_mpi_shim) $(call object,runtime/comm/shim/mpi.c): CFLAGS += -Itests/shared/mpi
# Its allocator is that of the libraries it opens, too.
$(BUILD)/tests/check_no_memory: $(call object,tests/faults/no_memory.c)
$(BUILD)/tests/check_no_memory: private CHECK += -Wl,--export-dynamic
# The command with a kernel that computes wrong: check_burn runs it.
WRONG_KERNEL := -Wl,--wrap=f8_exec_create -Wl,--wrap=f8_blob_phase
$(BUILD)/tests/fp8c_wrong_kernel: $(call object,tests/faults/flip_kernel.c $(CLI)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(LINK_$(VARIANT)) -o $@ $^ $(WRONG_KERNEL) $(LDLIBS) -ljansson
$(BUILD)/tests/check_burn: $(BUILD)/tests/fp8c_wrong_kernel
# The command with a GEMM that takes a tenth longer: what bench/tune_pairs.py must find.
SLOW_GEMM := $(addprefix -Wl$(comma)--wrap=,f8_gemm_prepare f8_gemm_release f8_gemm_run)
$(BUILD)/tests/fp8c_slow_gemm: $(call object,tests/faults/slow_gemm.c $(CLI)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(LINK_$(VARIANT)) $(FAST_LINKER) -o $@ $^ $(SLOW_GEMM) $(LDLIBS) -ljansson
# Tests that measure GEMMs in cold caches, and the command that some of them run, sweep little memory
# (tests/shared/measure/small_caches.c).
SMALL_CACHES := -Wl,--wrap=f8_measure_cache_bytes
$(BUILD)/tests/fp8c_small_caches: $(call object,tests/shared/measure/small_caches.c $(CLI)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(LINK_$(VARIANT)) $(FAST_LINKER) -o $@ $^ $(SMALL_CACHES) $(LDLIBS) -ljansson
$(addprefix $(BUILD)/tests/check_,model_only suites tune_diff tune_gemms tune_signals): | $(BUILD)/tests/fp8c_small_caches
$(BUILD)/tests/check_session: private CHECK += $(SMALL_CACHES)
$(BUILD)/fuzz_f8x: $(call object,$(PACKAGE))
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(call object,$(LANGUAGE))
	@echo "  link $@"
	@$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS) -ljansson

# ---- the emulator ----

# Stand-ins for the CUDA driver, NVRTC, cuBLASLt, cuDNN, NCCL and NVML (tests/emulator/README.md). All
# variants share one build without sanitizers, which cannot follow its fibers and the faults that it handles.
EMULATOR := build/emulator
EMULATOR_FLAGS := -std=c17 -D_GNU_SOURCE -g -O2 -ffp-contract=off -Wall -Wextra -Werror -fvisibility=hidden -fPIC -I. \
                  -MMD -MP
EMULATOR_LIBRARIES := $(addprefix $(EMULATOR)/,libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 \
                        libcudnn.so.9 libnccl.so.2 libnvidia-ml.so.1)
emulated = $(patsubst %,$(EMULATOR)/obj/%.o,common $(1))
$(EMULATOR)/libcuda.so.1: $(call emulated,block bulk copies device fault fiber graph memory module record stream warp)
$(EMULATOR)/libnvrtc.so.13: $(call emulated,nvrtc nvrtc_compile object text)
$(EMULATOR)/libcublasLt.so.13: $(call emulated,cublaslt cublaslt_limits gemm)
$(EMULATOR)/libcudnn.so.9: $(call emulated,cudnn/descriptor cudnn/engine cudnn/evaluate)
$(EMULATOR)/libnccl.so.2: $(call emulated,nccl nccl_world)
$(EMULATOR)/libnvidia-ml.so.1: $(call emulated,nvml)
EMULATOR_FLAGS_gemm := -O3 -ffp-contract=fast
$(EMULATOR)/obj/%.o: tests/emulator/%.c
	@mkdir -p $(@D)
	@echo "  cc   $<"
	@$(CC) $(EMULATOR_FLAGS) $(EMULATOR_FLAGS_$*) -c $< -o $@
$(EMULATOR)/obj/nvrtc_compile.o: $(addprefix tests/emulator/,fp8c.cuh image.h object.c text.c)
$(EMULATOR_LIBRARIES):
	@echo "  link $@"
	@$(CC) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -o $@ $(filter %.o,$^) -ldl -lm -lpthread
emulator $(EMULATOR): $(EMULATOR_LIBRARIES)
	@mkdir -p $(BUILD)
	@[ -e $(BUILD)/emulator ] || ln -s ../$(EMULATOR) $(BUILD)/emulator

# ---- targets that people call ----

check: deps
	@tests/run $(if $(filter file,$(origin TESTS)),,$(TESTS))
check-quick: deps
	@tests/run --quick
check-sanitizers: deps
	@tests/run --sanitized

check-build: build emulator $(RANK_FAULTS) $(addprefix $(BUILD)/tests/,fp8c_faulty fp8c_slow_gemm) $(TESTS:%=$(BUILD)/tests/%)

# Kills ranks at 50 random moments; `make check` kills two.
check-ranks: deps
	@$(MAKE) --no-print-directory build $(RANK_FAULTS) $(BUILD)/tests/check_zero
	@FP8C_RANKS=all $(BUILD)/tests/check_zero
	@FP8C_KILLS=$(or $(KILLS),50) $(if $(SEED),FP8C_SEED=$(SEED)) tests/ranks_faults $(BUILD)

# Each change that is planted in a composite's formula must be found by a test (tests/README.md).
FORMULA_JUDGES := check_formulas check_wide_losses check_gradients
check-formulas: deps
	@$(MAKE) --no-print-directory $(JOBS) $(FORMULA_JUDGES:%=$(BUILD)/tests/%)
	@CC='$(CC)' CFLAGS='$(CFLAGS)' LINK='$(call object,$(SHARED)) $(LIBRARY) $(CHECK) $(LDLIBS) -ljansson' \
	    python3 tests/planted_formulas.py $(BUILD) $(FUNCTIONS)

# Which tests find changes that are planted in the code of kernels and in the table of forms (tests/README.md).
KERNEL_JUDGES := $(shell sed -n '/^SINGLE/,/^OPERATORS/p' tests/planted_kernels.py | grep -o 'check_[a-z_]*')
check-kernels: deps
	@$(MAKE) --no-print-directory $(JOBS) emulator $(KERNEL_JUDGES:%=$(BUILD)/tests/%)
	@CC='$(CC)' CFLAGS='$(CFLAGS)' LINK='$(call object,$(SHARED)) $(LIBRARY) $(CHECK) $(LDLIBS) -ljansson' \
	    python3 tests/planted_kernels.py $(BUILD) $(ARGUMENTS)

# Adds one thing of each kind in a copy of the tree, and counts the files (tests/additions/run).
check-additions: deps
	@CC='$(CC)' BUILD=$(BUILD) tests/additions/run $(KIND)

# The programs that compile some kernels, for one architecture, in `make check` (tests/README.md):
# their test cases "nvrtc".
NVRTC := check_cuda_kernels check_cuda_rows_text check_cuda_attention
check-nvrtc: deps
	@FP8C_NVRTC=all CK_RUN_CASE=nvrtc tests/run $(NVRTC)

# No part of `make check`: PyTorch is 3 GB to fetch.
check-torch: deps
	@$(MAKE) --no-print-directory $(JOBS) build
	@tests/torch/run $(TORCH_TESTS)

CODECS := check_codecs check_cuda_codecs check_codecs_header
check-codecs: deps
	@$(MAKE) --no-print-directory emulator $(CODECS:%=$(BUILD)/tests/%)
	@for t in $(CODECS); do FP8C_CODECS=all $(BUILD)/tests/$$t || exit 1; done
	@FP8C_CODECS=all tests/peers/run $(BUILD) --install

.PHONY: emulator $(EMULATOR) check check-quick check-sanitizers check-build check-ranks check-formulas \
        check-kernels check-additions check-nvrtc check-torch check-codecs
