/* Chunk: computes the head and its cross-entropy some rows at a time, so that the whole logits
 * never exist.
 *
 * logits = matmul(x, w) -> cross_entropy, and in micro_step cross_entropy_grad -> dgrad and wgrad,
 * become for each chunk of rows: slices of x and targets, the matmul, losses, the logits' gradient,
 * a piece of dx, and one more term in dw's chain of accumulators. A chunk reads nothing of the one
 * before it but that sum. So their order in the graph, chunk after chunk, is the order that needs
 * one chunk's logits at a time.
 *
 * The losses of rows are gathered and summed as the whole's would be, so the loss does not depend
 * on the chunks. (dw does: its sum over rows is cut at their bounds.) The rows of a chunk depend on
 * shapes alone.
 *
 * In the joint function of a pair the caller's cotangent comes between loss and gradient. There a
 * chunk's loss is made where the loss is, and its gradient where the gradient is. Both read the
 * same logits, which keep the number that says what they are (F8_CLONE_LOGITS): no pair saves them.
 *
 * Only this exact pattern is rewritten. Logits that another node reads, that are changed on the way
 * (by a bias or soft-capping), or whose losses are not added up (reduction "none"), stay whole.
 *
 * Requires: entry points. Breaks: nothing. */
#include "passes/unit/copy.h"
#include "passes/unit/formulas.h"
#include "passes/pipeline.h"

#include <string.h>

enum { WHOLE_BYTES = 4 << 20, CHUNK_MIN = 16, CHUNKS_MAX = 1024 };

/* The pattern, as refs of the old graph; 0 where absent. */
typedef struct head {
    f8_ref logits, loss;  /* matmul(x, w), cross_entropy */
    f8_ref grad, rounded; /* cross_entropy_grad; the one cast of it to the GEMMs' dtype */
    f8_ref dgrad, dx;     /* the matmul; dx is its result, or the one cast of that */
    f8_ref wgrad;         /* matmul */
} head;

/* Linears whose heads were cut. */
typedef struct cut_heads {
    const char **name;
    size_t n, room;
} cut_heads;

typedef struct chunker {
    f8_unit *u;
    const cut_heads *only; /* no other head is cut; NULL: all may be */
    bool joint; /* the function is one of forward and backward, which are cut apart later */
    f8_func *f;
    const f8_graph *from;
    f8_graph *to;
    f8_uses uses;
    f8_ref *map;
} chunker;

static bool may_cut(const chunker *c, f8_ref logits)
{
    const char *name = f8_attr_s(c->from, logits, F8_A_NAME);
    for (size_t i = 0; c->only && *name && i < c->only->n; i++)
        if (!strcmp(c->only->name[i], name))
            return true;
    return !c->only || !*name;
}

/* The rows of a chunk of these logits, f32 [rows, columns]: all rows when these are few bytes, else
 * a power of two. */
static int64_t chunk_rows(const chunker *c, f8_ref logits)
{
    const f8_type *t = f8_type_of(c->from, logits);
    const int64_t rows = f8_type_rows(t), columns = f8_type_columns(t);
    if (rows <= WHOLE_BYTES / 4 / columns || !may_cut(c, logits))
        return rows;
    int64_t size = CHUNK_MIN;
    while (size * 2 <= rows && size * 2 * columns * 4 <= f8_unit_target(c->u)->head_bytes)
        size *= 2;
    while ((rows - 1) / size >= CHUNKS_MAX)
        size *= 2;
    return size < rows ? size : rows;
}

/* ---- finding the pattern ---- */

static uint32_t n_uses(const chunker *c, f8_ref r)
{
    return c->uses.start[r + 1] - c->uses.start[r];
}

static f8_ref use(const chunker *c, f8_ref r, uint32_t i)
{
    return c->uses.user[c->uses.start[r] + i];
}

static bool has_role(const f8_graph *g, f8_ref r, const char *role)
{
    return f8_at(g, r)->op == F8_OP_MATMUL && !strcmp(f8_attr_s(g, r, F8_A_ROLE), role);
}

