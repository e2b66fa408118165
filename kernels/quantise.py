"""Round gradients to fixed point, stochastically and independently of row order.

    k      from the largest magnitude m of the tree's output: 2^k·m ≤ 2^15 for gradients, 2^16 for hessians (frexp, no log)
    q      = ⌊g·2^k + u⌋ clamped,   u = hash(seed, round, output, bits of g, bits of h) / 2^32 in [0, 1)

E[q] = g·2^k, so sums of many rows are unbiased; equal (g, h) round alike, so neither row order nor sharding matters and pure
nodes stay pure. The pair is packed in 4 bytes: gradient in the high 16 bits (signed), hessian in the low 16 (unsigned).

Where 16 bits are too few, values get 16 more and lie in two words of the same packing (limbs), high·2^16 + low, with a signed
low gradient and an unsigned low hessian. Whether they are is a question of what rounding does to a leaf (needs_two_limbs):

    loud rows    more than half of all rows are quiet, 0 < |g| < SMALL_UNITS units, though their hessians are large: one label
                 of 1e6 among unit noise. Rounding adds up to ¼ squared unit of variance per row, which must stay small beside g²
    light rows   rows with 0 < h < LIGHT_UNITS units could fill a leaf on their own, Σ h ≥ min_child_weight, while a leaf so
                 light holds few units, min_child_weight + λ < LEAF_UNITS: weights over many decades. Equal rows round alike, so
                 a leaf of them would be wrong as a whole, in its gain and in whether it is heavy enough
    few rows     up to FINE_ROWS: noise does not average out, and float32 gradients of like size are exact in 32 bits, so that a
                 row that weighs 2 counts as much as the row given twice

Gradients that are small because their rows are all but settled, as in late rounds of logistic loss, do not ask for more: their
hessians are as small, and a leaf needs so many of them that what rounding adds is less than 1/√LEAF_UNITS of its sums.

Floor: 8 bytes read, 4 written (8 with two limbs) per row and output.
"""

from numba import float64, int32, int64, uint32, uint64

from gpuboost.kernels.addresses import load_at, store_at
from gpuboost.kernels.cuda_common import block_sum, cuda, cuda_kernel, n_threads, thread_number
from gpuboost.kernels.gradients import NON_FINITE_BITS
from gpuboost.kernels.jit import call_late, kernel, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import (
    bits_double,
    bits_float,
    double_bits,
    float_bits,
    floor_32,
    hash_word,
    larger,
    mix32,
    round_key,
    smaller,
)
from gpuboost.kernels.shares import claim_rows, new_counters

CHUNK = 4096
N_SUMS = 4  # over rows, of each output
LIMB_BITS = 16
FINE_ROWS = 100
LIGHT_UNITS = 128.0  # of equal rows with so many a sum is wrong by up to 1 %
LEAF_UNITS = 4096.0
LIGHT_BITS = 16  # below a unit, in sums over light rows
LIGHT_SCALE = 2.0**LIGHT_BITS
SMALL_UNITS = 4.0  # with ⅛ instead, one label of 1e6 among unit noise cost 10 % of RMSE (tests/test_parity.py, one outlier)


@scalar
def quantise_pair(g, h, key, grad_scale, hess_scale, grad_limit, hess_limit):
    """(q_g, q_h) as int64: stochastic rounding of one row's pair; the two uniforms come from one chain of hashes. Limits are
    whole, so that a value may be held within them before it is cut; grad_limit is below 2^31."""
    random = mix32(mix32(key ^ float_bits(g)) + float_bits(h))
    grad = float64(g) * grad_scale + float64(random) * float64(2.0**-32)
    hess = float64(h) * hess_scale + float64(mix32(random ^ uint32(0x9E3779B9))) * float64(2.0**-32)
    grad = smaller(larger(grad, -grad_limit), grad_limit)
    hess = smaller(larger(hess, float64(0.0)), hess_limit)
    return int64(floor_32(grad)), int64(int32(hess)) if hess_limit < float64(2.0**31) else int64(hess)


@scalar
def is_quiet(scaled_g, scaled_h):
    """Whether a row's gradient has few units though its hessian has not: int64, 1 or 0."""
    size = abs(scaled_g)
    return int64((size > float64(0.0)) & (size < float64(SMALL_UNITS)) & (scaled_h >= float64(LIGHT_UNITS)))


