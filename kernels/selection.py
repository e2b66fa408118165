"""Cut large columns into bins by selection: only what lies near the ends of bins is sorted (kernels/quantiles.py sorts all).

A column of B bins asks for the values that reach B − 1 target ranks (kernels/cuts.py), for the next value after each, and for its
extreme values. Of the keys (scalar.float_key)

    count     upper halves: 65,536 counts, whose sums say which half holds a target
    count     of the halves with targets the next 8 bits, a digit: which 24 bits hold it
    collect   the keys of these 24 bits, and of the next ones that occur, about one in a hundred
    sort      those, and read off each target and the value after it: its rank less the number of keys below its 24 bits

Rows of weight 1 only. Left to sorting, with the same thresholds: a column with a value that holds two targets (so that it is in a
bin alone), with values that count as infinite, and one whose values repeat, of which many keys would have to be collected.
Floor of a value: 4 bytes read three times. One thread of an AMD EPYC (Zen 3), busy, ns a value of 450,000 and 2,000,000 normal
ones: sorting 9.5 and 14, selection 3.4 and 2.8.
"""

import numpy as np
from numba import int64, uint8, uint16, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuts import middle_value
from gpuboost.kernels.jit import claim, launch, parallel_kernel
from gpuboost.kernels.quantiles import DIGITS as SORTED_DIGITS
from gpuboost.kernels.quantiles import LARGEST_KEY, MISSING_KEY, N_DIGITS, SMALLEST_KEY, sort_keys
from gpuboost.kernels.scalar import float_bits

FEWEST_ROWS = 2**17  # for which it is worth the tables of counts
MOST_BINS = 256  # counts of the digits of more targets would leave the second-level cache
HALVES, DIGITS = 2**16, 2**8
COUNTED = MOST_BINS + 2  # slots for halves: number 0 for those without, then those with targets, and of the extreme values
SLOTS = COUNTED + MOST_BINS  # and behind them halves of which all keys are wanted, as one of them comes after a target
LEAST_SHARE = 8  # one in so many keys is collected at most: there is room to sort them
SAMPLE, MOST_REPEATED = 512, 4  # keys that are looked at before all else, and how many of them may equal another one


@parallel_kernel
def select_cuts_cpu(keys, max_bin, spare, n_cuts, has_missing, extremes, n_threads):
    """The thresholds of those columns that have none yet and are cut without being sorted.

    keys : uint32 (n, ≥ 2·SAMPLE rows), INOUT, as quantiles.cut_columns_cpu. max_bin : most bins of a column, at most MOST_BINS.
    spare : uint32 (n_threads, rows), SCRATCH.
    n_cuts : int64 (n,), INOUT. In: −1, or of columns that are done already, which are left as they are. Out: −1 for one that is
        left as it was; has_missing and extremes are undefined for it.
    has_missing : bool (n,), OUT. extremes : uint32 (n, 2), OUT. As cut_columns_cpu.
    """
    launch(n_threads, _select_columns, (zeros(1, np.int64), keys, max_bin, spare, n_cuts, has_missing, extremes))


@parallel_kernel.part
def _select_columns(thread, counter, keys, max_bin, spare, n_cuts, has_missing, extremes):
    counts, slots, targets = empty(HALVES, np.uint32), empty(HALVES, np.uint16), empty((MOST_BINS, 3), np.int64)
    digits, wanted = empty((COUNTED, DIGITS), np.uint32), empty((SLOTS, DIGITS), np.uint8)
    sorted_digits = empty((N_DIGITS, SORTED_DIGITS), np.uint32)
    while True:
        i = claim(counter)
        if i >= keys.shape[0]:
            return
        if n_cuts[i] < 0:
            n_cuts[i] = _select(
                keys[i], max_bin, spare[thread], counts, slots, digits, wanted, targets, sorted_digits, has_missing[i : i + 1],
                extremes[i],
            )  # fmt: skip


@parallel_kernel.part
def _select(keys, max_bin, spare, counts, slots, digits, wanted, targets, sorted_digits, has_missing, extremes):
    """The number of a column's cuts, or −1."""
    if _repeats(keys, spare, sorted_digits):
        return int64(-1)
    counts[:] = 0
    for i in range(uint64(keys.size)):
        counts[keys[i] >> uint32(16)] += uint32(1)
    n_missing = int64(counts[MISSING_KEY >> 16])  # no value's key is as large
    n = int64(keys.size) - n_missing
    has_missing[0] = n_missing > 0
    n_bins = int64(255) if max_bin == 256 and n_missing > 0 else int64(max_bin)
    counts[MISSING_KEY >> 16] = 0
    first, last = int64(0), int64(HALVES - 1)
    while first < last and counts[first] == 0:
        first += 1
    while last > first and counts[last] == 0:
        last -= 1
    if first <= SMALLEST_KEY >> 16 or last >= LARGEST_KEY >> 16:
        return int64(-1)
    slots[:] = 0
    n_slots = _number_halves(counts, first, last, n, n_bins, slots)
    digits[:n_slots] = 0
    for i in range(uint64(keys.size)):
        digits[slots[keys[i] >> uint32(16)], (keys[i] >> uint32(8)) & uint32(DIGITS - 1)] += uint32(1)
    n_wanted = _choose_digits(counts, first, last, n, n_bins, slots, n_slots, digits, wanted, targets)
    if n_wanted * LEAST_SHARE > n:
        return int64(-1)
    m = uint64(0)
    for i in range(uint64(keys.size)):
        spare[m] = keys[i]  # overwritten by the next one where it is not wanted
        m += uint64(wanted[slots[keys[i] >> uint32(16)], (keys[i] >> uint32(8)) & uint32(DIGITS - 1)])
    collected, room = spare[:m], spare[m : 2 * m]
    _, is_moved = sort_keys(collected, room, uint64(0), sorted_digits)
    return _read_off(room if is_moved else collected, n, n_bins, targets, keys, extremes)


