/* Conversions as a call: fp8c_convert_weights of fp8c_weights.h. */
#include "frontend/fp8c_weights.h"

#include "frontend/api.h"
#include "frontend/formats/convert.h"

typedef struct call {
    fp8c_convert_options o;
    f8_convert_sources sources;
    f8_conversion conversion;
    f8_progress_phase phase;
    int64_t done;
} call;

static f8_status check(const call *c, f8_fp8_format *to, f8_diag *diag)
{
    if (!c->o.from || !c->o.format || !c->o.out || c->o.most < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       c->o.most < 0 ? "most is negative"
                                     : "a conversion needs from, format and out");
    if ((c->o.n_map && !c->o.map) || (c->o.n_ignore && !c->o.ignore))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "map or ignore is NULL, and has a count");
    if (!f8_fp8_format_parse(c->o.format, to))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "there is no format '%s': hf-fp8, compressed-tensors, modelopt or native",
                       c->o.format);
    if ((c->o.n_map || c->o.n_ignore) && !c->o.model && *to != F8_NATIVE)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "map and ignore name the tensors of a model, or of a folder that becomes "
                       "native");
    return F8_OK;
}

static bool asks(void *user)
{
    call *c = user;
    f8_diag unused = {0};
    return f8_progress_at(&c->phase, ++c->done, "", &unused) != F8_OK;
}

static f8_status run(call *c, fp8c_context *ctx, f8_diag *diag)
{
    const fp8c_load_options named = {.struct_size = sizeof named,
                                     .ignore = c->o.ignore,
                                     .n_ignore = c->o.n_ignore,
                                     .map = c->o.map,
                                     .n_map = c->o.n_map};
    f8_fp8_format to;
    F8_TRY(check(c, &to, diag));
    c->conversion = (f8_conversion){.shown = c->o.from,
                                    .to = to,
                                    .path = c->o.out,
                                    .most = (uint64_t)c->o.most,
                                    .list = &ctx->temporaries,
                                    .stop = asks,
                                    .stop_user = c,
                                    .allocator = &ctx->allocator};
    F8_TRY(f8_convert_open(&c->sources, &c->conversion, c->o.from, c->o.model, c->o.adapters,
                           &named, diag));
    /* each FP8 weight is looked at, then each tensor is written */
    const f8_model_folder *from = c->conversion.from;
    c->phase = f8_progress_begin(&ctx->progress, "convert",
                                 (int64_t)(from->n_scaled + from->weights.n_named));
    return f8_convert(&c->conversion, diag);
}

static void report(const call *c)
{
    for (size_t i = 0; c->o.report && i < c->conversion.n; i++) {
        const f8_converted *x = &c->conversion.weight[i];
        const fp8c_converted told = {.weight = x->from->module,
                                     .fate = f8_fate_name(x->fate),
                                     .granularity = f8_grains[x->grain].shown,
                                     .why = x->why,
                                     .sqnr = x->sqnr,
                                     .added = x->added};
        c->o.report(c->o.user, &told);
    }
}

fp8c_status fp8c_convert_weights(fp8c_context *ctx, const fp8c_convert_options *options)
{
    call c = {.o = {.struct_size = sizeof c.o}};
    f8_diag diag = {0};
    f8_status status = f8_api_options(&c.o, options, "fp8c_convert_options", &diag);
    if (status == F8_OK)
        status = run(&c, ctx, &diag);
    if (status == F8_OK)
        report(&c);
    const fp8c_status result = f8_api_result(ctx, &diag, status); /* it may name a file */
    f8_conversion_end(&c.conversion);
    f8_convert_close(&c.sources);
    return result;
}