@scalar
def light_units(scaled_h):
    """The hessian of a light row in 1 / LIGHT_SCALE of a unit, 0 of others: int64."""
    units = int64(int32(smaller(scaled_h, float64(LIGHT_UNITS)) * LIGHT_SCALE))
    return units if scaled_h < float64(LIGHT_UNITS) else int64(0)


@scalar
def needs_two_limbs(n_quiet, light, n_rows, hess_scale, reg_lambda, min_child_weight):
    """Whether 16 bits are too few for one output. n_quiet, light : sums over the n_rows of all workers that take part."""
    smallest = min_child_weight * hess_scale  # a leaf, in units
    fills_leaf = light > 0 and light >= smallest * LIGHT_SCALE
    is_coarse = smallest + reg_lambda * hess_scale < LEAF_UNITS
    return 2 * n_quiet > n_rows or (fills_leaf and is_coarse) or n_rows <= FINE_ROWS


@scalar
def pack(grad, hess):
    """int32: 16 signed bits of gradient above 16 unsigned bits of hessian."""
    return int32(uint32((uint32(grad) << uint32(16)) | uint32(hess)))


@scalar
def binary_exponent(x):
    """The e with x = m·2^e and ½ ≤ m < 1, for a positive normal float64; 0 for 0 (math.frexp)."""
    return int64(double_bits(x) >> uint64(52)) - int64(1022) if x > float64(0.0) else int64(0)


@scalar
def power_of_two(exponent):
    """2^exponent as float64, −1022 ≤ exponent ≤ 1023."""
    return bits_double(uint64(uint64(exponent + int64(1023)) << uint64(52)))


@scalar
def scale_16(largest, k):
    """The power of two that brings a largest |g| (k = 0) below 2^15, or a largest h (k = 1) below 2^16; 1 for 0."""
    return power_of_two(int64(15 + k) - binary_exponent(largest)) if largest > float64(0.0) else float64(1.0)


@scalar
def leaf_scale(largest, row_bits):
    """The power of two with which 2^row_bits values of up to largest sum to at most 2^62, or 2^1000 if that is less."""
    return power_of_two(min(int64(62) - row_bits - binary_exponent(largest), int64(1000)))


@scalar
def count_bits(n):
    """The least b with n ≤ 2^b, for n ≤ 2^62."""
    bits = int64(0)
    while bits < int64(62) and (int64(1) << bits) < n:
        bits += int64(1)
    return bits


@kernel
def choose_scales_cpu(maxima, searched, seed, round_number, global_rows, keys, scales, n_limbs, leaf_scales):
    """The facts of a round, of one limb so far. Returns whether all maxima are finite.

    maxima, searched : int64 (n_outputs, 2), (n_searched, 2), IN. float32 bits of max |g| and max h over all workers: of what
        leaves are weighed by, and of what splits are searched by.
    seed : uint64. global_rows : rows over all workers.
    keys : uint32, n_limbs : int32 (n_searched,), OUT. scales : float64 (n_searched, 2), OUT. leaf_scales : float64
        (n_outputs, 2), OUT.
    """
    key, row_bits, is_finite = round_key(seed, round_number), count_bits(global_rows), True
    for output in range(len(keys)):
        keys[output], n_limbs[output] = hash_word(key, output), 1
        for k in range(2):
            is_finite &= searched[output, k] < int64(NON_FINITE_BITS)
            scales[output, k] = scale_16(float64(bits_float(uint32(searched[output, k]))), k)
    for output in range(len(maxima)):
        for k in range(2):
            is_finite &= maxima[output, k] < int64(NON_FINITE_BITS)
            leaf_scales[output, k] = leaf_scale(float64(bits_float(uint32(maxima[output, k]))), row_bits)
    return is_finite


