"""Plants changes in the formulas of composites, and shows that a test finds each.

usage: tests/planted_formulas.py BUILD [--all] [NAME ...]      CC, CFLAGS, LINK: what the Makefile gives
       (make check-formulas; --all: every judge that finds a change, not the first; NAME: of functions)

A composite's formula stands once in the product, in passes/unit/formulas.c; so what judges it must not be the
interpreter, which evaluates the same graph. A change is made in a copy of that file, which is compiled and linked
before the library, so nothing in the tree or in BUILD changes. Then the judges run, one after the other.

From the text of each function follow changes of every constant, of every op, of the operands' order and of a
select's arms. Other orders of operations are listed in ORDERS, which must fit the source: a line that does not is
an error. What changes no number is listed in SAME with its reason, and is planted, too: no judge may find it.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SOURCE = "passes/unit/formulas.c"
# Programs and their test cases. The last one only says that bits changed, so it comes last.
JUDGES = [("check_formulas", "definitions"), ("check_wide_losses", "definition"), ("check_gradients", "gradients"),
          ("check_formulas", "bits")]
FUNCTIONS = ["f8_mean_of", "row_rsqrt", "f8_layernorm_rows", "f8_rmsnorm_rows", "f8_layernorm", "f8_rmsnorm", "f8_softmax",
             "f8_silu", "f8_silu_slope", "gelu_gate", "f8_gelu", "f8_gelu_slope", "f8_rotated", "f8_dropped",
             "target_hit", "target_is_class", "sum_of_exp", "wide_sum_of_exp", "softmax_of_row", "where_counted",
             "counted_rows", "f8_ce_losses", "f8_ce_result", "f8_ce_scale", "f8_ce_grad", "f8_linear", "f8_amax_tensor",
             "f8_scale_of_amax", "f8_history_pushed"]
# Another op of as many operands, with another result for some operand.
OTHER = {"ADD": "SUB", "SUB": "ADD", "MUL": "DIV", "DIV": "MUL", "MIN": "MAX", "AND": "OR", "LT": "LE", "EQ": "LE",
         "REDUCE_MAX": "REDUCE_SUM", "REDUCE_SUM": "REDUCE_MAX", "REDUCE_AMAX": "REDUCE_MAX", "EXP": "TANH",
         "LOG": "SQRT", "RSQRT": "SQRT", "TANH": "ERF", "ERF": "TANH", "SIGMOID": "TANH", "POW2_FLOOR": "NEG",
         "ROPE_COS": "ROPE_SIN", "ROPE_SIN": "ROPE_COS", "ABS": "NEG", "SILU_BF16": "SILU_BF16_SLOPE",
         "SILU_BF16_SLOPE": "SILU_BF16", "GELU_TANH": "GELU_ERF", "GELU_ERF": "GELU_TANH",
         "GELU_TANH_SLOPE": "GELU_ERF_SLOPE", "GELU_ERF_SLOPE": "GELU_TANH_SLOPE"}
ORDERED = ("SUB", "DIV", "LT")

B = "f8_binary(g, F8_OP_"
ORDERS = {
    "row_rsqrt": [
        ("eps inside the mean of squares", f"{B}ADD, square, f8_const(g, eps))",
         f"f8_mean_of(g, x, {B}ADD, f8_row_sum(g, {B}MUL, x, x)), f8_const(g, eps)))"),
        ("1 / sqrt", f"f8_unary(g, F8_OP_RSQRT, {B}ADD, square, f8_const(g, eps)))",
         f"f8_unary(g, F8_OP_RSQRT, f8_mul_const(g, {B}ADD, f8_mul_const(g, square, 3), f8_const(g, 3 * eps)), 1.0 / 3))")],
    "f8_layernorm_rows": [
        ("the mean of squares less the square of the mean", "s.rstd = row_rsqrt(g, centred, eps);",
         f"s.rstd = f8_unary(g, F8_OP_RSQRT, {B}ADD, {B}SUB, f8_row_mean(g, {B}MUL, x, x)), {B}MUL, s.mean, s.mean)), "
         "f8_const(g, eps)));"),
        ("x rstd - mean rstd", f"{B}MUL, centred, s.rstd)",
         f"{B}SUB, {B}MUL, x, s.rstd), {B}MUL, s.mean, s.rstd))")],
    "f8_layernorm": [
        ("multiply and add, each rounded", "return f8_make(g, F8_OP_FMA, in, 3, NULL, 0);",
         f"return {B}ADD, {B}MUL, in[0], in[1]), in[2]);"),
        ("weight and bias exchanged", "return f8_make(g, F8_OP_FMA, in, 3, NULL, 0);",
         "return f8_make(g, F8_OP_FMA, (f8_ref[]){in[0], in[2], in[1]}, 3, NULL, 0);")],
    "f8_rmsnorm": [
        ("x (rstd w)", f"{B}MUL, f8_rmsnorm_rows(g, x, eps).xhat, f8_cast(g, weight, F8_F32))",
         f"{B}MUL, x, {B}MUL, f8_rmsnorm_rows(g, x, eps).rstd, f8_cast(g, weight, F8_F32)))")],
    "f8_softmax": [
        ("e (1 / sum)", f"{B}DIV, e, f8_row_sum(g, e))", f"{B}MUL, e, {B}DIV, f8_const(g, 1), f8_row_sum(g, e)))"),
        ("exp without the largest", "f8_ref e = f8_unary(g, F8_OP_EXP, shifted);",
         "(void)shifted;\n    f8_ref e = f8_unary(g, F8_OP_EXP, x);")],
    "f8_silu": [
        ("x / (1 + exp(-x))", f"{B}MUL, x, f8_unary(g, F8_OP_SIGMOID, x))",
         f"{B}DIV, x, {B}ADD, f8_const(g, 1), f8_unary(g, F8_OP_EXP, f8_unary(g, F8_OP_NEG, x))))")],
    "gelu_gate": [
        ("x (c poly)", f"{B}MUL, f8_mul_const(g, x, sqrt_2_over_pi), poly)",
         f"{B}MUL, x, f8_mul_const(g, poly, sqrt_2_over_pi))"),
        ("x (x c)", f"f8_mul_const(g, {B}MUL, x, x), gelu_cubic)", f"{B}MUL, x, f8_mul_const(g, x, gelu_cubic))"),
        ("tanh of 2 u from exp", "*t = f8_unary(g, F8_OP_TANH, u);",
         f"*t = {B}SUB, f8_mul_const(g, f8_unary(g, F8_OP_SIGMOID, f8_mul_const(g, u, 2)), 2), f8_const(g, 1));"),
        ("x / sqrt(2)", "f8_mul_const(g, x, sqrt_half)", f"{B}DIV, x, f8_const(g, 1.41421356237309504880))")],
    "f8_gelu": [
        ("x + x t, halved", f"{B}MUL, x, gelu_gate(g, x, form.tanh, &t))",
         f"(gelu_gate(g, x, form.tanh, &t), f8_mul_const(g, {B}ADD, x, {B}MUL, x, t)), 0.5))")],
    "f8_rotated": [
        ("a fused multiply-add", "f8_binary(g, inverse ? F8_OP_SUB : F8_OP_ADD, straight, across)",
         "f8_make(g, F8_OP_FMA, (f8_ref[]){inverse ? f8_unary(g, F8_OP_NEG, f8_reshape(g, rolled, &split)) : "
         "f8_reshape(g, rolled, &split), sine, straight}, 3, NULL, 0)"),
        ("the other direction", "inverse ? F8_OP_SUB", "!inverse ? F8_OP_SUB")],
    "f8_dropped": [
        ("x / (1 - p)", "f8_mul_const(g, x, 1 / (1 - d->p))", f"{B}DIV, x, f8_const(g, 1 - d->p))"),
        ("row and column exchanged", "random_bits(g, c, r, key)", "random_bits(g, r, c, key)"),
        ("seed and stream exchanged", "random_bits(g, seed, const_i32(g, (double)d->stream), zero)",
         "random_bits(g, const_i32(g, (double)d->stream), seed, zero)")],
    "f8_ce_losses": [
        ("max + log(sum) first", "f8_ref below = f8_binary(g, F8_OP_SUB, s.top, picked);\n"
         "    f8_ref loss = f8_binary(g, F8_OP_ADD, below, s.log_sum);",
         f"f8_ref loss = {B}SUB, {B}ADD, s.top, s.log_sum), picked);"),
        ("smoothing of each", "f8_mul_const(g, above, ce->smoothing)",
         f"((void)above, {B}SUB, f8_mul_const(g, picked, ce->smoothing), "
         "f8_mul_const(g, f8_row_mean(g, logits), ce->smoothing)))")],
    "f8_ce_result": [
        ("each row's share, then the sum", f"{B}DIV, sum, counted_rows(g, ce, targets))",
         f"f8_sum_all(g, f8_reshape_to(g, {B}DIV, losses, counted_rows(g, ce, targets)), 1, &rows))")],
    "f8_ce_grad": [
        ("max + log(sum) first", "f8_ref below = f8_binary(g, F8_OP_SUB, logits, s.top);\n"
         "    f8_ref p = f8_unary(g, F8_OP_EXP, f8_binary(g, F8_OP_SUB, below, s.log_sum));",
         f"f8_ref p = f8_unary(g, F8_OP_EXP, {B}SUB, logits, {B}ADD, s.top, s.log_sum)));"),
        ("p scale - wanted scale", f"{B}MUL, {B}SUB, p, wanted), scale)",
         f"{B}SUB, {B}MUL, p, scale), {B}MUL, wanted, scale))")],
    "f8_linear": [("the bias twice", "F8_OP_ADD, y, bias)", f"F8_OP_ADD, y, {B}ADD, bias, bias))"),
                  ("the weight as the other operand", "{x, w}", "{w, x}")],
    "f8_scale_of_amax": [
        ("the largest f32 after the power of two", f"    scale = {B}MIN, scale, f8_const(g, FLT_MAX));\n"
         "    if (pow2)\n        scale = f8_unary(g, F8_OP_POW2_FLOOR, scale);",
         "    if (pow2)\n        scale = f8_unary(g, F8_OP_POW2_FLOOR, scale);\n"
         f"    scale = {B}MIN, scale, f8_const(g, FLT_MAX));"),
        ("1 / amax first", f"{B}DIV, f8_const(g, top), amax)",
         f"f8_mul_const(g, {B}DIV, f8_const(g, 1), amax), top)")],
    "f8_history_pushed": [("the newest last", "{newest, f8_slice(g, history, -1, 0, n - 1)}",
                           "{f8_slice(g, history, -1, 1, n), newest}")],
    "f8_mean_of": [("times 1 / n", f"{B}DIV, sum, f8_const(g, (double)n))", "f8_mul_const(g, sum, 1 / (double)n)")],
}
SAME = {  # FUNCTION, what is planted: why no number changes
    ("f8_dropped", "value d->p"): "whether p is 0",
    ("f8_amax_tensor", "op REDUCE_AMAX, no. 2"): "the rows' results are not negative",
}


def functions(text):
    """The body of each function in FUNCTIONS, by name: (first, last) offsets."""
    found = {}
    for name in FUNCTIONS:
        match = re.search(rf"^[a-z][^;{{}}()\n]*\b{name}\([^;{{}}]*\)\n{{\n.*?^}}\n", text, re.M | re.S)
        assert match, f"{SOURCE} has no function {name}"
        found[name] = match.span()
    return found


def arguments(text, at):
    """The spans of the arguments of the call whose '(' is at `at`."""
    spans, depth, first = [], 0, at + 1
    for i in range(at, len(text)):
        if text[i] in "({[":
            depth += 1
        elif text[i] in ")}]":
            depth -= 1
        if (text[i] == "," and depth == 1) or depth == 0:
            spans.append((first, i))
            first = i + 1
        if depth == 0:
            return spans
    raise AssertionError("unbalanced")


def exchanged(body, call, a, b):
    spans = arguments(body, call)
    (a0, a1), (b0, b1) = spans[a], spans[b]
    return body[:a0] + body[b0:b1] + body[a1:b0] + body[a0:a1] + body[b1:]


def derived(body):
    """(what, changed body) of a function: from its constants, ops, operands and arms."""
    for m in re.finditer(r"(f8_const\(g|const_i32\(g), (-?\d+)\)", body):
        yield f"constant {m[2]}", body[:m.start(2)] + str(int(m[2]) + 1) + body[m.end(2):]
    for m in re.finditer(r"(?<![\w.])(\d+\.\d+|0x1p\d+|[1-9]\d*(?= (?:\*|/|-) [a-z(]))", body):
        value = str(float.fromhex(m[1]) * 1.01 if m[1].startswith("0x") else float(m[1]) * 1.01)
        yield f"constant {m[1]}", body[:m.start()] + value + body[m.end():]
    for m in re.finditer(r"\b(gelu_cubic|sqrt_2_over_pi|sqrt_half|inv_sqrt_2pi|top|eps|all|FLT_MAX|classes|d->p|"
                         r"ce->smoothing|\(double\)n|\(double\)rows)(?=[,;) ])(?! =[^=]| >)(?<!\.top)", body):
        if body[:m.start()].endswith(("double ", "f8_ref ", "s.", "{.")) or "static" in body[m.start() - 20:m.start()]:
            continue
        if m[1] == "classes" or (m[1] == "top" and "softmax_row" in body):
            continue
        yield f"value {m[1]}", body[:m.start()] + f"({m[1]} * 1.0001)" + body[m.end():]
    for m in re.finditer(r"F8_OP_(\w+)", body):
        if m[1] in OTHER:
            yield f"op {m[1]}", body[:m.start(1)] + OTHER[m[1]] + body[m.end(1):]
        else:
            assert m[1] in ("CONST", "SELECT", "FMA", "ROLL", "IOTA", "RANDOM_BITS", "MATMUL", "ISFINITE", "CAST",
                            "BATCH_MATMUL", "SCALED_MATMUL"), f"{SOURCE}: no other op for {m[1]}"
    for m in re.finditer(r"f8_binary(\()g, F8_OP_(\w+)", body):
        if m[2] in ORDERED:
            yield f"operands of {m[2]}", exchanged(body, m.start(1), 2, 3)
    for m in re.finditer(r"f8_select(\()", body):
        yield "arms of select", exchanged(body, m.start(1), 2, 3)


def changes(text, names):
    spans = functions(text)
    known = set(ORDERS) | {f for f, _ in SAME}
    assert known <= set(spans), known - set(spans)
    for name, (first, last) in spans.items():
        if names and name not in names:
            continue
        body = text[first:last]
        squeezed = re.sub(r"\s+", " ", body)
        count = {}
        planted = list(derived(body))
        for what, old, new in ORDERS.get(name, []):
            pattern = r"\s+".join(re.escape(word) for word in old.split())
            assert len(re.findall(pattern, body)) == 1, f"{SOURCE}: {name}: '{what}' does not fit: {old}\n{squeezed}"
            planted.append((f"order: {what}", re.sub(pattern, lambda _: new, body)))
        for what, changed in planted:
            count[what] = count.get(what, 0) + 1
            yield name, what if count[what] == 1 else f"{what}, no. {count[what]}", text[:first] + changed + text[last:]


def judge(build, folder, source, every):
    """The judges that find a change."""
    cc, cflags, link = (shlex.split(os.environ[name]) for name in ("CC", "CFLAGS", "LINK"))
    for name, _ in JUDGES:
        (folder / name).unlink(missing_ok=True)
    (folder / "formulas.c").write_text(source)
    done = subprocess.run([*cc, *cflags, "-Wno-error", "-c", str(folder / "formulas.c"), "-o", str(folder / "formulas.o")],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = []
    for name, case in JUDGES:
        test = next(pathlib.Path(build, "obj/tests").rglob(f"{name}.o"))
        if not (folder / name).exists():
            subprocess.run([*cc, *cflags, "-o", str(folder / name), str(test), str(folder / "formulas.o"), *link],
                           check=True)
        try:
            done = subprocess.run([str(folder / name)], capture_output=True, check=False, timeout=300,
                                  env=os.environ | {"CK_RUN_CASE": case})
        except subprocess.TimeoutExpired:
            done = None
        assert not done or b"Checks: 0" not in done.stdout, f"{name} has no case {case}"
        if done is None or done.returncode != 0:
            found.append(f"{name}.{case}")
            if not every:
                break
    return found


def main():
    args = sys.argv[1:]
    every = "--all" in args
    build, *names = [a for a in args if a != "--all"]
    text = pathlib.Path(SOURCE).read_text()
    missed, n, by = [], 0, {f"{name}.{case}": 0 for name, case in JUDGES}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = judge(build, folder, text, True)
        assert not found, f"without a change, {found} fail"
        for function, what, source in list(changes(text, names)):
            found = judge(build, folder, source, every)
            n += 1
            for test in found:
                by[test] += 1
            same = SAME.get((function, what))
            wrong = bool(found) == bool(same)
            print(f"{function}: {what}: {', '.join(found) or 'NOT FOUND'}{f' (no number changes: {same})' if same else ''}",
                  flush=True)
            if wrong:
                missed.append(f"{function}: {what}")
    print(f"{n} changes; found by {by}; {len(missed)} not as they should be")
    for line in missed:
        print(f"  {line}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
