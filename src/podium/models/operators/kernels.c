/* Loops that torch has no fast version of, for the CPU. kernels.py compiles and calls them, and defines PARTS and
   MOST_TOKENS.

   Images lie in memory as [images, height, width, channels]. A sum is computed by one thread, in one order: the number
   of threads does not change its bits. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16 /* channels that are computed at once: what an AVX-512 register holds of float32 */
#define IMAGE_PARTS 16 /* of a batch, each summed by one thread */
#define LARGEST 9 /* side of a kernel */

typedef uint16_t bfloat16; /* the upper half of a float32 */
typedef float lanes[LANES];
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

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

static inline void narrow_lanes(floats values, bfloat16 *to) {
    words bits = (words)values, not_a_number = (words)(values != values);
    words rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    halves narrowed = __builtin_convertvector((not_a_number & 0x7fc0) | (~not_a_number & rounded), halves);
    memcpy(to, &narrowed, sizeof narrowed);
}

static inline floats widen_lanes(const bfloat16 *from) {
    halves narrow;
    memcpy(&narrow, from, sizeof narrow);
    return (floats)(__builtin_convertvector(narrow, words) << 16);
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

/* --- a ReLU behind a convolution ---------------------------------------------------------------------------------- */

static inline floats load_lanes(const void *values, int is_bfloat16, long at, long count) {
    floats loaded = {0};
    if (is_bfloat16 && count == LANES) return widen_lanes((const bfloat16 *)values + at);
    for (long lane = 0; lane < count; lane++)
        loaded[lane] = is_bfloat16 ? widen(((const bfloat16 *)values)[at + lane]) : ((const float *)values)[at + lane];
    return loaded;
}

static inline void store_lanes(floats values, void *to, int is_bfloat16, long at, long count) {
    if (is_bfloat16 && count == LANES)
        narrow_lanes(values, (bfloat16 *)to + at);
    else if (is_bfloat16)
        for (long lane = 0; lane < count; lane++) ((bfloat16 *)to)[at + lane] = narrow(values[lane]);
    else
        memcpy((float *)to + at, &values, count * sizeof(float));
}

/* Writes the gradient where the outputs lie between 0 and `highest`, else 0; and into `sums` [PARTS, columns] its sums
   over parts of the rows. Without outputs it only sums. */
void clamp_gradient(const void *gradient, const void *outputs, void *result, float *sums, long rows, long columns,
                    int is_bfloat16, float highest) {
#pragma omp parallel for schedule(static)
    for (long part = 0; part < PARTS; part++) {
        float *sum = sums + part * columns;
        memset(sum, 0, columns * sizeof(float));
        for (long row = rows * part / PARTS; row < rows * (part + 1) / PARTS; row++)
            for (long column = 0; column < columns; column += LANES) {
                long count = columns - column < LANES ? columns - column : LANES, at = row * columns + column;
                floats passed = load_lanes(gradient, is_bfloat16, at, count);
                if (outputs) {
                    floats value = load_lanes(outputs, is_bfloat16, at, count);
                    words passes = (words)(value > 0.0f) & (words)(value < highest);
                    passed = (floats)((words)passed & passes);
                    store_lanes(passed, result, is_bfloat16, at, count);
                }
                for (long lane = 0; lane < count; lane++) sum[column + lane] += passed[lane];
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

/* --- the gradients of a depthwise convolution --------------------------------------------------------------------- */

typedef struct {
    const void *values;
    int is_bfloat16;
    long height, width, channels;
} images;

/* Returns zeros, or NULL for want of memory. */
static lanes *make_lanes(long count) {
    lanes *made = aligned_alloc(sizeof(lanes), count * sizeof(lanes));
    if (made) memset(made, 0, count * sizeof(lanes));
    return made;
}

/* An image of LANES channels with a border, so that a window never leaves it; the image lies at (top, left). */
typedef struct {
    lanes *pixels;
    long height, width, top, left;
} frame;

/* What of an image lies in the frame, if that is smaller. */
static inline long shown_rows(const images *of, const frame *in) {
    long room = in->height - in->top;
    return of->height < room ? of->height : room;
}

static inline long shown_columns(const images *of, const frame *in) {
    long room = in->width - in->left;
    return of->width < room ? of->width : room;
}

/* Copies up to LANES channels of one image, as float32, into a frame, whose border stays as it is. */
static void copy_channels(const images *from, long image, long channel, const frame *to) {
    long left = from->channels - channel, count = left < LANES ? left : LANES;
    for (long row = 0; row < shown_rows(from, to); row++) {
        lanes *pixel = to->pixels + (row + to->top) * to->width + to->left;
        long at = (image * from->height + row) * from->width * from->channels + channel;
        for (long column = 0; column < shown_columns(from, to); column++, pixel++, at += from->channels) {
            const bfloat16 *half = (const bfloat16 *)from->values + at;
            if (!from->is_bfloat16)
                memcpy(*pixel, (const float *)from->values + at, count * sizeof(float));
            else if (count == LANES)
                *(floats *)pixel = widen_lanes(half);
            else
                for (int lane = 0; lane < count; lane++) (*pixel)[lane] = widen(half[lane]);
        }
    }
}

/* Adds the products of one image's pixels and gradients: the gradient of the weights. The side is a constant where this
   is called, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void add_products(const frame *input, const frame *gradient, lanes *sums,
                                                               long stride, const int side) {
    for (int y = 0; y < side; y++) {
        lanes row_sums[LARGEST];
        memcpy(row_sums, sums + y * side, side * sizeof(lanes));
        for (long row = 0; row < gradient->height - 2 * gradient->top; row++) {
            const lanes *in = input->pixels + (row * stride + y) * input->width;
            const lanes *out = gradient->pixels + (row + gradient->top) * gradient->width + gradient->left;
            for (long column = 0; column < gradient->width - 2 * gradient->left; column++)
                for (int x = 0; x < side; x++)
                    for (int lane = 0; lane < LANES; lane++)
                        row_sums[x][lane] += in[column * stride + x][lane] * out[column][lane];
        }
        memcpy(sums + y * side, row_sums, side * sizeof(lanes));
    }
}

/* Writes the sums of the weighted gradients to pixels of one row, `stride` apart. */
static inline __attribute__((always_inline)) void write_row(const images *to, void *values, long at, long first,
                                                            const floats *windows, long window_width,
                                                            const floats *weights, long count, const int side,
                                                            const int stride, const int y0, const int x0) {
    for (long column = first; column < to->width; column += stride, windows++) {
        floats sum = {0};
        for (int y = y0; y < side; y += stride)
            for (int x = x0; x < side; x += stride)
                sum += windows[-(y / stride) * window_width - x / stride] * weights[y * side + x];
        long place = at + column * to->channels;
        if (count == LANES && to->is_bfloat16)
            narrow_lanes(sum, (bfloat16 *)values + place);
        else if (to->is_bfloat16)
            for (int lane = 0; lane < count; lane++) ((bfloat16 *)values)[place + lane] = narrow(sum[lane]);
        else
            memcpy((float *)values + place, &sum, count * sizeof(float));
    }
}

/* Writes to each pixel of one image what the gradients of all windows that saw it give it: the gradient of the image.
   Pixels of one phase (their place modulo the stride) are seen through the same weights. */
static inline __attribute__((always_inline)) void write_phase(const images *to, void *values, long image, long channel,
                                                              const frame *gradient, const frame *input,
                                                              const floats *weights, const int side, const int stride,
                                                              const int y0, const int x0) {
    long left = to->channels - channel, count = left < LANES ? left : LANES;
    long column = (x0 - input->left + stride * side) % stride;
    for (long row = (y0 - input->top + stride * side) % stride; row < to->height; row += stride) {
        long window_row = (row + input->top - y0) / stride + gradient->top;
        long window_column = (column + input->left - x0) / stride + gradient->left;
        write_row(to, values, (image * to->height + row) * to->width * to->channels + channel, column,
                  (floats *)gradient->pixels + window_row * gradient->width + window_column, gradient->width, weights, count, side,
                  stride, y0, x0);
    }
}

static inline __attribute__((always_inline)) void write_shares(const images *to, void *values, long image, long channel,
                                                               const frame *gradient, const frame *input,
                                                               const floats *weights, const int side, const int stride) {
    write_phase(to, values, image, channel, gradient, input, weights, side, stride, 0, 0);
    if (stride == 1) return;
    write_phase(to, values, image, channel, gradient, input, weights, side, stride, 0, 1);
    write_phase(to, values, image, channel, gradient, input, weights, side, stride, 1, 0);
    write_phase(to, values, image, channel, gradient, input, weights, side, stride, 1, 1);
}

typedef struct {
    long count, rows, columns, side, stride, top, left;
} convolution;

/* Constants, so that the compiler unrolls the loops. */
#define SHARES(constant_side, constant_stride)                                                       \
    if (of->side == constant_side && of->stride == constant_stride)                                  \
        write_shares(inputs, image_gradient, image, channel, out, in, weights, constant_side, constant_stride);

/* What one thread computes with. */
typedef struct {
    frame in, out;
} workspace;

/* Adds one image's part to the gradient of the weights of up to LANES channels; writes the gradient of the image, unless
   that is NULL. */
static void add_image(const convolution *of, const images *inputs, const images *gradients, const floats *weights,
                      lanes *sums, void *image_gradient, workspace *space, long image, long channel) {
    frame *in = &space->in, *out = &space->out;
    copy_channels(inputs, image, channel, in);
    copy_channels(gradients, image, channel, out);
    if (of->side == 3) add_products(in, out, sums, of->stride, 3);
    if (of->side == 5) add_products(in, out, sums, of->stride, 5);
    if (of->side == 7) add_products(in, out, sums, of->stride, 7);
    if (of->side == 9) add_products(in, out, sums, of->stride, 9);
    if (!image_gradient) return;
    SHARES(3, 1) SHARES(3, 2) SHARES(5, 1) SHARES(5, 2) SHARES(7, 1) SHARES(7, 2) SHARES(9, 1) SHARES(9, 2)
}

/* Returns frames of zeros, or NULL for want of memory. Windows of gradients may reach over their edge. */
static workspace make_workspace(const convolution *of, int writes_images) {
    long margin = writes_images ? of->side - 1 : 0;
    frame in = {NULL, (of->rows - 1) * of->stride + of->side, (of->columns - 1) * of->stride + of->side, of->top, of->left};
    frame out = {NULL, of->rows + 2 * margin, of->columns + 2 * margin, margin, margin};
    in.pixels = make_lanes(in.height * in.width);
    out.pixels = make_lanes(out.height * out.width);
    return (workspace){in, out};
}

static int is_whole(const workspace *space) { return space->in.pixels && space->out.pixels; }

static void free_workspace(workspace *space) {
    free(space->in.pixels);
    free(space->out.pixels);
}

/* Adds the images up for each block of channels: every thread has other channels. */
static int add_by_channels(const convolution *of, const images *inputs, const images *gradients, const lanes *weights,
                           lanes *sums, long blocks) {
    int has_memory = 1;
#pragma omp parallel for schedule(static) reduction(&& : has_memory)
    for (long block = 0; block < blocks; block++) {
        workspace space = make_workspace(of, 0);
        has_memory = is_whole(&space);
        for (long image = 0; has_memory && image < of->count; image++)
            add_image(of, inputs, gradients, (floats *)weights, sums + block * of->side * of->side, NULL, &space, image,
                      block * LANES);
        free_workspace(&space);
    }
    return has_memory;
}

/* Adds up parts of the images, each with all its channels, so that a cache line of the image is written once. */
static int add_by_images(const convolution *of, const images *inputs, const images *gradients, const lanes *weights,
                         lanes *sums, void *image_gradient, long blocks) {
    long taps = of->side * of->side;
    int has_memory = 1;
#pragma omp parallel for schedule(static) reduction(&& : has_memory)
    for (long part = 0; part < IMAGE_PARTS; part++) {
        workspace space = make_workspace(of, 1);
        long first = of->count * part / IMAGE_PARTS, last = of->count * (part + 1) / IMAGE_PARTS;
        has_memory = is_whole(&space);
        for (long image = first; has_memory && image < last; image++)
            for (long block = 0; block < blocks; block++)
                add_image(of, inputs, gradients, (const floats *)(weights + block * taps),
                          sums + (part * blocks + block) * taps, image_gradient, &space, image, block * LANES);
        free_workspace(&space);
    }
    return has_memory;
}

/* Writes the gradient of the weights [channels, side, side] and, unless it is NULL, that of the images, in their type.
   `kernel` holds the weights. Returns whether there was memory for it. */
int depthwise_gradients(const void *input, const void *gradient, int is_bfloat16, const float *kernel,
                        float *weight_gradient, void *image_gradient, long count, long height, long width,
                        long channels, long rows, long columns, long side, long stride, long top, long left) {
    const convolution of = {count, rows, columns, side, stride, top, left};
    const images inputs = {input, is_bfloat16, height, width, channels};
    const images gradients = {gradient, is_bfloat16, rows, columns, channels};
    long taps = side * side, blocks = (channels + LANES - 1) / LANES, parts = image_gradient ? IMAGE_PARTS : 1;
    lanes *sums = make_lanes(parts * blocks * taps), *weights = make_lanes(blocks * taps);
    int has_memory = sums && weights;
    for (long channel = 0; has_memory && channel < channels; channel++)
        for (long at = 0; at < taps; at++)
            weights[channel / LANES * taps + at][channel % LANES] = kernel[channel * taps + at];
    if (has_memory && image_gradient)
        has_memory = add_by_images(&of, &inputs, &gradients, weights, sums, image_gradient, blocks);
    else if (has_memory)
        has_memory = add_by_channels(&of, &inputs, &gradients, weights, sums, blocks);
    for (long channel = 0; has_memory && channel < channels; channel++)
        for (long at = 0; at < taps; at++) {
            float sum = 0;
            for (long part = 0; part < parts; part++)
                sum += sums[(part * blocks + channel / LANES) * taps + at][channel % LANES];
            weight_gradient[channel * taps + at] = sum;
        }
    free(sums);
    free(weights);
    return has_memory;
}