@kernel
def choose_limbs_cpu(sums, n_rows, reg_lambda, min_child_weight, scales, n_limbs):
    """Two limbs where they are needed, by the sums of one. Returns whether any output needs them.

    sums : int64 (n_outputs, N_SUMS), IN, over all workers. n_rows : that take part.
    scales : float64 (n_outputs, 2), INOUT, × 2^16 with two. n_limbs : int32 (n_outputs,), OUT.
    """
    is_any = False
    for output in range(len(n_limbs)):
        needs = needs_two_limbs(sums[output, 2], sums[output, 3], n_rows, scales[output, 1], reg_lambda, min_child_weight)
        n_limbs[output] = 2 if needs else 1
        is_any |= needs
        for k in range(2):
            scales[output, k] *= 65536.0 if needs else 1.0
    return is_any


@parallel_kernel
def quantise_cpu(grad, hess, keys, scales, n_limbs, gpair, sums, n_threads):
    """Quantise every row of every output.

    grad, hess : float32 (n_outputs, n_rows), IN.
    keys : uint32 (n_outputs,), IN. Hash of (seed, round, output).
    scales : float64 (n_outputs, 2), IN. Powers of two; already × 2^16 where n_limbs is 2.
    n_limbs : int32 (n_outputs,), IN. 1 or 2.
    gpair : int32 (n_outputs, 1 or 2, n_rows), OUT. Packed pairs, high limb first.
    sums : int64 (n_threads, n_outputs, N_SUMS), OUT, zeroed by the caller. Σ q_g, Σ q_h, and of rounding to 16 bits how many rows
        are quiet, and ⌊Σ h of light rows⌋ in 1 / LIGHT_SCALE of a unit.
    """
    launch(n_threads, _quantise_chunks, (new_counters(n_threads), grad, hess, keys, scales, n_limbs, gpair, sums))
    for output in range(n_limbs.size):
        if n_limbs[output] == 2:
            call_late(_quantise_finely, (grad, hess, keys, scales, n_limbs, gpair, sums, n_threads))
            return


@parallel_kernel
def quantise_finely_cpu(grad, hess, keys, scales, n_limbs, gpair, sums, n_threads):
    """Of the outputs that have two limbs."""
    launch(n_threads, _quantise_chunks_finely, (new_counters(n_threads), grad, hess, keys, scales, n_limbs, gpair, sums))


_quantise_finely = quantise_finely_cpu.dispatcher


@parallel_kernel.part
def _quantise_chunks(thread, counters, grad, hess, keys, scales, n_limbs, gpair, sums):
    output, begin, end = claim_rows(counters, thread, grad.shape[0], grad.shape[1], int64(CHUNK))
    while output < grad.shape[0]:
        if n_limbs[output] == 1:
            _quantise_16(
                grad[output, begin:end], hess[output, begin:end], keys[output], scales[output], gpair[output, 0, begin:end],
                sums[thread, output],
            )  # fmt: skip
        output, begin, end = claim_rows(counters, thread, grad.shape[0], grad.shape[1], int64(CHUNK))


@parallel_kernel.part
def _quantise_chunks_finely(thread, counters, grad, hess, keys, scales, n_limbs, gpair, sums):
    output, begin, end = claim_rows(counters, thread, grad.shape[0], grad.shape[1], int64(CHUNK))
    while output < grad.shape[0]:
        if n_limbs[output] == 2:
            _quantise_32(
                grad[output, begin:end], hess[output, begin:end], keys[output], scales[output], gpair[output, 0, begin:end],
                gpair[output, 1, begin:end], sums[thread, output],
            )  # fmt: skip
        output, begin, end = claim_rows(counters, thread, grad.shape[0], grad.shape[1], int64(CHUNK))


# LLVM vectorises these two loops, which it did not when they read a row and a column of larger arrays: 2.6 -> 1.1 ns a row. One
# limb fits in int32, for which AVX2 has conversions of vectors: 5.8 -> 4.0 ns a row on a busy AMD EPYC (Zen 3).


@parallel_kernel.part
def _quantise_16(grad, hess, key, scales, gpair, sums):
    grad_scale, hess_scale = scales[0], scales[1]
    sum_grad, sum_hess, n_quiet, light = int32(0), int32(0), int32(0), int64(0)  # of a CHUNK: below 2^28
    for i in range(grad.size):
        g, h = grad[i], hess[i]
        qg, qh = quantise_pair(g, h, key, grad_scale, hess_scale, float64(32767.0), float64(65535.0))
        gpair[i] = pack(qg, qh)
        sum_grad = int32(sum_grad + int32(qg))
        sum_hess = int32(sum_hess + int32(qh))
        n_quiet = int32(n_quiet + int32(is_quiet(float64(g) * grad_scale, float64(h) * hess_scale)))
        light += light_units(float64(h) * hess_scale)
    sums[0] += sum_grad
    sums[1] += sum_hess
    sums[2] += n_quiet
    sums[3] += light


