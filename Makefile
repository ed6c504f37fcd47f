# Builds fp8c. `make run` and every check or bench install missing Debian packages (.ci/packages)
# first. Test programs, benchmarks and the installation have files of their own: tests/test.mk,
# bench/bench.mk, frontend/install.mk.
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

# The version and the number of the interface stand in fp8c.h alone.
VERSION := $(shell awk '/define FP8C_VERSION_(MAJOR|MINOR|PATCH) / { v = v (v == "" ? "" : ".") $$3 } END { print v }' \
                   frontend/fp8c.h)
SONAME := libfp8c.so.$(shell awk '/define FP8C_ABI / { print $$3 }' frontend/fp8c.h)

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
object = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIBRARY := $(BUILD)/libfp8c.a
SO := $(BUILD)/$(SONAME)
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
# The commit that the command was built from, for what it measures: "" where there is no repository.
# Only another answer writes the file, and one object of the command alone depends on it: no test is
# linked again after a commit. Where git refuses to answer, as it does to another user (su -c 'make
# install'), the answer stays.
$(BUILD)/commit: FORCE
	@mkdir -p $(@D)
	@commit=; if [ -e .git ]; then \
	    commit=$$(GIT_CEILING_DIRECTORIES="$$(dirname "$$PWD")" git --no-optional-locks \
	        describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null) || \
	    commit=$$(cat $@ 2>/dev/null); fi; \
	[ -e $@ ] && [ "$$commit" = "$$(cat $@)" ] || echo "$$commit" >$@
$(BUILD)/obj/frontend/cli/commit.o: CFLAGS += -DF8_COMMIT='"$(shell cat $(BUILD)/commit)"'
$(BUILD)/obj/frontend/cli/commit.o: $(BUILD)/commit
$(BUILD)/obj/codegen/cuda/text.o: $(wildcard codegen/cuda/*.cuh)
$(BUILD)/obj/runtime/tune/tuned.o: runtime/tune/shipped.jsonl
$(BUILD)/obj/frontend/diagnose/report/page.o: $(wildcard frontend/diagnose/report/page/*)
$(LIBRARY): $(call object,$(LIB))
	@rm -f $@
	@$(AR) rcs $@ $^
$(SO): $(call object,$(LIB)) frontend/fp8c.map
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(SO_FLAGS) -o $@ $(filter %.o,$^) -l:libjansson.a $(LDLIBS)
	@ln -sf $(@F) $(BUILD)/libfp8c.so
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

FORCE:

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

lint: deps
	@command -v clang-tidy-19 >/dev/null || { echo "make lint needs the package clang-tidy-19"; exit 1; }
	clang-tidy-19 --quiet $(LIB) $(CLI) -- -DF8_CODE_ID='""' -DF8_COMMIT='""' -std=c17 -D_GNU_SOURCE -I. -isystem $(LLVM_INCLUDE)

clean:
	rm -rf build build-*

# Rules below may name their sources by the stem: $$*.
.SECONDEXPANSION:
include tests/test.mk bench/bench.mk frontend/install.mk

.PHONY: all build wheel code-id deps run lint clean FORCE
.SECONDARY:
-include $(shell find $(BUILD)/obj $(EMULATOR)/obj -name '*.d' 2>/dev/null)
