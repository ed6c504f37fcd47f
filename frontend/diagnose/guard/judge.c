/* The rules of a guard: see judge.h. */
#include "frontend/diagnose/guard/judge.h"

#include <math.h>

/* Sorts the n values, which are few: qsort takes five times as long. */
static double median(double *value, int n)
{
    for (int i = 1; i < n; i++) {
        const double x = value[i];
        int at = i;
        for (; at > 0 && value[at - 1] > x; at--)
            value[at] = value[at - 1];
        value[at] = x;
    }
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

/* ---- the loss ---- */

/* The kept losses, the oldest first. Returns how many. */
static int in_order(const f8_loss_judge *j, double *out)
{
    const int n = j->n < F8_LOSS_KEPT ? (int)j->n : F8_LOSS_KEPT;
    for (int i = 0; i < n; i++)
        out[i] = j->kept[(j->n - n + i) % F8_LOSS_KEPT];
    return n;
}

static double noise_of(const double *kept, int n)
{
    double apart[F8_LOSS_KEPT];
    for (int i = 1; i < n; i++)
        apart[i - 1] = fabs(kept[i] - kept[i - 1]);
    return n < 2 ? 0 : 1.048 * median(apart, n - 1);
}

static double most_of(double a, double b, double c)
{
    return fmax(a, fmax(b, c));
}

/* What noise explains. `n` losses were kept. */
static double scatter_of(int64_t n, double noise, double size)
{
    const double most = 2 * size;
    return n < F8_LOSS_LAST ? most : n < F8_LOSS_KEPT ? fmin(8 * noise, most) : 8 * noise;
}

bool f8_judge_loss(f8_loss_judge *j, double loss, double *limit)
{
    double kept[F8_LOSS_KEPT];
    const int n = in_order(j, kept);
    bool far = false, at_once = false;
    *limit = NAN;
    if (n > 0) {
        const double noise = noise_of(kept, n), middle = median(kept, n);
        if (j->n == 1) {
            j->least = middle + 2 * fabs(middle);
            j->most = middle;
        } else if (j->n > 2) {
            j->least = fmin(j->least, middle);
            j->most = fmax(j->most, middle);
        }
        const double size = fabs(j->least), gain = j->most - j->least, above = loss - j->least;
        *limit = j->least + most_of(0.3 * size, scatter_of(j->n, noise, size), 0.05 * gain);
        far = loss > *limit;
        at_once = n >= F8_LOSS_LAST && far && above > most_of(10 * size, 100 * noise, gain);
    }
    j->far = (j->far << 1 | far) & ((1u << F8_LOSS_LAST) - 1);
    if (!far || j->n < F8_LOSS_FIRST)
        j->kept[j->n++ % F8_LOSS_KEPT] = loss;
    int count = 0;
    for (int i = 0; i < F8_LOSS_LAST; i++)
        count += j->far >> i & 1;
    return at_once || (far && count >= F8_LOSS_FAR);
}

int f8_judge_since(const f8_loss_judge *j)
{
    int ago = F8_LOSS_LAST - 1;
    while (ago >= 0 && !(j->far >> ago & 1))
        ago--;
    return ago;
}

/* ---- a scale ---- */

bool f8_judge_scale(float *ring, int64_t n, float scale, double *limit, int64_t *ago)
{
    *limit = NAN;
    *ago = 0;
    if (!(scale > 0) || isinf(scale))
        return true; /* the median goes on without it */
    double kept[F8_SCALE_KEPT];
    const int filled = n < F8_SCALE_KEPT ? (int)n : F8_SCALE_KEPT;
    const double now = log2((double)scale);
    bool far = false;
    if (filled >= F8_SCALE_LEAST) {
        for (int i = 0; i < filled; i++)
            kept[i] = (double)ring[i];
        const double middle = median(kept, filled);
        far = fabs(now - middle) > F8_SCALE_BITS;
        const double apart = now < middle ? -F8_SCALE_BITS : F8_SCALE_BITS;
        *limit = exp2(middle + apart);
        while (far && *ago < filled &&
               ((double)ring[(n - 1 - *ago) % F8_SCALE_KEPT] - middle) / apart > 1)
            ++*ago;
    }
    ring[n % F8_SCALE_KEPT] = (float)now;
    return far;
}

/* ---- statistics, and alarms ---- */

bool f8_judge_look(uint8_t *in_row, bool bad)
{
    *in_row = bad ? (uint8_t)(*in_row < F8_LOOKS ? *in_row + 1 : F8_LOOKS) : 0;
    return *in_row >= F8_LOOKS;
}

bool f8_judge_used(f8_used_judge *j, double used, double amax, double of_amax, double *middle)
{
    double kept[F8_USED_KEPT], largest = 0;
    const int64_t at = j->n++ % F8_USED_KEPT;
    const int n = j->n < F8_USED_KEPT ? (int)j->n : F8_USED_KEPT;
    j->amax[at] = (float)amax;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, (double)j->amax[i]);
    j->used[at] = (float)(of_amax > 0 ? fmin(1, largest * of_amax) : used);
    for (int i = 0; i < n; i++)
        kept[i] = (double)j->used[i];
    *middle = median(kept, n);
    return n >= F8_USED_FEWEST && *middle < F8_USED_LEAST;
}

bool f8_judge_raises(f8_alarm_state *s, bool bad)
{
    if (bad) {
        const bool raises = !s->raised;
        *s = (f8_alarm_state){.raised = true};
        return raises;
    }
    if (s->raised && ++s->quiet >= F8_QUIET)
        s->raised = false;
    return false;
}