@parallel_kernel.part
def _quantise_32(grad, hess, key, scales, high, low, sums):
    grad_scale, hess_scale = scales[0], scales[1]
    sum_grad, sum_hess = int64(0), int64(0)
    for i in range(grad.size):
        # 2^31 − 2^16: so that the high limb of the gradient stays within ±32767 after the low limb is taken off
        qg, qh = quantise_pair(grad[i], hess[i], key, grad_scale, hess_scale, float64(2147418112.0), float64(4294967295.0))
        low_grad = int64(((qg + int64(32768)) & int64(65535)) - int64(32768))
        high[i] = pack((qg - low_grad) >> int64(16), qh >> int64(16))
        low[i] = pack(low_grad, qh & int64(65535))
        sum_grad += qg
        sum_hess += qh
    sums[0] += sum_grad
    sums[1] += sum_hess


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. One thread per row and output in turn; the scales are chosen on the device, so that the host need not wait for the maxima.


# Sums of a round: of 16 bits, over all workers once they are exchanged, the same of this worker alone, and those to grow from.
ROUGH, OWN, FINAL = range(3)


@cuda_kernel(
    "maxima: int64[:, :], searched: int64[:, :], global_rows: int64, progress: PROGRESS[:], keys: uint32[:], "
    "scales: float64[:, :], leaf_scales: float64[:, :], sums: int64[:, :, :]",
    uses_double=True,
)  # fmt: skip
def choose_scales_kernel(maxima, searched, global_rows, progress, keys, scales, leaf_scales, sums):
    """The facts of a round, one thread per output: as choose_scales_cpu.

    maxima, searched : int64 (n_outputs, 2), (n_searched, 2), INOUT, which may be one array. Bits of max |g| and max h over all
        workers; 0 for the next round. global_rows : rows over all workers.
    progress : IN seed and round, OUT non_finite. keys : uint32 (n_searched,), OUT. scales : float64 (n_searched, 2), OUT.
    leaf_scales : float64 (n_outputs, 2), OUT. sums : int64 (3, n_searched, N_SUMS), OUT, 0.
    """
    row_bits, n_searched, n_outputs = count_bits(global_rows), int64(searched.shape[0]), int64(maxima.shape[0])
    at = int64(thread_number())
    while at < max(n_searched, n_outputs):
        for k in range(2):
            if at < n_searched:
                if searched[at, k] >= int64(NON_FINITE_BITS):
                    progress[0].non_finite = int64(1)
                scales[at, k] = scale_16(float64(bits_float(uint32(searched[at, k]))), k)
            if at < n_outputs:
                if maxima[at, k] >= int64(NON_FINITE_BITS):
                    progress[0].non_finite = int64(1)
                leaf_scales[at, k] = leaf_scale(float64(bits_float(uint32(maxima[at, k]))), row_bits)
                maxima[at, k] = int64(0)
        if at < n_searched:
            keys[at] = hash_word(round_key(progress[0].seed, progress[0].round), at)
            for k in range(2):
                searched[at, k] = int64(0)
            for kind in range(3):
                for k in range(N_SUMS):
                    sums[kind, at, k] = int64(0)
        at += int64(n_threads())


