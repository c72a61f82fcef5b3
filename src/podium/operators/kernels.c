/* Loops that torch has no fast version of, for the CPU. kernels.py compiles and calls them, and defines PARTS and
   MOST_TOKENS.

   Images lie in memory as [images, height, width, channels]. A sum is computed by one thread, in one order: the number
   of threads does not change its bits. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16 /* channels that are computed at once: what an AVX-512 register holds of float32 */
#define LARGEST 9 /* side of a kernel */

typedef uint16_t bfloat16; /* the upper half of a float32 */
typedef float lanes[LANES];

static inline float widen(bfloat16 value) {
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Rounds to the nearest, ties to even. */
static inline bfloat16 narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value != value ? 0x7fc0 : (bfloat16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* e to the power of a number that is not positive, with a relative error of 3e-6. */
static inline float exponential(float power) {
    float twos = power * 1.44269504f, whole = rintf(twos < -126.0f ? -126.0f : twos), rest = twos - whole;
    float mantissa = 1.0f + rest * (0.69314718f + rest * (0.24022651f + rest * (0.05550411f +
                     rest * (0.00961813f + rest * 0.00133336f))));
    int32_t bits = ((int32_t)whole + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return twos < -126.0f ? 0.0f : mantissa * scale;
}

/* --- a GELU after a linear layer ---------------------------------------------------------------------------------- */

typedef struct {
    float value, slope;
} gelu_at;

/* x times the normal distribution up to x (Abramowitz and Stegun 7.1.26, absolute error 1.5e-7), and its derivative. */
static inline gelu_at gelu(float x) {
    float density = exponential(-0.5f * x * x), near = 1.0f / (1.0f + 0.23164189f * fabsf(x));
    float tail = density * near * (0.127414796f + near * (-0.142248368f + near * (0.710706871f +
                 near * (-0.726576014f + near * 0.530702715f))));
    float share = x < 0 ? tail : 1.0f - tail;
    return (gelu_at){x * share, share + x * density * 0.39894228f};
}

/* Writes the GELU of the inputs and the bias. */
void gelu_with_bias(const bfloat16 *inputs, const float *bias, bfloat16 *outputs, long rows, long columns) {
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++) {
        const bfloat16 *restrict in = inputs + row * columns;
        bfloat16 *restrict out = outputs + row * columns;
        for (long i = 0; i < columns; i++) out[i] = narrow(gelu(widen(in[i]) + bias[i]).value);
    }
}

/* Writes the gradient of the inputs, and into `sums` [PARTS, columns] its sums over parts of the rows. Added up, these
   are the gradient of the bias. */
void gelu_gradient(const bfloat16 *inputs, const float *bias, const bfloat16 *gradient, bfloat16 *result, float *sums,
                   long rows, long columns) {
#pragma omp parallel for schedule(static)
    for (long part = 0; part < PARTS; part++) {
        float *restrict sum = sums + part * columns;
        memset(sum, 0, columns * sizeof(float));
        for (long row = rows * part / PARTS; row < rows * (part + 1) / PARTS; row++) {
            const bfloat16 *restrict in = inputs + row * columns, *restrict from = gradient + row * columns;
            bfloat16 *restrict to = result + row * columns;
            for (long i = 0; i < columns; i++) {
                float product = widen(from[i]) * gelu(widen(in[i]) + bias[i]).slope;
                to[i] = narrow(product);
                sum[i] += product;
            }
        }
    }
}

/* --- attention in windows ----------------------------------------------------------------------------------------- */

/* Turns scores [windows, heads, tokens, tokens] into probabilities, in place. The bias [heads, tokens, tokens] is the
   same for all windows; the masks [masks, tokens, tokens] repeat. Without masks, `masks` is 0. */
void softmax_with_bias(bfloat16 *scores, const float *bias, const float *mask, long windows, long heads, long tokens,
                       long masks) {
#pragma omp parallel for schedule(static)
    for (long window = 0; window < windows; window++) {
        float row[MOST_TOKENS];
        for (long at = 0; at < heads * tokens; at++) {
            bfloat16 *restrict out = scores + (window * heads * tokens + at) * tokens;
            const float *add = bias + at * tokens;
            for (long i = 0; i < tokens; i++) row[i] = widen(out[i]) + add[i];
            if (masks) {
                const float *hide = mask + (window % masks * tokens + at % tokens) * tokens;
                for (long i = 0; i < tokens; i++) row[i] += hide[i];
            }
            float top = -1e30f, sum = 0;
            for (long i = 0; i < tokens; i++) top = row[i] > top ? row[i] : top;
            for (long i = 0; i < tokens; i++) row[i] = exponential(row[i] - top);
            for (long i = 0; i < tokens; i++) sum += row[i];
            for (long i = 0; i < tokens; i++) out[i] = narrow(row[i] * (1.0f / sum));
        }
    }
}

/* --- the gradient of the weights of a depthwise convolution, with stride 1 and its size kept ---------------------- */

typedef struct {
    const void *values;
    int is_bfloat16;
    long height, width, channels;
} images;

/* Copies up to LANES channels of one image, as float32, into a frame; its border of `margin` pixels stays as it is. */
static void copy_channels(const images *from, long image, long channel, lanes *frame, long margin) {
    long left = from->channels - channel, count = left < LANES ? left : LANES;
    for (long row = 0; row < from->height; row++) {
        lanes *pixel = frame + (row + margin) * (from->width + 2 * margin) + margin;
        long at = (image * from->height + row) * from->width * from->channels + channel;
        for (long column = 0; column < from->width; column++, pixel++, at += from->channels) {
            const bfloat16 *half = (const bfloat16 *)from->values + at;
            if (!from->is_bfloat16)
                memcpy(*pixel, (const float *)from->values + at, count * sizeof(float));
            else if (count == LANES) /* a constant number of lanes becomes one instruction */
                for (int lane = 0; lane < LANES; lane++) (*pixel)[lane] = widen(half[lane]);
            else
                for (int lane = 0; lane < count; lane++) (*pixel)[lane] = widen(half[lane]);
        }
    }
}

/* Adds the products of one image. The side is a constant where this is called, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void add_products(const lanes *input, const lanes *gradient, lanes *sums,
                                                               long height, long width, const int side) {
    for (int y = 0; y < side; y++) {
        lanes row_sums[LARGEST];
        memcpy(row_sums, sums + y * side, side * sizeof(lanes));
        for (long row = 0; row < height; row++) {
            const lanes *in = input + (row + y) * (width + side - 1), *out = gradient + row * width;
            for (long column = 0; column < width; column++)
                for (int x = 0; x < side; x++)
                    for (int lane = 0; lane < LANES; lane++)
                        row_sums[x][lane] += in[column + x][lane] * out[column][lane];
        }
        memcpy(sums + y * side, row_sums, side * sizeof(lanes));
    }
}

/* Returns whether there was memory for it. */
int depthwise_weight_gradient(const void *input, const void *gradient, int is_bfloat16, float *weights, long count,
                              long height, long width, long channels, long side) {
    const images inputs = {input, is_bfloat16, height, width, channels};
    const images gradients = {gradient, is_bfloat16, height, width, channels};
    long margin = side / 2, framed = (height + 2 * margin) * (width + 2 * margin);
    int has_memory = 1;
#pragma omp parallel for schedule(static) reduction(&& : has_memory)
    for (long channel = 0; channel < channels; channel += LANES) {
        lanes sums[LARGEST * LARGEST] = {{0}};
        lanes *in = aligned_alloc(sizeof(lanes), framed * sizeof(lanes));
        lanes *out = aligned_alloc(sizeof(lanes), height * width * sizeof(lanes));
        if (in && out) {
            memset(in, 0, framed * sizeof(lanes));
            memset(out, 0, height * width * sizeof(lanes));
            for (long image = 0; image < count; image++) {
                copy_channels(&inputs, image, channel, in, margin);
                copy_channels(&gradients, image, channel, out, 0);
                if (side == 5) add_products(in, out, sums, height, width, 5);
                if (side == 7) add_products(in, out, sums, height, width, 7);
                if (side == 9) add_products(in, out, sums, height, width, 9);
            }
            for (long lane = 0; lane < LANES && channel + lane < channels; lane++)
                for (long at = 0; at < side * side; at++) weights[(channel + lane) * side * side + at] = sums[at][lane];
        } else
            has_memory = 0;
        free(in);
        free(out);
    }
    return has_memory;
}