@parallel_kernel.part
def _repeats(keys, spare, sorted_digits):
    """Whether values that are not missing repeat, by a sample; in 100,000 distinct ones 512 find one or two that are equal."""
    sample, room = spare[:SAMPLE], spare[SAMPLE : 2 * SAMPLE]
    for i in range(uint64(SAMPLE)):
        sample[i] = keys[i * uint64(keys.size) // uint64(SAMPLE)]
    n, is_moved = sort_keys(sample, room, uint64(0), sorted_digits)
    ordered, n_equal = room if is_moved else sample, int64(0)
    for i in range(1, int64(n)):
        n_equal += int64(ordered[i] == ordered[i - 1])
    return n_equal > MOST_REPEATED


@parallel_kernel.part
def _rank(j, n, n_bins):
    """Target j: the smallest rank r, from 1, with r·B ≥ j·n."""
    return (j * n + n_bins - 1) // n_bins


@parallel_kernel.part
def _number_halves(counts, first, last, n, n_bins, slots):
    """Give slots to the halves that hold targets, and to the first and the last one. Returns how many there are then."""
    up_to, j, n_slots = int64(0), int64(1), int64(1)
    for half in range(first, last + 1):
        up_to += int64(counts[half])
        is_wanted = half == first or half == last
        while j < n_bins and _rank(j, n, n_bins) <= up_to:
            is_wanted = True
            j += 1
        if is_wanted:
            slots[half] = uint16(n_slots)
            n_slots += 1
    return n_slots


@parallel_kernel.part
def _choose_digits(counts, first, last, n, n_bins, slots, n_slots, digits, wanted, targets):
    """Mark the digits of which keys are collected: of the 24 bits that hold targets, the next that occur, and the first and last.

    targets[j − 1] : OUT. The 24 bits that hold target j, and how many keys lie below them.
    Returns how many keys are wanted. Where the next ones are in a half whose digits are not counted, it gets a slot here.
    """
    wanted[:n_slots] = 0
    below, j, n_wanted, follows, n_all = int64(0), int64(1), int64(0), False, n_slots
    for half in range(first, last + 1):
        slot, n_keys = int64(slots[half]), int64(counts[half])
        if slot == 0 and follows and n_keys > 0:
            slots[half], wanted[n_all], follows = uint16(n_all), uint8(1), False
            n_all, n_wanted = n_all + 1, n_wanted + n_keys
        if slot == 0:
            below += n_keys
            continue
        latest = int64(-1)
        for digit in range(DIGITS):
            if digits[slot, digit] == 0:
                continue
            up_to = below + int64(digits[slot, digit])
            is_wanted, follows = follows or (half == first and latest < 0), False
            while j < n_bins and _rank(j, n, n_bins) <= up_to:
                targets[j - 1, 0], targets[j - 1, 1] = half << 8 | digit, below
                is_wanted = follows = True
                j += 1
            if is_wanted:
                wanted[slot, digit] = uint8(1)
                n_wanted += int64(digits[slot, digit])
            below, latest = up_to, int64(digit)
        if half == last and wanted[slot, latest] == 0:
            wanted[slot, latest] = uint8(1)
            n_wanted += int64(digits[slot, latest])
    return n_wanted


@parallel_kernel.part
def _read_off(ordered, n, n_bins, targets, keys, extremes):
    """The cuts after the targets, into keys, by the sorted keys that were collected; or −1, where a value holds two targets."""
    size, at, largest = int64(ordered.size), int64(0), int64(ordered[ordered.size - 1])
    before = int64(-1)
    for j in range(1, n_bins):
        while int64(ordered[at]) >> 8 < targets[j - 1, 0]:
            at += 1
        i = at + _rank(j, n, n_bins) - targets[j - 1, 1] - 1
        value = int64(ordered[i])
        if value == before or value == largest:  # which holds target B
            return int64(-1)
        while int64(ordered[i]) == value:  # which is not the largest: another one comes
            i += 1
        targets[j - 1, 2] = int64(float_bits(middle_value(uint32(value), ordered[i])))
        before = value
    for j in range(1, n_bins):
        keys[j - 1] = uint32(targets[j - 1, 2])
    extremes[0], extremes[1] = ordered[0], ordered[size - 1]
    return int64(n_bins - 1)