/* Match the readers of the logits' gradient: at most one dgrad and one wgrad. */
static bool match_backward(const chunker *c, head *h)
{
    const f8_graph *g = c->from;
    h->rounded = h->grad;
    if (n_uses(c, h->grad) == 1 && f8_at(g, use(c, h->grad, 0))->op == F8_OP_CAST)
        h->rounded = use(c, h->grad, 0);
    for (uint32_t i = 0; i < n_uses(c, h->rounded); i++) {
        f8_ref r = use(c, h->rounded, i);
        if (r && !h->dgrad && has_role(g, r, "dgrad") && f8_at(g, r)->in[0] == h->rounded)
            h->dgrad = h->dx = r;
        else if (r && !h->wgrad && has_role(g, r, "wgrad"))
            h->wgrad = r;
        else
            return false;
    }
    if (h->dgrad && n_uses(c, h->dgrad) == 1 && f8_at(g, use(c, h->dgrad, 0))->op == F8_OP_CAST)
        h->dx = use(c, h->dgrad, 0);
    return true;
}

static bool match(const chunker *c, f8_ref logits, head *h)
{
    const f8_graph *g = c->from;
    *h = (head){.logits = logits};
    if (f8_at(g, logits)->op != F8_OP_MATMUL || f8_at(g, logits)->n_in != 2 ||
        f8_attr_i(g, logits, F8_A_TRANSPOSE_A))
        return false;
    if (chunk_rows(c, logits) == f8_type_rows(f8_type_of(g, logits)))
        return false;
    for (uint32_t i = 0; i < n_uses(c, logits); i++) {
        f8_ref r = use(c, logits, i);
        f8_op op = f8_at(g, r)->op;
        if (op == F8_OP_CROSS_ENTROPY && !h->loss)
            h->loss = r;
        else if (op == F8_OP_CROSS_ENTROPY_GRAD && !h->grad)
            h->grad = r;
        else
            return false;
    }
    if (!h->loss || (h->grad && !match_backward(c, h)))
        return false;
    /* Everything is made at the position of loss or grad, whichever is later. So no node may need
     * the loss before. (A joint function has the losses at the loss's position.) */
    for (uint32_t i = 0; h->grad && !c->joint && i < n_uses(c, h->loss); i++)
        if (use(c, h->loss, i) && use(c, h->loss, i) < h->grad)
            return false;
    if (f8_ce_of(g, h->loss).reduction == F8_CE_NONE)
        return false;
    return !h->grad || f8_at(g, h->grad)->in[1] == f8_at(g, h->loss)->in[1];
}

/* ---- rewriting ---- */

static f8_ref mapped(const chunker *c, f8_ref r, uint32_t i)
{
    return c->map[f8_at(c->from, r)->in[i]];
}

/* A MATMUL with the attributes and the clone number of old node `as` and, for the n-th chunk, its
 * name with n appended. */
static f8_ref product(const chunker *c, f8_ref as, int chunk, const f8_ref in[4])
{
    const f8_node *n = f8_at(c->from, as);
    const int n_in = 2 + (in[2] != 0) + (in[3] != 0);
    f8_ref r = f8_make_clone(c->to, F8_OP_MATMUL, in, n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                             n->clone);
    if (c->from->name[as]) {
        const char *name = f8_arena_printf(c->u->arena, "%s.%d", c->from->name[as], chunk);
        f8_set_name(c->to, r, name ? name : "");
    }
    return r;
}

static f8_ref as_matrix(f8_graph *g, f8_ref x)
{
    if (!x)
        return 0;
    const f8_type *t = f8_type_of(g, x);
    return f8_reshape_to(g, x, 2, (int64_t[]){f8_type_rows(t), f8_type_columns(t)});
}

typedef struct pieces {
    f8_ce ce;
    f8_ref x, targets; /* the rows of this chunk */
    f8_ref scale;      /* of the logits' gradient */
    f8_ref *loss, *dx;
    f8_ref dw, adds; /* adds: of dw, where the next chunk is its first (f8_gemm_operands) */
    int n;
} pieces;