@cuda_kernel(
    "grad: float32[:, :], hess: float32[:, :], first_row: int64, n_rows: int64, reg_lambda: float64, min_child_weight: float64, "
    "progress: PROGRESS[:], keys: uint32[:], rough_scales: float64[:, :], limbs: int32, gpair: int32[:, :, :], "
    "sums: int64[:, :, :], scales: float64[:, :], n_limbs: int32[:]",
    registers=48, uses_double=True,
)  # fmt: skip
def quantise_kernel(
    grad, hess, first_row, n_rows, reg_lambda, min_child_weight, progress, keys, rough_scales, limbs, gpair, sums, scales, n_limbs
):
    """Quantise the rows of one page: with one limb all outputs; then, with two, those that need them by the sums of the first.

    grad, hess : float32 (n_outputs, all rows), IN. first_row : where the page begins in them. limbs : 1 or 2.
    n_rows : that take part, over all workers. rough_scales : of 16 bits. Nothing is quantised where a gradient is not finite.
    gpair : int32 (n_outputs, 2, page rows), OUT. sums : int64 (3, n_outputs, N_SUMS), INOUT. One limb adds to ROUGH and OWN, two
    limbs set FINAL: copied, or summed anew, without what only one limb counts.
    scales, n_limbs : float64 (n_outputs, 2), int32 (n_outputs,), OUT with two limbs. Others as quantise_cpu.
    Grid: a thread strides over rows. An atomic add per block, output and sum, of each kind. 12 bytes a row; hashing is some 40
    operations: 11M rows are 0.13 GB, 0.03 ms at 4.8 TB/s.
    """
    partial = cuda.shared.array(32, int64)
    n_outputs, page_rows, is_finite = gpair.shape[0], uint32(gpair.shape[2]), progress[0].non_finite == 0
    for output in range(n_outputs):
        factor, is_wanted = float64(1.0), is_finite
        if limbs == 2:
            is_wanted = is_finite and needs_two_limbs(
                sums[ROUGH, output, 2], sums[ROUGH, output, 3], n_rows, rough_scales[output, 1], reg_lambda, min_child_weight
            )
            factor = float64(65536.0) if is_wanted else float64(1.0)
            if thread_number() == 0:  # again for each page, the same
                n_limbs[output] = int32(2) if is_wanted else int32(1)
                for k in range(2):
                    scales[output, k] = rough_scales[output, k] * factor
                if not is_wanted:
                    for k in range(N_SUMS):
                        sums[FINAL, output, k] = sums[OWN, output, k]
        if is_wanted and page_rows > uint32(0):  # the same for all threads
            last = uint32(page_rows - uint32(1))
            key, grad_scale, hess_scale = keys[output], rough_scales[output, 0] * factor, rough_scales[output, 1] * factor
            sum_grad, sum_hess, n_quiet, light = int64(0), int64(0), int64(0), int64(0)
            first_value, first_pair = output * int64(grad.shape[1]) + first_row, output * int64(2) * int64(page_rows)
            row = thread_number()
            next_g, next_h = load_at(grad, first_value, min(row, last)), load_at(hess, first_value, min(row, last))
            while row < page_rows:
                g, h, following = next_g, next_h, min(uint32(row + n_threads()), last)
                next_g, next_h = load_at(grad, first_value, following), load_at(hess, first_value, following)  # meanwhile
                if limbs == 1:
                    qg, qh = quantise_pair(g, h, key, grad_scale, hess_scale, float64(32767.0), float64(65535.0))
                    store_at(gpair, first_pair, row, pack(qg, qh))
                    n_quiet += is_quiet(float64(g) * grad_scale, float64(h) * hess_scale)
                    light += light_units(float64(h) * hess_scale)
                else:
                    qg, qh = quantise_pair(g, h, key, grad_scale, hess_scale, float64(2147418112.0), float64(4294967295.0))
                    low = int64(((qg + int64(32768)) & int64(65535)) - int64(32768))
                    store_at(gpair, first_pair, row, pack((qg - low) >> int64(16), qh >> int64(16)))
                    store_at(gpair, first_pair + int64(page_rows), row, pack(low, qh & int64(65535)))
                sum_grad += qg
                sum_hess += qh
                row = uint32(row + n_threads())
            sum_grad, sum_hess = block_sum(sum_grad, partial), block_sum(sum_hess, partial)
            n_quiet, light = block_sum(n_quiet, partial), block_sum(light, partial)
            if cuda.threadIdx.x == 0:
                kind = int32(ROUGH) if limbs == 1 else int32(FINAL)
                while kind <= (OWN if limbs == 1 else FINAL):
                    cuda.atomic.add(sums, (kind, output, 0), sum_grad)
                    cuda.atomic.add(sums, (kind, output, 1), sum_hess)
                    cuda.atomic.add(sums, (kind, output, 2), n_quiet)
                    cuda.atomic.add(sums, (kind, output, 3), light)
                    kind = int32(kind + 1)
