/* What the message of an unknown op proposes: see op_names.h.
 *
 * To propose the op that is spelled most alike would mislead: for `gt` that is `lt`, and for `elu`
 * it is `gelu`. So ops of other frameworks are listed first, each with how to write it here, or as
 * one that has no short way. Only other names are compared by their spelling. */
#include "frontend/text/op_names.h"
#include "ir/base/suggest.h"

#include <stdio.h>
#include <string.h>

#include "frontend/text/parser.h"

static const struct {
    const char *name, *here; /* here: how it is written; NULL: there is no short way */
} others[] = {
    /* comparisons and logic */
    {"gt", "a > b is lt(b, a)"},
    {"greater", "a > b is lt(b, a)"},
    {"ge", "a >= b is le(b, a)"},
    {"less", "a < b is lt(a, b)"},
    {"ne", "write not(eq(a, b))"},
    {"xor", "of a and b: write and(or(a, b), not(and(a, b)))"},
    {"where", "write select(condition, a, b)"},
    {"isnan", "write not(eq(x, x))"},
    {"isinf", NULL},
    /* arithmetic */
    {"pow", "write mul(x, x), sqrt, or exp(mul(log(x), y))"},
    {"square", "write mul(x, x)"},
    {"reciprocal", "write div(1, x)"},
    {"clamp", "write min(max(x, low), high)"},
    {"clip", "write min(max(x, low), high)"},
    {"ceil", "write neg(floor(neg(x)))"},
    {"round", NULL},
    {"trunc", NULL},
    {"sign", NULL},
    {"mod", NULL},
    {"rem", NULL},
    {"exp2", "write exp(mul(x, 0.6931471805599453))"},
    {"expm1", "write sub(exp(x), 1)"},
    {"log2", "write div(log(x), 0.6931471805599453)"},
    {"log10", "write div(log(x), 2.302585092994046)"},
    {"log1p", "write log(add(x, 1))"},
    {"logit", NULL},
    {"erfc", "write sub(1, erf(x))"},
    {"erfinv", NULL},
    {"tan", "write div(sin(x), cos(x))"},
    {"sinh", NULL},
    {"cosh", NULL},
    {"asin", NULL},
    {"acos", NULL},
    {"atan", NULL},
    {"atan2", NULL},
    {"atanh", NULL},
    {"sinc", NULL},
    /* activations */
    {"swish", "write silu(x)"},
    {"softplus", "write add(relu(x), log(add(1, exp(neg(abs(x))))))"},
    {"softsign", "write div(x, add(1, abs(x)))"},
    {"softmin", "write softmax(neg(x))"},
    {"logsoftmax", NULL},
    {"log_softmax", NULL},
    {"logsumexp", NULL},
    {"elu", "write select(lt(0, x), x, sub(exp(min(x, 0)), 1))"},
    {"selu", NULL},
    {"celu", NULL},
    {"glu", NULL},
    {"reglu", NULL},
    {"geglu", "write mul(gelu(a), b)"},
    {"swiglu", "write mul(silu(a), b)"},
    {"mish", NULL},
    {"prelu", "write select(lt(0, x), x, mul(x, slope))"},
    {"leaky_relu", "write select(lt(0, x), x, mul(x, slope))"},
    {"relu6", "write min(relu(x), 6)"},
    {"relu2", "write mul(relu(x), relu(x))"},
    {"hardtanh", "write min(max(x, -1), 1)"},
    {"logsigmoid", "write log(sigmoid(x))"},
    /* reductions */
    {"sum", "write reduce_sum(x) {axes = [..]}"},
    {"reduce_mean", "write mean(x) {axes = [..]}"},
    {"reduce_min", "write neg(reduce_max(neg(x)))"},
    {"amin", "write neg(reduce_max(neg(x)))"},
    {"argmax", NULL},
    {"argmin", NULL},
    {"cumsum", NULL},
    {"var", NULL},
    {"std", NULL},
    /* shapes */
    {"detach", "write stop_gradient(x)"},
    {"cat", "write concat"},
    {"permute", "write transpose(x) {perm = [..]}"},
    {"view", "write reshape(x) {shape = [..]}"},
    {"expand", "write broadcast(x) {shape = [..]}"},
    /* layers and losses */
    {"groupnorm", NULL},
    {"batchnorm", NULL},
    {"group_norm", NULL},
    {"batch_norm", NULL},
    {"embed", "write embedding(table, ids)"},
    {"dense", "write linear(x, weight, bias)"},
    {"cross_entropy_loss", "write cross_entropy(logits, targets)"},
    {"mse_loss", NULL},
};

enum { LONGEST = 32 };

static bool equal(const char *name, size_t length, const char *other)
{
    return strlen(other) == length && !memcmp(name, other, length);
}

static const char *op_name(const void *user, size_t i)
{
    (void)user;
    return i + 1 == F8_OP_INPUT ? NULL : f8_op_facts((f8_op)(i + 1))->name;
}

const char *f8_op_name_hint(const char *name, size_t length, char *buf, size_t size)
{
    char lower[LONGEST];
    buf[0] = 0;
    if (length > LONGEST)
        return buf;
    for (size_t i = 0; i < length; i++)
        lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + ('a' - 'A') : name[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (equal(lower, length, others[i].name)) {
            if (others[i].here)
                snprintf(buf, size, " (%s)", others[i].here);
            return buf;
        }
    const size_t most = length < 6 ? 1 : length < 10 ? 2 : 3; /* edits */
    return f8_suggest_within(lower, length, most, op_name, NULL, F8_OP_COUNT - 1, "", buf, size);
}