static void add_gradients(const chunker *c, const head *h, pieces *p, f8_ref logits)
{
    f8_graph *g = c->to;
    f8_ref d = f8_ce_grad(g, &p->ce, logits, p->targets, p->scale);
    d = f8_cast(g, d, f8_type_of(c->from, h->rounded)->dtype);
    if (h->dgrad)
        p->dx[p->n] =
            f8_cast(g, product(c, h->dgrad, p->n, (f8_ref[]){d, mapped(c, h->dgrad, 1), 0, 0}),
                    f8_type_of(c->from, h->dx)->dtype);
    if (h->wgrad) {
        const bool x_first = f8_at(c->from, h->wgrad)->in[0] != h->rounded;
        p->dw = product(c, h->wgrad, p->n,
                        (f8_ref[]){x_first ? p->x : d, x_first ? d : p->x, p->dw, p->adds});
        p->adds = 0;
    }
}

/* dw's running sum starts the chain: operand 2, and whether it holds anything, operand 3; 0: there
 * is none. sum_is_ready checks that both exist by then. */
static f8_ref starting_sum(const chunker *c, const head *h, uint32_t operand)
{
    return h->wgrad && f8_at(c->from, h->wgrad)->n_in > operand ? mapped(c, h->wgrad, operand) : 0;
}

/* The chunks' losses, their gradients, or both from the same logits. */
static f8_status make_chunks(chunker *c, const head *h, bool losses, bool gradients)
{
    f8_graph *g = c->to;
    f8_ref x = as_matrix(g, mapped(c, h->logits, 0)), targets = mapped(c, h->loss, 1);
    int64_t rows = f8_type_rows(f8_type_of(g, x));
    int64_t size = chunk_rows(c, h->logits), count = (rows + size - 1) / size;
    pieces p = {.ce = f8_ce_of(c->from, h->loss),
                .loss = F8_NEW_ARRAY(c->u->arena, f8_ref, (size_t)count),
                .dx = F8_NEW_ARRAY(c->u->arena, f8_ref, (size_t)count)};
    if (!p.loss || !p.dx)
        return f8_arena_status(c->u->arena, c->u->diag);
    if (gradients) {
        p.dw = starting_sum(c, h, 2);
        p.adds = starting_sum(c, h, 3);
        p.scale = f8_ce_scale(g, &p.ce, mapped(c, h->grad, 2), targets);
    }
    targets = f8_reshape_to(g, targets, 1, &rows);
    for (int64_t at = 0; at < rows; at += size, p.n++) {
        const int64_t end = at + size < rows ? at + size : rows;
        p.x = f8_slice(g, x, 0, at, end);
        p.targets = f8_slice(g, targets, 0, at, end);
        const f8_ref logits =
            product(c, h->logits, p.n, (f8_ref[]){p.x, mapped(c, h->logits, 1), 0, 0});
        p.loss[p.n] = losses ? f8_ce_losses(g, &p.ce, logits, p.targets) : 0;
        if (gradients)
            add_gradients(c, h, &p, logits);
    }
    if (losses)
        c->map[h->loss] = f8_ce_result(g, &p.ce, f8_concat(g, p.loss, (size_t)p.n, 0), targets);
    if (gradients && h->dx)
        c->map[h->dx] =
            f8_reshape(g, f8_concat(g, p.dx, (size_t)p.n, 0), f8_type_of(c->from, h->dx));
    if (gradients && h->wgrad)
        c->map[h->wgrad] = p.dw;
    return c->u->diag->status;
}

/* Whether the sum from which dw's chain goes on is already copied when the chunks are made. */
static bool sum_is_ready(const chunker *c, const head *h, f8_ref place)
{
    bool ready = true;
    for (uint32_t i = 2; h->wgrad && i < f8_at(c->from, h->wgrad)->n_in; i++)
        ready &= f8_at(c->from, h->wgrad)->in[i] < place;
    return ready;
}

static f8_status copy_ports(chunker *c)
{
    for (size_t i = 0; i < c->f->n_in; i++) {
        f8_port *p = &c->f->in[i];
        c->to->at = c->from->loc[p->ref];
        f8_ref r = f8_input(c->to, (int64_t)i, &p->type);
        f8_set_name(c->to, r, c->from->name[p->ref]);
        c->map[p->ref] = r;
    }
    return c->u->diag->status;
}

/* Copies f with the head in chunks. f8_func_rewrite does not fit here: a chunk is made of the
 * operands of several nodes. */
