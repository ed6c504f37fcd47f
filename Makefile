# fp8c. `make run` and `make check` install what is missing (.ci/packages), build and go.
#
#   make                 the library and build/fp8c; installs nothing
#   make run             train a small GPT in FP8 beside BF16 on the CPU
#   make check           all tests            make check TESTS="check_fp8 check_ir"   some of them
#   make check-quick     a few of every folder: a minute and a half
#   make check-codecs    conversions to FP8 of all 2^32 f32, beside ml_dtypes and CUDA's header: a quarter of an hour
#   make bench           figures, also to build/bench.jsonl
#   make bench-recipes DATA=FILE    trains under every recipe, beside BF16: half an hour; STEPS=1000 SEEDS=3
#   make bench-memory    what budgets of memory cost: minutes; PARTS="cost measured bytes quick"
#   make check-gpu       tests on the GPU of this machine     make bench-gpu    figures of it, and PyTorch's
#   make gpu             only what those two run, into build-gpu/: to carry to where the GPU is
#   make lint            clang-tidy
#   make install         DESTDIR=... PREFIX=/usr/local LIBDIR=$PREFIX/lib    also install-strip, uninstall
#   VARIANT=debug|asan|tsan|fuzz              builds beside the release one, in build-VARIANT/

VARIANT ?= release
ifeq ($(origin CC),default)
CC := $(if $(filter fuzz,$(VARIANT)),clang-19,gcc)
endif
PREFIX ?= /usr/local
LLVM_INCLUDE ?= /usr/lib/llvm-19/include
# Only a test looks there, for what CUDA's own conversions give: cuda_fp8.h may be missing.
CUDA_INCLUDE ?= /usr/local/cuda/include

BUILD := $(if $(filter release,$(VARIANT)),build,build-$(VARIANT))
FLAGS_release := -O2
FLAGS_debug := -O0
FLAGS_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_tsan := -O1 -fsanitize=thread
FLAGS_fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
# gcc's range analysis warns of nothing real in instrumented code.
FLAGS_asan += -Wno-format-truncation -Wno-maybe-uninitialized
FLAGS_tsan += -Wno-format-truncation -Wno-maybe-uninitialized

# No contraction: what is rounded is decided by the IR (rule 2).
CFLAGS += -std=c17 -D_GNU_SOURCE -g -Wall -Wextra -Werror -ffp-contract=off -fvisibility=hidden -fPIC \
          $(FLAGS_$(VARIANT)) -I. -isystem $(LLVM_INCLUDE) -MMD -MP
LDLIBS += -ldl -lm -lpthread

