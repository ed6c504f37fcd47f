# The benchmarks, and the programs that run on a machine with a GPU. The Makefile includes this file
# behind tests/test.mk, whose programs are among them.

BENCHES := $(filter-out bench_gpu bench_memory bench_recipes,$(patsubst bench/%.c,%,$(wildcard bench/bench_*.c)))
PEERS := $(filter-out bench/bench_% bench/gpu_% bench/memory_% bench/outside_%,$(wildcard bench/*.c))

# ---- benchmarks ----

# A program looks for the shims where it lies.
$(BUILD)/bench/bench_ranks: | $(SHIMS:$(BUILD)/%=$(BUILD)/bench/%)
$(SHIMS:$(BUILD)/%=$(BUILD)/bench/%): $(BUILD)/bench/%: $(BUILD)/%
	@mkdir -p $(@D)
	@ln -sf ../$* $@
$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(call object,$(PEERS)) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS) -ljansson

# A clock that shares no code with what it is compared with.
$(BUILD)/bench/outside_gemm: $(BUILD)/obj/bench/outside_gemm.o
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(CFLAGS) -o $@ $^ -ldnnl -lgomp

# A check builds the benchmarks, so that a change does not break them unseen; it runs none.
check-build: $(BENCHES:%=$(BUILD)/bench/%) $(BUILD)/bench/outside_gemm
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

# ---- on a GPU ----

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
$(GPU)/libfp8c.so: $(SO)
	@mkdir -p $(@D)
	@strip --strip-unneeded -o $@ $<
gpu: $(GPU_PROGRAMS) $(GPU)/libfp8c.so
check-gpu: deps
	@$(MAKE) --no-print-directory gpu
	@tests/gpu $(GPU) $(PART)
bench-gpu: deps
	@$(MAKE) --no-print-directory gpu
	@bench/gpu $(GPU) $(PART)

.PHONY: bench bench-recipes bench-ranks-loss bench-memory gpu check-gpu bench-gpu
