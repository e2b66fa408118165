"""Round gradients to fixed point, stochastically and independently of row order.

    k      from the largest magnitude m of the tree's output: 2^k·m ≤ 2^15 for gradients, 2^16 for hessians (frexp, no log)
    q      = ⌊g·2^k + u⌋ clamped,   u = hash(seed, round, output, bits of g, bits of h) / 2^32 in [0, 1)

E[q] = g·2^k, so sums of many rows are unbiased; equal (g, h) round alike, so neither row order nor sharding matters and pure
nodes stay pure. The pair is packed in 4 bytes: gradient in the high 16 bits (signed), hessian in the low 16 (unsigned).

When more than half of the rows fall below 4 units (weights over many decades, one loud row), 16 bits are too few: rounding adds
up to ¼ of a squared unit of variance per row, which must stay small beside g². The values then get 16 bits more and lie in two
planes of the same packing (limbs), high·2^16 + low, with a signed low gradient and an unsigned low hessian.

Floor: 8 bytes read, 4 written (8 with two limbs) per row and output.
"""

import math

import numpy as np
from numba import float64, int32, int64, prange, uint32

from gpuboost.kernels.jit import claim, parallel_kernel, scalar
from gpuboost.kernels.scalar import float_bits, mix32

CHUNK = 4096
LIMB_BITS = 16
SMALL_UNITS = 4.0  # with ⅛ instead, one label of 1e6 among unit noise cost 10 % of RMSE (tests/test_parity.py, one outlier)


def scale_exponent(largest, bits):
    """The k with largest·2^k in [2^(bits−1), 2^bits); 0 when nothing is larger than 0."""
    return bits - math.frexp(largest)[1] if largest > 0.0 else 0


@scalar
def quantise_pair(g, h, key, grad_scale, hess_scale, grad_limit, hess_limit):
    """(q_g, q_h) as int64: stochastic rounding of one row's pair; the two uniforms come from one chain of hashes."""
    random = mix32(mix32(key ^ float_bits(g)) + float_bits(h))
    u = float64(random) * float64(2.0**-32)
    qg = math.floor(float64(g) * grad_scale + u)
    u = float64(mix32(random ^ uint32(0x9E3779B9))) * float64(2.0**-32)
    qh = math.floor(float64(h) * hess_scale + u)
    return (
        int64(min(max(qg, -grad_limit), grad_limit)),
        int64(min(max(qh, float64(0.0)), hess_limit)),
    )


@scalar
def pack(grad, hess):
    """int32: 16 signed bits of gradient above 16 unsigned bits of hessian."""
    return int32(uint32((uint32(grad) << uint32(16)) | uint32(hess)))


@parallel_kernel
def quantise_cpu(grad, hess, keys, scales, n_limbs, gpair, sums, n_threads):
    """Quantise every row of every output.

    grad, hess : float32 (n_outputs, n_rows), IN.
    keys : uint32 (n_outputs,), IN. Hash of (seed, round, output).
    scales : float64 (n_outputs, 2), IN. Powers of two; already × 2^16 where n_limbs is 2.
    n_limbs : int32 (n_outputs,), IN. 1 or 2.
    gpair : int32 (n_outputs, 1 or 2, n_rows), OUT. Packed pairs, high limb first.
    sums : int64 (n_threads, n_outputs, 3), OUT, zeroed by the caller. Σ q_g, Σ q_h, and how many rows have 0 < |g| or 0 < h
        below SMALL_UNITS 16-bit units.
    """
    counter = np.zeros(1, np.int64)
    for thread in prange(n_threads):
        _quantise_chunks(int64(thread), counter, grad, hess, keys, scales, n_limbs, gpair, sums)


@parallel_kernel.part
def _quantise_chunks(thread, counter, grad, hess, keys, scales, n_limbs, gpair, sums):
    n_outputs, n_rows = grad.shape
    per_output = (n_rows + CHUNK - 1) // CHUNK
    while True:
        item = claim(counter)
        if item >= per_output * n_outputs:
            return
        output = item // per_output
        begin = (item - output * per_output) * CHUNK
        end = min(begin + CHUNK, n_rows)
        key, grad_scale, hess_scale = keys[output], scales[output, 0], scales[output, 1]
        sum_grad, sum_hess, n_small = int64(0), int64(0), int64(0)
        if n_limbs[output] == 1:
            for i in range(begin, end):
                g, h = grad[output, i], hess[output, i]
                qg, qh = quantise_pair(g, h, key, grad_scale, hess_scale, float64(32767.0), float64(65535.0))
                gpair[output, 0, i] = pack(qg, qh)
                sum_grad += qg
                sum_hess += qh
                scaled_g, scaled_h = abs(float64(g) * grad_scale), float64(h) * hess_scale
                n_small += (scaled_g > 0.0 and scaled_g < SMALL_UNITS) or (scaled_h > 0.0 and scaled_h < SMALL_UNITS)
        else:
            for i in range(begin, end):
                g, h = grad[output, i], hess[output, i]
                # 2^31 − 2^16: so that the high limb of the gradient stays within ±32767 after the low limb is taken off
                qg, qh = quantise_pair(g, h, key, grad_scale, hess_scale, float64(2147418112.0), float64(4294967295.0))
                low = int64(((qg + int64(32768)) & int64(65535)) - int64(32768))
                gpair[output, 0, i] = pack((qg - low) >> int64(16), qh >> int64(16))
                gpair[output, 1, i] = pack(low, qh & int64(65535))
                sum_grad += qg
                sum_hess += qh
        sums[thread, output, 0] += sum_grad
        sums[thread, output, 1] += sum_hess
        sums[thread, output, 2] += n_small