# fp8c.h says it, once.
VERSION := $(shell awk '/define FP8C_VERSION_(MAJOR|MINOR|PATCH) / { v = v (v == "" ? "" : ".") $$3 } END { print v }' frontend/fp8c.h)
SONAME := libfp8c.so.$(firstword $(subst ., ,$(VERSION)))
# The files of folders at any depth whose names match one of the patterns: $(call files,FOLDERS,PATTERNS).
files = $(sort $(foreach f,$(1),$(foreach p,$(2),$(wildcard $(f)/$(p))) \
        $(call files,$(patsubst %/,%,$(wildcard $(f)/*/)),$(2))))
CLI := $(call files,frontend/cli,*.c)
LIB := $(filter-out $(CLI),$(call files,ir passes codegen runtime frontend,*.c))
# A test program is named after its source, whichever folder of tests/ that is in.
TEST_SOURCES := $(sort $(shell find tests -name 'check_*.c'))
TESTS := $(sort $(basename $(notdir $(TEST_SOURCES))))
BENCHES := $(filter-out bench_gpu bench_memory bench_recipes,$(patsubst bench/%.c,%,$(wildcard bench/bench_*.c)))
SHARED := $(call files,tests/shared,*.c)
# The textual language alone, and what reads files: for the fuzz targets, which have the sanitizers in all they link.
LANGUAGE := $(call files,ir frontend/text,*.c) $(wildcard frontend/checkpoint/safetensors*.c)
PACKAGE := $(addprefix frontend/f8x/,package.c read.c compile_report_file.c) runtime/plan_file.c runtime/plan_check.c \
           runtime/base/cpu.c
PEERS := $(filter-out bench/bench_% bench/gpu_% bench/memory_%,$(wildcard bench/*.c))

object = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
# Check notes where it is at every assertion that holds, by a system call: half of the time of some tests.
# tests/shared/main.c has a function that does nothing in its place; where an assertion fails is known without.
UNMARKED := -Wl,--wrap=_mark_point
CHECK := $(UNMARKED) -lcheck -lsubunit
test_object = $(call object,$(filter %/$(1).c,$(TEST_SOURCES)))
LIBRARY := $(BUILD)/libfp8c.a
SO := $(BUILD)/libfp8c.so.$(VERSION)
STATIC := $(BUILD)/static/libfp8c.a
# What the library takes from others, jansson, is linked into it and hidden there.
SO_FLAGS := -shared -Wl,-soname,$(SONAME) -Wl,--version-script=frontend/fp8c.map -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
            -Wl,--as-needed -Wl,--exclude-libs,ALL
# Debian's libjansson.a is not for shared libraries in one place: json_loadf, which nothing here calls, compares its
# stream with libc's stdin. Any address of ours does in its place.
SO_FLAGS += -Wl,--defsym=stdin=f8_st_open

# Plain `make` installs nothing: where a package is missing it prints the command that installs it.
all:
	@.ci/install --missing build
	@$(MAKE) --no-print-directory build
build: $(BUILD)/fp8c $(SO)

# What installs by itself also builds with all cores, unless `make -j` has said how many.
JOBS = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
deps:
	@.ci/install

# Under ASan a test program's own code takes longer to optimize than to run.
ifeq ($(VARIANT),asan)
$(call object,$(TEST_SOURCES)): CFLAGS += -O0
endif
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  cc   $<"
	@$(CC) $(CFLAGS) -c $< -o $@
# The sources that turn a kernel's description into code. Their hash is part of the keys of cached kernels, so an
# edited emitter never takes a kernel that its older self made. `make code-id` prints it; tests/code_id tests it.
CODE := $(call files,ir codegen,*.[ch] *.def *.cuh)
CODE_ID = $(VERSION) $(shell cat $(CODE) | sha256sum | cut -c 1-32)
$(BUILD)/obj/codegen/cache/code_id.o: CFLAGS += -DF8_CODE_ID='"$(CODE_ID)"'
$(BUILD)/obj/codegen/cache/code_id.o: $(CODE)
code-id:
	@echo '$(CODE_ID)'
$(BUILD)/obj/codegen/cuda/text.o: $(wildcard codegen/cuda/*.cuh)
$(LIBRARY): $(call object,$(LIB))
	@rm -f $@
	@$(AR) rcs $@ $^
$(SO): $(call object,$(LIB)) frontend/fp8c.map
	@echo "  link $@"
	@$(CC) $(CFLAGS) $(SO_FLAGS) -o $@ $(filter %.o,$^) -l:libjansson.a $(LDLIBS)
	@ln -sf $(@F) $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $(BUILD)/libfp8c.so
# To be linked into a program: one object that gives out fp8c_* alone, jansson inside.
$(STATIC): $(call object,$(LIB))
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) -r -nostdlib -o $(@D)/fp8c.o $^ -l:libjansson.a
	@objcopy --wildcard --keep-global-symbol='fp8c_*' $(@D)/fp8c.o
	@rm -f $@
	@$(AR) rcs $@ $(@D)/fp8c.o
$(BUILD)/fp8c: $(call object,$(CLI)) $(LIBRARY)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS) -ljansson
.SECONDEXPANSION:
$(BUILD)/tests/%: $$(call test_object,$$*) $(call object,$(SHARED)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(LIBRARY) $(CHECK) $(LDLIBS) -ljansson
$(BUILD)/tests/check_npy $(BUILD)/tests/check_run: $(call object,frontend/cli/cmd_npy.c frontend/cli/cmd_tensor_file.c)
$(BUILD)/fuzz_npy: $(call object,frontend/cli/cmd_npy.c)
# As an embedder sees it: the public header and the shared library.
EMBEDDERS := $(addprefix $(BUILD)/tests/check_,api auto builder cycles lifetime serve)
$(EMBEDDERS): $(BUILD)/tests/%: $$(call test_object,$$*) $(call object,tests/shared/main.c) $(SO)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(SO) -Wl,-rpath,'$$ORIGIN/..' $(CHECK) $(LDLIBS)
$(call test_object,check_codecs_header): CFLAGS += -isystem $(CUDA_INCLUDE)
# For tests/peers/codecs.py.
$(BUILD)/tests/codecs.so: $(call object,tests/peers/codecs.c tests/shared/num/codec_inputs.c ir/num/fp8.c)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -shared -o $@ $^ -lm
$(BUILD)/fuzz_f8x: $(call object,$(PACKAGE))
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(call object,$(LANGUAGE))
	@echo "  link $@"
	@$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS) -ljansson
$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(call object,$(PEERS)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS) -ljansson

# Stand-ins for the driver, NVRTC, cuBLASLt and cuDNN (tests/emulator/README.md): the same plain build for every
# VARIANT, since fibers and handled faults are nothing for sanitizers.
EMULATOR := build/emulator
EMULATOR_FLAGS := -std=c17 -D_GNU_SOURCE -g -O2 -ffp-contract=off -Wall -Wextra -Werror -fvisibility=hidden -fPIC -I. \
                  -MMD -MP
EMULATOR_LIBRARIES := $(addprefix $(EMULATOR)/,libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libcudnn.so.9)
emulated = $(patsubst %,$(EMULATOR)/obj/%.o,common $(1))
$(EMULATOR)/libcuda.so.1: $(call emulated,block device fault fiber memory module stream warp)
$(EMULATOR)/libnvrtc.so.13: $(call emulated,nvrtc nvrtc_compile)
$(EMULATOR)/libcublasLt.so.13: $(call emulated,cublaslt cublaslt_limits gemm)
$(EMULATOR)/libcudnn.so.9: $(call emulated,cudnn/descriptor cudnn/engine cudnn/evaluate)
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

# The text trained on: this project's own sources and documents, which any clone has.
TEXT := $(BUILD)/run.txt
$(TEXT): $(wildcard README.md tests/README.md bench/README.md) \
         $(call files,ir passes codegen runtime frontend,README.md *.[ch])
	@mkdir -p $(@D)
	@cat $^ > $@

run: deps
	@$(MAKE) --no-print-directory $(JOBS) build $(TEXT)
	$(BUILD)/fp8c train frontend/models/gpt.f8 --data $(TEXT) --steps 300 --recipe delayed --compare bf16

check: deps
	@tests/run $(if $(filter file,$(origin TESTS)),,$(TESTS))
check-quick: deps
	@tests/run --quick

check-build: build emulator $(TESTS:%=$(BUILD)/tests/%)

CODECS := check_codecs check_cuda_codecs check_codecs_header
check-codecs: deps
	@$(MAKE) --no-print-directory emulator $(CODECS:%=$(BUILD)/tests/%)
	@for t in $(CODECS); do FP8C_CODECS=all $(BUILD)/tests/$$t || exit 1; done
	@FP8C_CODECS=all tests/peers/run $(BUILD) --install

bench: deps
	@$(MAKE) --no-print-directory build $(BENCHES:%=$(BUILD)/bench/%)
	@bench/run $(BUILD) $(BENCHES)

# The text to train on is not ours to have; a run that is done is not repeated.
$(BUILD)/bench/bench_recipes: $(call object,tests/shared/num/operand.c)
bench-recipes: deps
	@test -r "$(DATA)" || bench/recipes $(BUILD) "$(DATA)"
	@$(MAKE) --no-print-directory build $(BUILD)/bench/bench_recipes
	@bench/recipes $(BUILD) "$(DATA)" $(or $(STEPS),1000) $(or $(SEEDS),3)

$(BUILD)/bench/bench_memory: $(call object,bench/bench_memory.c bench/figures.c $(wildcard bench/memory_*.c)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
bench-memory: deps
	@$(MAKE) --no-print-directory build $(BUILD)/bench/bench_memory
	@$(BUILD)/bench/bench_memory --json $(PARTS) >$(BUILD)/bench_memory.jsonl

# A folder to carry to a machine with a GPU, where nothing of ours is installed: programs stripped, what
# Debian's packages give linked in. tests/gpu and bench/gpu run it there.
GPU := build-gpu
GPU_STATIC := $(UNMARKED) -l:libcheck_pic.a -l:libsubunit.a -l:libjansson.a -lrt
GPU_TESTS := $(filter-out check_cuda_passes,$(filter check_cud%,$(TESTS)))
GPU_PROGRAMS := $(GPU)/fp8c $(GPU)/bench/bench_gpu $(GPU_TESTS:%=$(GPU)/tests/%)
$(GPU)/fp8c: $(call object,$(CLI)) $(LIBRARY)
$(GPU_TESTS:%=$(GPU)/tests/%): $(GPU)/tests/%: $$(call test_object,$$*) $(call object,$(SHARED)) $(LIBRARY)
$(GPU)/bench/bench_gpu: $(call object,bench/bench_gpu.c bench/gpu_device.c bench/figures.c) $(LIBRARY)
$(GPU_PROGRAMS): $(GPU)/%:
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -s -o $@ $^ $(GPU_STATIC) $(LDLIBS)
gpu: $(GPU_PROGRAMS)
check-gpu: deps
	@$(MAKE) --no-print-directory gpu
	@tests/gpu $(GPU)
bench-gpu: deps
	@$(MAKE) --no-print-directory gpu
	@bench/gpu $(GPU)

lint: deps
	@command -v clang-tidy-19 >/dev/null || { echo "make lint needs the package clang-tidy-19"; exit 1; }
	clang-tidy-19 --quiet $(LIB) $(CLI) -- -DF8_CODE_ID='""' -std=c17 -D_GNU_SOURCE -I. -isystem $(LLVM_INCLUDE)

# LIBDIR for multiarch: make install LIBDIR=/usr/lib/x86_64-linux-gnu
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
MAN := $(BUILD)/share/fp8c.1
COMPLETIONS := $(BUILD)/share/fp8c.bash $(BUILD)/share/_fp8c $(BUILD)/share/fp8c.fish
INSTALLED = $(BINDIR)/fp8c $(LIBDIR)/$(notdir $(SO)) $(LIBDIR)/$(SONAME) $(LIBDIR)/libfp8c.so $(LIBDIR)/libfp8c.a \
            $(LIBDIR)/pkgconfig/fp8c.pc $(INCLUDEDIR)/fp8c.h $(MANDIR)/man1/fp8c.1 \
            $(DATADIR)/bash-completion/completions/fp8c $(DATADIR)/zsh/site-functions/_fp8c \
            $(DATADIR)/fish/vendor_completions.d/fp8c.fish
# From the command and option tables of the program itself.
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
installable: build $(STATIC) $(MAN) $(COMPLETIONS)
install: installable
	install -d $(sort $(dir $(addprefix $(DESTDIR),$(INSTALLED))))
	install $(BUILD)/fp8c $(DESTDIR)$(BINDIR)/fp8c
	install -m 644 $(SO) $(STATIC) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(SO)) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libfp8c.so
	install -m 644 frontend/fp8c.h $(DESTDIR)$(INCLUDEDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	    -e 's|@INCLUDEDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|' -e 's|@VERSION@|$(VERSION)|' \
	    frontend/fp8c.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/fp8c.pc
	install -m 644 $(MAN) $(DESTDIR)$(MANDIR)/man1/fp8c.1
	install -m 644 $(BUILD)/share/fp8c.bash $(DESTDIR)$(DATADIR)/bash-completion/completions/fp8c
	install -m 644 $(BUILD)/share/_fp8c $(DESTDIR)$(DATADIR)/zsh/site-functions/_fp8c
	install -m 644 $(BUILD)/share/fp8c.fish $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/fp8c.fish
# Without debug information: a seventh of the size.
install-strip: install
	strip $(DESTDIR)$(BINDIR)/fp8c
	strip --strip-unneeded $(DESTDIR)$(LIBDIR)/$(notdir $(SO))
	strip --strip-debug $(DESTDIR)$(LIBDIR)/libfp8c.a
# The files alone: folders may be others' too.
uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))

clean:
	rm -rf build build-*

.PHONY: all build code-id deps run check check-quick check-build installable check-codecs bench bench-memory bench-recipes lint install install-strip uninstall clean gpu check-gpu bench-gpu emulator $(EMULATOR)
.SECONDARY:
-include $(shell find $(BUILD)/obj $(EMULATOR)/obj -name '*.d' 2>/dev/null)
