# fp8c's one build file. `make run` and every check or bench install missing Debian packages
# (.ci/packages) first.
#
#   make                 builds the library and build/fp8c; installs nothing
#   make run             trains a small GPT on the CPU, in FP8 and in BF16
#   make check           runs every test once; make check TESTS="check_fp8 ranks" runs these
#   make check-sanitizers    runs most test programs again, under ASan and UBSan or under TSan: ten
#                        minutes
#   make check-nvrtc     compiles CUDA kernels with the real NVRTC for every architecture, not for
#                        one as `make check`: three minutes
#   make check-quick     runs a few tests of every folder: a minute and a half
#   make check-codecs    compares conversions to FP8 of all 2^32 f32 values: a quarter of an hour
#   make check-ranks     long tests of several ranks: stages, recipes and budgets in every
#                        combination, and processes that are killed at 50 random moments
#                        (KILLS=50 SEED=1)
#   make check-torch     tests fp8c.torch: with TORCH_PYTHON=PYTHON, or it fetches PyTorch
#                        (tests/torch/run)
#   make check-gpu       runs the CUDA tests on the GPU of this machine
#   make bench           measures, and writes build/bench.jsonl (bench/README.md)
#   make bench-recipes DATA=FILE    trains under every recipe: half an hour; STEPS=1000 SEEDS=3
#   make bench-ranks-loss DATA=FILE trains on 1, 2 and 4 ranks: half an hour; STEPS=300 SEEDS=3
#   make bench-memory    measures what budgets of memory cost: minutes;
#                        PARTS="cost measured bytes quick"
#   make bench-gpu       measures on the GPU of this machine, and PyTorch next to it
#   make gpu             builds what check-gpu and bench-gpu run into build-gpu/, to carry to
#                        another machine
#   make lint            runs clang-tidy
#   make wheel           the Python package with the library inside: build/fp8c-*.whl
#   make install         DESTDIR=... PREFIX=/usr/local LIBDIR=$PREFIX/lib; also install-strip,
#                        uninstall
#   make clean           removes everything that was built
#   VARIANT=debug|asan|tsan|fuzz    with any of these: builds into build-VARIANT/ instead of build/

# ---- settings ----

VARIANT ?= release
ifeq ($(origin CC),default)
CC := $(if $(filter fuzz,$(VARIANT)),clang-19,gcc)
endif
PREFIX ?= /usr/local
LLVM_INCLUDE ?= /usr/lib/llvm-19/include
# One test compares with cuda_fp8.h from here. Without the header it is skipped.
CUDA_INCLUDE ?= /usr/local/cuda/include

comma := ,
BUILD := $(if $(filter release,$(VARIANT)),build,build-$(VARIANT))
FLAGS_release := -O2 -g1
FLAGS_debug := -O0
FLAGS_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_tsan := -O0 -fsanitize=thread
FLAGS_fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
# Reports and stack traces need lines, not variables: that halves the objects to write and link, and
# saves a quarter of the time of a release build. VARIANT=debug has variables. To optimize TSan's
# programs would cost more than it saves: only their test cases "threads" run.
FLAGS_asan += -g1
FLAGS_tsan += -g1
FLAGS_fuzz += -g1
# The sanitizers describe globals and places with 270000 addresses. A program that may lie anywhere
# computes them at each start, which is a quarter of a short command's CPU time.
LINK_asan := -no-pie
# In instrumented code gcc's range analysis gives false warnings.
FLAGS_asan += -Wno-format-truncation -Wno-maybe-uninitialized
FLAGS_tsan += -Wno-format-truncation -Wno-maybe-uninitialized

# The IR decides what is rounded, so the compiler must not contract a multiplication and an
# addition.
CFLAGS += -std=c17 -D_GNU_SOURCE -g -Wall -Wextra -Werror -ffp-contract=off -fvisibility=hidden -fPIC \
          $(FLAGS_$(VARIANT)) -I. -isystem $(LLVM_INCLUDE) -MMD -MP
LDLIBS += -ldl -lm -lpthread

# The version stands in fp8c.h alone.
VERSION := $(shell awk '/define FP8C_VERSION_(MAJOR|MINOR|PATCH) / { v = v (v == "" ? "" : ".") $$3 } END { print v }' \
                   frontend/fp8c.h)
SONAME := libfp8c.so.$(firstword $(subst ., ,$(VERSION)))

# ---- sources ----

