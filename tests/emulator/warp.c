/* The operations of a whole warp: what each lane gets once all have arrived.
 *
 * Layouts are PTX's. mma.m16n8k16: with g = lane / 4 and t = lane % 4, a[0..3] hold the pairs at
 * rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8; b[0..1] those at column g and rows
 * 2t, 2t + 8; d[0..3] the elements at rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
 */
#include "tests/emulator/block.h"

#include <string.h>

/* Products are exact in f32 (8 bits by 8); sums run over k in f32, one rounding each. Tensor cores
 * round otherwise: no result may depend on either. */
__attribute__((target_clones("avx2", "default"))) static void product(float d[16][8],
                                                                      const float a[16][16],
                                                                      const float b[16][8])
{
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                d[i][j] += a[i][k] * b[k][j];
}

static float low(uint32_t pair)
{
    const uint32_t u = pair << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static float high(uint32_t pair)
{
    return low(pair >> 16);
}

static void mma_bf16(f8_emu_lane lane[F8_EMU_WARP])
{
    float a[16][16], b[16][8], d[16][8];
    for (int l = 0; l < F8_EMU_WARP; l++) {
        const int g = l / 4, t = l % 4 * 2;
        const uint32_t *from_a = lane[l].in[0], *from_b = lane[l].in[1];
        const float *from_d = lane[l].out;
        for (int i = 0; i < 4; i++) {
            const int row = g + i % 2 * 8, column = t + i / 2 * 8;
            a[row][column] = low(from_a[i]);
            a[row][column + 1] = high(from_a[i]);
            d[g + i / 2 * 8][t + i % 2] = from_d[i];
        }
        for (int i = 0; i < 2; i++) {
            b[t + i * 8][g] = low(from_b[i]);
            b[t + i * 8 + 1][g] = high(from_b[i]);
        }
    }
    product(d, (const float(*)[16])a, (const float(*)[8])b);
    for (int l = 0; l < F8_EMU_WARP; l++) {
        float *to = lane[l].out;
        for (int i = 0; i < 4; i++)
            to[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
    }
}

/* Lane l gets, of each matrix, the pair at row l / 4 and columns 2 (l % 4) and the next;
 * transposed, the pair at column l / 4 and those rows. */
static void ldmatrix(f8_emu_lane lane[F8_EMU_WARP], bool transpose)
{
    uint16_t matrix[4][8][8];
    for (int l = 0; l < F8_EMU_WARP; l++)
        memcpy(matrix[l / 8][l % 8], lane[l].in[0], 16);
    for (int l = 0; l < F8_EMU_WARP; l++) {
        uint32_t *to = lane[l].out;
        const int g = l / 4, t = l % 4 * 2;
        for (int m = 0; m < 4; m++)
            to[m] = transpose ? matrix[m][t][g] | (uint32_t)matrix[m][t + 1][g] << 16
                              : matrix[m][g][t] | (uint32_t)matrix[m][g][t + 1] << 16;
    }
}

void f8_emu_warp_op(f8_emu_lane lane[F8_EMU_WARP])
{
    uint32_t got[F8_EMU_WARP];
    switch (lane[0].op) {
    case F8_EMU_OP_NONE:
    case F8_EMU_OP_SYNC: return;
    case F8_EMU_OP_SHFL:
    case F8_EMU_OP_SHFL_XOR:
        for (int l = 0; l < F8_EMU_WARP; l++) {
            const int from = lane[l].op == F8_EMU_OP_SHFL ? lane[l].lane : l ^ lane[l].lane;
            got[l] = lane[from & (F8_EMU_WARP - 1)].value;
        }
        for (int l = 0; l < F8_EMU_WARP; l++)
            lane[l].value = got[l];
        return;
    case F8_EMU_OP_MMA_BF16: mma_bf16(lane); return;
    case F8_EMU_OP_LDMATRIX: ldmatrix(lane, false); return;
    case F8_EMU_OP_LDMATRIX_TRANS: ldmatrix(lane, true); return;
    }
}
