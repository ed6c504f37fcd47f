/* See codec_func.h. */
#include "tests/shared/num/codec_func.h"

#include <check.h>

void codec_func(f8_unit *u)
{
    f8_module *m = u->module = f8_module_create(u->arena, u->diag, "codecs", "");
    f8_func *f = f8_module_func(m, "encode");
    f8_graph *g = f->graph;
    const f8_type t = {F8_F32, 2, {CODEC_CHUNK / 4096, 4096}};
    const f8_ref x = f8_func_input(f, "x", &t, -1), one = f8_const(g, 1);
    for (int i = 0; i < CODEC_WAYS; i++) {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, codec_ways[i].format),
                                F8_INT(F8_A_SATURATE, codec_ways[i].saturate)};
        const char name[] = {'q', (char)('0' + i), 0};
        f8_func_result(f, name, f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, one}, 2, attr, 2), -1);
    }
    ck_assert_msg(f8_pass_legalize(u) == F8_OK && f8_pass_group(u) == F8_OK &&
                      f8_pass_schedule(u) == F8_OK && f8_pass_memory(u) == F8_OK,
                  "%s", u->diag->text);
}