static f8_status rebuild(chunker *c, const head *h)
{
    const f8_graph *g = c->from;
    f8_ref place = h->loss > h->grad ? h->loss : h->grad;
    f8_ref *buffer = F8_NEW_ARRAY(c->u->arena, f8_ref, f8_widest(g));
    f8_ref *root = F8_NEW_ARRAY(c->u->arena, f8_ref, c->f->n_out);
    c->map = F8_NEW_ARRAY(c->u->arena, f8_ref, g->n_nodes);
    c->to = f8_graph_create(c->u->module, c->u->diag);
    if (!buffer || !root || !c->map || !c->to)
        return f8_arena_status(c->u->arena, c->u->diag);
    for (size_t i = 0; i < c->f->n_out; i++)
        root[i] = c->f->out[i].ref;
    bool *live = f8_live_nodes(g, root, c->f->n_out, c->u->arena);
    if (!live)
        return f8_arena_status(c->u->arena, c->u->diag);
    F8_TRY(copy_ports(c));
    const f8_ref gone[] = {h->logits, h->loss, h->grad, h->rounded, h->dgrad, h->dx, h->wgrad};
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        bool skip = !live[r] || f8_at(g, r)->op == F8_OP_INPUT;
        for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
            skip |= gone[i] == r;
        c->to->at = g->loc[r];
        if (c->joint && (r == h->loss || r == h->grad))
            F8_TRY(make_chunks(c, h, r == h->loss, r == h->grad));
        else if (!c->joint && r == place)
            F8_TRY(make_chunks(c, h, true, h->grad != 0));
        if (!skip &&
            !(c->map[r] = f8_copy_node(c->to, g, r, f8_map_operands(g, r, c->map, buffer))))
            return c->u->diag->status;
    }
    c->to->at = F8_NOWHERE;
    for (size_t i = 0; i < c->f->n_in; i++)
        c->f->in[i].ref = c->map[c->f->in[i].ref];
    for (size_t i = 0; i < c->f->n_out; i++)
        c->f->out[i].ref = c->map[c->f->out[i].ref];
    c->f->graph = c->to;
    return c->u->diag->status;
}

static f8_status note_cut(f8_unit *u, cut_heads *cut, const char *name)
{
    const char **grown =
        f8_arena_grow(u->arena, cut->name, cut->n, &cut->room, cut->n + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(u->arena, u->diag);
    cut->name = grown;
    cut->name[cut->n++] = name;
    return F8_OK;
}

/* Rewrite the first head of f that is large enough; *found says whether there was one. */
static f8_status chunk_one(f8_unit *u, f8_func *f, const cut_heads *only, cut_heads *cut,
                           bool *found)
{
    chunker c = {
        .u = u, .only = only, .joint = !strcmp(f->name, "joint"), .f = f, .from = f->graph};
    head h;
    F8_TRY(f8_compute_uses(f, u->arena, &c.uses, u->diag));
    for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
        if (f8_at(f->graph, r)->op != F8_OP_CROSS_ENTROPY ||
            !match(&c, f8_at(f->graph, r)->in[0], &h))
            continue;
        const f8_ref place = h.loss > h.grad || !h.grad ? h.loss : h.grad;
        if (!sum_is_ready(&c, &h, c.joint && h.grad ? h.grad : place))
            continue;
        *found = true;
        F8_TRY(note_cut(u, cut, f8_attr_s(f->graph, h.logits, F8_A_NAME)));
        return rebuild(&c, &h);
    }
    return F8_OK;
}

/* Only heads that the first function cuts may be cut in the others. A scale belongs to an operand
 * of one chunk, so all functions that share scales have the same chunks. */
f8_status f8_pass_chunk(f8_unit *u)
{
    static const char *const names[] = {"micro_step", "joint", "eval"};
    cut_heads first = {0}, rest = {0};
    bool is_first = true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        f8_func *f = f8_module_find_func(u->module, names[i]);
        bool found = f != NULL;
        while (found) {
            F8_TRY(f8_func_rewrite(f, NULL, NULL)); /* dead users would hide the pattern */
            found = false;
            F8_TRY(chunk_one(u, f, is_first ? NULL : &first, is_first ? &first : &rest, &found));
        }
        is_first &= f == NULL;
    }
    return F8_OK;
}