# $(call files,FOLDERS,PATTERNS): the files whose names match a pattern, in these folders and all
# below them.
files = $(sort $(foreach f,$(1),$(foreach p,$(2),$(wildcard $(f)/$(p))) \
        $(call files,$(patsubst %/,%,$(wildcard $(f)/*/)),$(2))))
CLI := $(call files,frontend/cli,*.c)
# Each shim is compiled against the mpi.h of one implementation of MPI, where that is installed.
MPI_openmpi := $(shell pkg-config --exists ompi-c 2>/dev/null && echo ompi-c)
MPI_mpich := $(shell pkg-config --exists mpich 2>/dev/null && echo mpich)
SHIMS := $(foreach k,openmpi mpich,$(if $(MPI_$(k)),$(BUILD)/fp8c_mpi_$(k).so))
LIB := $(filter-out $(CLI) runtime/comm/shim/%,$(call files,ir passes codegen runtime frontend,*.c))
# A test program is named after its source, in whichever folder of tests/ that is.
TEST_SOURCES := $(sort $(shell find tests -name 'check_*.c'))
TESTS := $(sort $(basename $(notdir $(TEST_SOURCES))))
BENCHES := $(filter-out bench_gpu bench_memory bench_recipes,$(patsubst bench/%.c,%,$(wildcard bench/bench_*.c)))
SHARED := $(call files,tests/shared,*.c)
# Sources of the fuzz targets: the language and the readers of files. All of it is built with the
# sanitizers.
LANGUAGE := $(call files,ir frontend/text,*.c) $(wildcard frontend/checkpoint/safetensors*.c)
PACKAGE := $(addprefix frontend/f8x/,package.c read.c compile_report_file.c) runtime/plan_file.c runtime/plan_check.c \
           runtime/comm/comm.c \
           runtime/base/cpu.c runtime/base/gemm_desc.c
PEERS := $(filter-out bench/bench_% bench/gpu_% bench/memory_%,$(wildcard bench/*.c))

object = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
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
LIBRARY := $(BUILD)/libfp8c.a
SO := $(BUILD)/libfp8c.so.$(VERSION)
STATIC := $(BUILD)/static/libfp8c.a
# jansson is linked into the library and hidden there.
SO_FLAGS := -shared -Wl,-soname,$(SONAME) -Wl,--version-script=frontend/fp8c.map -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
            -Wl,--as-needed -Wl,--exclude-libs,ALL
# json_loadf in Debian's libjansson.a refers to libc's `stdin` in a way that a shared library
# cannot. Nothing here calls it, so any address will do for the symbol.
SO_FLAGS += -Wl,--defsym=stdin=f8_st_open

# ---- the library and the command ----

# Plain `make` installs nothing. Where a package is missing, it prints the command that installs it.
all:
	@.ci/install --missing build
	@$(MAKE) --no-print-directory build
build: $(BUILD)/fp8c $(SO) $(SHIMS)

# Targets that install packages also build on all cores, unless -j says how many.
JOBS = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
deps:
	@.ci/install

# Optimizing a test program's own code takes longer than running it with less: its loops over
# numbers are in tests/shared.
FLAGS_test_release := -O1 -g1
FLAGS_test_asan := -O0
FLAGS_test_tsan := -O0
$(call object,$(TEST_SOURCES)): CFLAGS += $(FLAGS_test_$(VARIANT))
# Slow evaluators that tests compare with. They compute on memory of their own, so no variant
# sanitizes them: under sanitizers they would take longer than what they judge.
ORACLES := $(addprefix tests/shared/,kernel/gemm_problem.c kernel/kernel_eval.c recipe/recipe_oracle.c \
           num/codec_oracle.c)
$(call object,$(ORACLES)): CFLAGS += -O2 -fno-sanitize=all
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc   $<"
	@$(CC) $(CFLAGS) -c $< -o $@
# The sources that turn a kernel's description into code. The keys of cached kernels hold their
# hash, so that no kernel is used that older sources made. `make code-id` prints it, tests/code_id
# tests it.
CODE := $(call files,ir codegen,*.[ch] *.def *.cuh)
CODE_ID = $(VERSION) $(shell cat $(CODE) | sha256sum | cut -c 1-32)
$(BUILD)/obj/codegen/cache/code_id.o: CFLAGS += -DF8_CODE_ID='"$(CODE_ID)"'
$(BUILD)/obj/codegen/cache/code_id.o: $(CODE)
code-id:
	@echo '$(CODE_ID)'
$(BUILD)/obj/codegen/cuda/text.o: $(wildcard codegen/cuda/*.cuh)
$(BUILD)/obj/frontend/report/page.o: $(wildcard frontend/report/page/*)
$(LIBRARY): $(call object,$(LIB))
	@rm -f $@
	@$(AR) rcs $@ $^
$(SO): $(call object,$(LIB)) frontend/fp8c.map
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(SO_FLAGS) -o $@ $(filter %.o,$^) -l:libjansson.a $(LDLIBS)
	@ln -sf $(@F) $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $(BUILD)/libfp8c.so
# The static library: one object that exports fp8c_* alone, with jansson inside.
$(STATIC): $(call object,$(LIB))
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) -r -nostdlib -o $(@D)/fp8c.o $^ -l:libjansson.a
	@objcopy --wildcard --keep-global-symbol='fp8c_*' $(@D)/fp8c.o
	@rm -f $@
	@$(AR) rcs $@ $(@D)/fp8c.o
$(BUILD)/fp8c: $(call object,$(CLI)) $(LIBRARY)
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(LINK_$(VARIANT)) -o $@ $^ $(LDLIBS) -ljansson

# The Python package (frontend/python/README.md). It needs Python 3.11 and nothing else.
wheel: $(SO)
	@python3 frontend/python/wheel.py $(SO) $(BUILD)

$(SHIMS): $(BUILD)/fp8c_mpi_%.so: runtime/comm/shim/mpi.c runtime/comm/shim/shim.h
	@echo "  link $@"
	@$(CC) -std=c17 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I. $$(pkg-config --cflags $(MPI_$*) | sed 's/-I/-isystem /g') -fPIC \
	    -shared -o $@ $< $$(pkg-config --libs $(MPI_$*))

# ---- test programs, fuzz targets, benchmarks ----

.SECONDEXPANSION:
$(BUILD)/tests/%: $$(call test_object,$$*) $(call object,$(SHARED)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(LINK_$(VARIANT)) -o $@ $(filter %.o,$^) $(LIBRARY) $(CHECK) $(LDLIBS) -ljansson
$(BUILD)/tests/check_npy $(BUILD)/tests/check_run: $(call object,frontend/cli/cmd_npy.c frontend/cli/cmd_tensor_file.c)
$(BUILD)/fuzz_npy: $(call object,frontend/cli/cmd_npy.c)
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
$(BUILD)/fuzz_f8x: $(call object,$(PACKAGE))
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(call object,$(LANGUAGE))
	@echo "  link $@"
	@$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS) -ljansson
# A program looks for the shims where it lies.
$(BUILD)/bench/bench_ranks: | $(SHIMS:$(BUILD)/%=$(BUILD)/bench/%)
$(SHIMS:$(BUILD)/%=$(BUILD)/bench/%): $(BUILD)/bench/%: $(BUILD)/%
	@mkdir -p $(@D)
	@ln -sf ../$* $@
$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(call object,$(PEERS)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS) -ljansson

# Stand-ins for the CUDA driver, NVRTC, cuBLASLt, cuDNN, NCCL and NVML (tests/emulator/README.md). All
# variants share one build without sanitizers, which cannot follow its fibers and the faults that it handles.
EMULATOR := build/emulator
EMULATOR_FLAGS := -std=c17 -D_GNU_SOURCE -g -O2 -ffp-contract=off -Wall -Wextra -Werror -fvisibility=hidden -fPIC -I. \
                  -MMD -MP
EMULATOR_LIBRARIES := $(addprefix $(EMULATOR)/,libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 \
                        libcudnn.so.9 libnccl.so.2 libnvidia-ml.so.1)
emulated = $(patsubst %,$(EMULATOR)/obj/%.o,common $(1))
$(EMULATOR)/libcuda.so.1: $(call emulated,block device fault fiber memory module stream warp)
$(EMULATOR)/libnvrtc.so.13: $(call emulated,nvrtc nvrtc_compile)
$(EMULATOR)/libcublasLt.so.13: $(call emulated,cublaslt cublaslt_limits gemm)
$(EMULATOR)/libcudnn.so.9: $(call emulated,cudnn/descriptor cudnn/engine cudnn/evaluate)
$(EMULATOR)/libnccl.so.2: $(call emulated,nccl nccl_world)
$(EMULATOR)/libnvidia-ml.so.1: $(call emulated,nvml)
EMULATOR_FLAGS_gemm := -O3 -ffp-contract=fast
$(EMULATOR)/obj/%.o: tests/emulator/%.c
	@mkdir -p $(@D)
	@echo "  cc   $<"
	@$(CC) $(EMULATOR_FLAGS) $(EMULATOR_FLAGS_$*) -c $< -o $@
$(EMULATOR)/obj/nvrtc_compile.o: tests/emulator/fp8c.cuh tests/emulator/image.h
$(EMULATOR_LIBRARIES):
	@echo "  link $@"
	@$(CC) -shared -Wl,-soname,$(@F) -Wl,--no-undefined -o $@ $(filter %.o,$^) -ldl -lm -lpthread
emulator $(EMULATOR): $(EMULATOR_LIBRARIES)
	@mkdir -p $(BUILD)
	@[ -e $(BUILD)/emulator ] || ln -s ../$(EMULATOR) $(BUILD)/emulator

# ---- targets that people call ----

# `make run` trains on this project's own sources and READMEs, but for the one that quotes its result.
TEXT := $(BUILD)/run.txt
$(TEXT): $(wildcard tests/README.md bench/README.md) \
         $(call files,ir passes codegen runtime frontend,README.md *.[ch])
	@mkdir -p $(@D)
	@cat $^ > $@

run: deps
	@$(MAKE) --no-print-directory $(JOBS) build $(TEXT)
	$(BUILD)/fp8c train frontend/models/gpt.f8 --data $(TEXT) --steps 300 --recipe delayed --compare bf16
	@echo 'Three commands to try next:'
	@echo '  $(BUILD)/fp8c explain frontend/models/gpt.f8 --recipe delayed'
	@echo "  $(BUILD)/fp8c train frontend/models/gpt.f8 --data $(TEXT) --recipe delayed --stats '*' --run my-run"
	@echo '  $(BUILD)/fp8c report my-run -o my-run.html'

check: deps
	@tests/run $(if $(filter file,$(origin TESTS)),,$(TESTS))
check-quick: deps
	@tests/run --quick
check-sanitizers: deps
	@tests/run --sanitized

# The benchmarks are built, so that a change does not break them unseen; no check runs them.
check-build: build emulator $(RANK_FAULTS) $(BUILD)/tests/fp8c_faulty \
             $(TESTS:%=$(BUILD)/tests/%) $(BENCHES:%=$(BUILD)/bench/%)

# Kills ranks at 50 random moments; `make check` kills two.
check-ranks: deps
	@$(MAKE) --no-print-directory build $(RANK_FAULTS) $(BUILD)/tests/check_zero
	@FP8C_RANKS=all $(BUILD)/tests/check_zero
	@FP8C_KILLS=$(or $(KILLS),50) $(if $(SEED),FP8C_SEED=$(SEED)) tests/ranks_faults $(BUILD)

# The programs that compile a kernel for one architecture in `make check` (tests/README.md).
NVRTC := check_cuda_kernels check_cuda_rows_text check_cuda_attention
check-nvrtc: deps
	@FP8C_NVRTC=all tests/run $(NVRTC)

# No part of `make check`: PyTorch is 3 GB to fetch.
check-torch: deps
	@$(MAKE) --no-print-directory $(JOBS) build
	@tests/torch/run $(TORCH_TESTS)

CODECS := check_codecs check_cuda_codecs check_codecs_header
check-codecs: deps
	@$(MAKE) --no-print-directory emulator $(CODECS:%=$(BUILD)/tests/%)
	@for t in $(CODECS); do FP8C_CODECS=all $(BUILD)/tests/$$t || exit 1; done
	@FP8C_CODECS=all tests/peers/run $(BUILD) --install

bench: deps
	@$(MAKE) --no-print-directory build $(BENCHES:%=$(BUILD)/bench/%)
	@bench/run $(BUILD) $(BENCHES)

# The text to train on is not part of this project. Finished runs are kept and not repeated.
$(BUILD)/bench/bench_recipes: $(call object,tests/shared/num/operand.c)
bench-recipes: deps
	@test -r "$(DATA)" || bench/recipes $(BUILD) "$(DATA)"
	@$(MAKE) --no-print-directory build $(BUILD)/bench/bench_recipes
	@bench/recipes $(BUILD) "$(DATA)" $(or $(STEPS),1000) $(or $(SEEDS),3)

bench-ranks-loss: deps
	@$(MAKE) --no-print-directory build
	@bench/ranks_loss $(BUILD) "$(DATA)" $(or $(STEPS),300) $(or $(SEEDS),3)

$(BUILD)/bench/bench_memory: $(call object,bench/bench_memory.c bench/figures.c $(wildcard bench/memory_*.c)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
bench-memory: deps
	@$(MAKE) --no-print-directory build $(BUILD)/bench/bench_memory
	@$(BUILD)/bench/bench_memory --json $(PARTS) >$(BUILD)/bench_memory.jsonl

# A folder to carry to a machine with a GPU that has none of our packages: stripped programs, with
# the libraries of Debian's packages linked in. tests/gpu and bench/gpu run them there.
GPU := build-gpu
GPU_STATIC := $(UNMARKED) -l:libcheck_pic.a -l:libsubunit.a -l:libjansson.a -lrt
GPU_TESTS := $(filter-out check_cuda_passes,$(filter check_cud%,$(TESTS)))
GPU_PROGRAMS := $(GPU)/fp8c $(GPU)/bench/bench_gpu $(GPU_TESTS:%=$(GPU)/tests/%)
$(GPU)/fp8c: $(call object,$(CLI)) $(LIBRARY)
$(GPU_TESTS:%=$(GPU)/tests/%): $(GPU)/tests/%: $$(call test_object,$$*) $(call object,$(SHARED)) $(LIBRARY)
$(GPU)/bench/bench_gpu: $(call object,bench/bench_gpu.c bench/figures.c $(wildcard bench/gpu_*.c)) $(LIBRARY)
$(GPU_PROGRAMS): $(GPU)/%:
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -s -o $@ $^ $(GPU_STATIC) $(LDLIBS)
# fp8c.torch's tests open it.
$(GPU)/libfp8c.so: $(BUILD)/libfp8c.so
	@mkdir -p $(@D)
	@strip --strip-unneeded -o $@ $<
gpu: $(GPU_PROGRAMS) $(GPU)/libfp8c.so
check-gpu: deps
	@$(MAKE) --no-print-directory gpu
	@tests/gpu $(GPU) $(PART)
bench-gpu: deps
	@$(MAKE) --no-print-directory gpu
	@bench/gpu $(GPU) $(PART)

lint: deps
	@command -v clang-tidy-19 >/dev/null || { echo "make lint needs the package clang-tidy-19"; exit 1; }
	clang-tidy-19 --quiet $(LIB) $(CLI) -- -DF8_CODE_ID='""' -std=c17 -D_GNU_SOURCE -I. -isystem $(LLVM_INCLUDE)

# ---- installation ----

# For multiarch: make install LIBDIR=/usr/lib/x86_64-linux-gnu
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
DOCDIR ?= $(DATADIR)/doc/fp8c
MODELS := $(wildcard frontend/models/*.f8)
EXAMPLES := $(filter-out %/run %/readme,$(wildcard tests/examples/*))
MAN := $(BUILD)/share/fp8c.1
COMPLETIONS := $(BUILD)/share/fp8c.bash $(BUILD)/share/_fp8c $(BUILD)/share/fp8c.fish
SHIMDIR = $(LIBDIR)/fp8c
INSTALLED = $(addprefix $(SHIMDIR)/,$(notdir $(SHIMS))) $(BINDIR)/fp8c $(LIBDIR)/$(notdir $(SO)) $(LIBDIR)/$(SONAME) $(LIBDIR)/libfp8c.so $(LIBDIR)/libfp8c.a \
            $(LIBDIR)/pkgconfig/fp8c.pc $(INCLUDEDIR)/fp8c.h $(MANDIR)/man1/fp8c.1 \
            $(DATADIR)/bash-completion/completions/fp8c $(DATADIR)/zsh/site-functions/_fp8c \
            $(DATADIR)/fish/vendor_completions.d/fp8c.fish $(addprefix $(DOCDIR)/,LICENSE language.md ops.md) \
            $(addprefix $(DOCDIR)/examples/,$(notdir $(EXAMPLES))) \
            $(addprefix $(DATADIR)/fp8c/models/,$(notdir $(MODELS)))
# The program prints its man page and completions from its own tables of commands and options.
$(MAN): $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< help --man >$@
$(BUILD)/share/fp8c.bash: $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< completion bash >$@
$(BUILD)/share/_fp8c: $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< completion zsh >$@
$(BUILD)/share/fp8c.fish: $(BUILD)/fp8c
	@mkdir -p $(@D)
	@$< completion fish >$@
# A program that is linked to the library must find it when it starts. With DESTDIR that is the matter
# of whoever makes a package of it. Without it, the loader's cache is written anew. Where the loader
# still does not find the library, the pkg-config file gets an rpath, which this prints.
LOADER = [ -n "$(DESTDIR)" ] || { PATH="$$PATH:/usr/sbin:/sbin"; ldconfig 2>/dev/null; \
         ldconfig -p 2>/dev/null | sed -n 's/.*=> //p' | grep '/$(subst .,\.,$(SONAME))$$' | { \
             while read -r at; do [ "$$at" -ef "$(LIBDIR)/$(SONAME)" ] && exit; done; \
             echo "The loader does not look in $(LIBDIR), or its cache can't be written: what is linked by pkg-config" \
                 "with PKG_CONFIG_PATH=$(LIBDIR)/pkgconfig runs, other programs need LD_LIBRARY_PATH=$(LIBDIR)." >&2; \
             echo '-Wl,-rpath,$${libdir} '; }; }
installable: build $(STATIC) $(MAN) $(COMPLETIONS)
install:
	@.ci/install --missing build || true
	@$(MAKE) --no-print-directory installable
	install -d $(sort $(dir $(addprefix $(DESTDIR),$(INSTALLED))))
	install $(BUILD)/fp8c $(DESTDIR)$(BINDIR)/fp8c
	install -m 644 $(SO) $(STATIC) $(DESTDIR)$(LIBDIR)
	$(if $(SHIMS),install -m 644 $(SHIMS) $(DESTDIR)$(SHIMDIR))
	ln -sf $(notdir $(SO)) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libfp8c.so
	install -m 644 frontend/fp8c.h $(DESTDIR)$(INCLUDEDIR)
	@rpath=$$($(LOADER)) && \
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	    -e 's|@INCLUDEDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|' -e 's|@VERSION@|$(VERSION)|' \
	    -e "s|@RPATH@|$$rpath|" frontend/fp8c.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/fp8c.pc
	install -m 644 $(MAN) $(DESTDIR)$(MANDIR)/man1/fp8c.1
	install -m 644 $(BUILD)/share/fp8c.bash $(DESTDIR)$(DATADIR)/bash-completion/completions/fp8c
	install -m 644 $(BUILD)/share/_fp8c $(DESTDIR)$(DATADIR)/zsh/site-functions/_fp8c
	install -m 644 $(BUILD)/share/fp8c.fish $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/fp8c.fish
	install -m 644 LICENSE $(DESTDIR)$(DOCDIR)
	install -m 644 frontend/text/README.md $(DESTDIR)$(DOCDIR)/language.md
	install -m 644 frontend/text/OPS.md $(DESTDIR)$(DOCDIR)/ops.md
	install -m 644 $(EXAMPLES) $(DESTDIR)$(DOCDIR)/examples
	install -m 644 $(MODELS) $(DESTDIR)$(DATADIR)/fp8c/models
# Without debug information the shared library is three fifths as large.
install-strip: install
	strip $(DESTDIR)$(BINDIR)/fp8c
	strip --strip-unneeded $(DESTDIR)$(LIBDIR)/$(notdir $(SO))
	strip --strip-debug $(DESTDIR)$(LIBDIR)/libfp8c.a
# Folders stay, since others may have files there, but for our own that are empty.
uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	@rmdir $(addprefix $(DESTDIR),$(DOCDIR)/examples $(DOCDIR) $(DATADIR)/fp8c/models $(DATADIR)/fp8c) $(DESTDIR)$(SHIMDIR) 2>/dev/null || true
	@[ -n "$(DESTDIR)" ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig 2>/dev/null || true

clean:
	rm -rf build build-*

.PHONY: all build wheel code-id deps run lint clean installable install install-strip uninstall emulator $(EMULATOR) \
        check check-quick check-sanitizers check-build check-codecs check-nvrtc check-ranks check-torch check-gpu gpu bench bench-memory \
        bench-recipes bench-ranks-loss bench-gpu
.SECONDARY:
-include $(shell find $(BUILD)/obj $(EMULATOR)/obj -name '*.d' 2>/dev/null)
