// A C++17 program that embeds fp8c: handles that destroy themselves, statuses that become
// exceptions. It trains a model from text, saves it, loads it into a second program and goes on
// there: both end with the same bits, since a file holds the optimizer's and the scales' states
// too. A wrong text throws with its place.
#include <fp8c.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fp8
{

struct error : std::runtime_error {
    fp8c_status status;
    error(fp8c_status s, const std::string &message) : std::runtime_error(message), status(s)
    {
    }
};

template <auto destroy> struct destroyer {
    template <class T> void operator()(T *p) const
    {
        destroy(p);
    }
};
using context_handle = std::unique_ptr<fp8c_context, destroyer<fp8c_context_destroy>>;
using module_handle = std::unique_ptr<fp8c_module, destroyer<fp8c_module_destroy>>;
using program_handle = std::unique_ptr<fp8c_program, destroyer<fp8c_program_destroy>>;

class context
{
  public:
    context()
    {
        fp8c_context *p = nullptr;
        if (const fp8c_status s = fp8c_context_create(nullptr, &p); s != FP8C_OK)
            throw error(s, "fp8c_context_create");
        handle_.reset(p);
    }
    void must(fp8c_status s) const
    {
        if (s != FP8C_OK)
            throw error(s, fp8c_context_message(handle_.get()));
    }
    fp8c_context *get() const
    {
        return handle_.get();
    }

  private:
    context_handle handle_;
};

class program
{
  public:
    program(const context &ctx, std::string_view text, const char *recipe) : ctx_(ctx)
    {
        fp8c_module *m = nullptr;
        ctx.must(
            fp8c_module_parse(ctx.get(), text.data(), text.size(), "model.f8", nullptr, 0, &m));
        const module_handle module(m);
        fp8c_compile_options options{};
        options.struct_size = sizeof options;
        options.recipe = recipe;
        fp8c_program *p = nullptr;
        ctx.must(fp8c_compile(module.get(), &options, &p));
        handle_.reset(p);
        step_ = function("micro_step");
        update_ = function("update");
        ctx.must(fp8c_program_initialize(p, 1));
    }
    template <class T> T *port(fp8c_side side, const char *name)
    {
        const int index = fp8c_program_find_port(handle_.get(), step_, side, name);
        if (index < 0)
            throw std::out_of_range(name);
        return static_cast<T *>(fp8c_program_buffer(handle_.get(), step_, side, index));
    }
    void step()
    {
        ctx_.must(fp8c_program_run(handle_.get(), step_));
        ctx_.must(fp8c_program_run(handle_.get(), update_));
    }
    void save(const std::string &path) const
    {
        ctx_.must(fp8c_program_save(handle_.get(), path.c_str(), nullptr));
    }
    void load(const std::string &path)
    {
        ctx_.must(fp8c_program_load(handle_.get(), path.c_str(), 0, nullptr));
    }

  private:
    int function(const char *name) const
    {
        const int f = fp8c_program_function(handle_.get(), name);
        return f >= 0 ? f : throw std::out_of_range(name);
    }
    const context &ctx_;
    program_handle handle_;
    int step_ = -1, update_ = -1;
};

} // namespace fp8

static constexpr int T = 64, V = 96;
static constexpr std::string_view text = R"(module mlp
dim T = 64, C = 32, V = 96
param wte: f32[V, C] normal(0.2)
param up: f32[C, 4*C] normal(0.1)
param down: f32[4*C, C] normal(0.1)
func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {
  %x = embedding(wte, %tokens)
  %y = add(%x, linear(gelu(linear(%x, up)), down))
  return cross_entropy(linear(%y, wte) {transpose_b = true, name = "head"}, %targets)
}
optimizer adamw {lr = 0.01}
recipe "head" = bf16
)";

static std::vector<float> train(fp8::program &p, int from, int to)
{
    auto *tokens = p.port<std::int32_t>(FP8C_INPUT, "tokens");
    auto *targets = p.port<std::int32_t>(FP8C_INPUT, "targets");
    const auto *loss = p.port<float>(FP8C_OUTPUT, "loss");
    std::vector<float> losses;
    for (int i = from; i < to; i++) {
        for (int t = 0; t < T; t++) {
            tokens[t] = (13 * i + 5 * t) % V;
            targets[t] = (tokens[t] + 7) % V;
        }
        p.step();
        losses.push_back(*loss);
    }
    return losses;
}

static void want(bool ok, const char *what)
{
    if (!ok)
        throw std::logic_error(what);
}

int main(int argc, char **argv)
try {
    const std::string path = argc > 1 ? argv[1] : "mlp.safetensors";
    static_assert(!std::is_copy_constructible_v<fp8::program_handle>, "a handle has one owner");
    const fp8::context ctx;
    fp8::program one(ctx, text, "delayed");
    const auto first = train(one, 0, 60);
    one.save(path);
    const auto rest = train(one, 60, 80);
    std::printf("loss %.4f -> %.4f -> %.4f\n", first.front(), first.back(), rest.back());
    want(first.back() < first.front() / 2, "the loss does not fall");

    fp8::program other(ctx, text, "delayed");
    const auto again = train(other, 0, 60);
    want(again == first, "the second run differs");
    fp8::program resumed(ctx, text, "delayed");
    resumed.load(path);
    want(train(resumed, 60, 80) == rest, "what was loaded goes on differently");

    try {
        const fp8::program wrong(
            ctx, "module m\nfunc forward(%x: f32[2]) -> (%y: f32[2]) {\n  return sine(%x)\n}\n",
            "bf16");
        want(false, "a wrong text compiles");
    } catch (const fp8::error &e) {
        want(e.status == FP8C_ERR_INPUT &&
                 std::string_view(e.what()).rfind("model.f8:3:10: error: ", 0) == 0,
             e.what());
    }
    try {
        resumed.load(path + ".none");
        want(false, "a file that is not there loads");
    } catch (const fp8::error &e) {
        want(e.status == FP8C_ERR_IO && std::strstr(e.what(), ".none"), e.what());
    }
    std::puts("ok");
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "wrong: %s\n", e.what());
    return 1;
}
