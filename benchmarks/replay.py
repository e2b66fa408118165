"""What a GPU's memories do with the addresses of a warp: passes of shared memory's banks, lines and sectors of global memory.

    addresses : int64 (n, 32), of n instructions by the 32 lanes of a warp; IDLE for a lane that takes no part

Shared memory has 32 banks, of one word of 4 bytes a pass each: a load takes as many passes as one bank has different words to
give, an add as many as it has lanes to serve. Global memory is read in lines of 128 bytes (a pass of the load/store pipe each)
made of sectors of 32 bytes, which is what moves.
"""

import numpy as np

IDLE = -1
N_BANKS = 32
LINE, SECTOR = 128, 32  # bytes

KINDS = ("random", "half in one bin", "90 % in one bin", "one-hot", "sorted")


def add_passes(words: np.ndarray) -> np.ndarray:
    """int64 (n,): bank passes of an atomic add to these words of shared memory: the most lanes that one bank serves."""
    return _fullest_bank(words, words != IDLE)


def load_passes(words: np.ndarray) -> np.ndarray:
    """int64 (n,): bank passes of a load or store: the most different words of one bank. All lanes may read the same one."""
    in_order = np.sort(words, axis=1)
    is_first = np.diff(in_order, axis=1, prepend=IDLE) != 0
    return _fullest_bank(in_order, is_first & (in_order != IDLE))


def _fullest_bank(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    instruction = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    banks = np.bincount((instruction * N_BANKS + words % N_BANKS)[counts], minlength=len(words) * N_BANKS)
    return banks.reshape(len(words), N_BANKS).max(axis=1)


def touched(addresses: np.ndarray, size: int) -> np.ndarray:
    """int64 (n,): parts of ``size`` bytes (LINE, SECTOR) that each instruction touches, of bytes at these addresses."""
    parts = np.sort(np.where(addresses == IDLE, IDLE, addresses // size), axis=1)
    return (np.diff(parts, axis=1, prepend=IDLE) != 0).sum(axis=1)


def sectors_in_all(addresses: np.ndarray) -> int:
    """Sectors that all instructions together touch: what memory moves if caches keep each for as long as it is in use."""
    return len(np.unique(addresses[addresses != IDLE] // SECTOR))


def warps(lanes: np.ndarray) -> np.ndarray:
    """(steps, threads of a block) as (warps' instructions, 32)."""
    return lanes.reshape(-1, 32)


def rows_of_a_node(rng: np.random.Generator, n: int, share: float) -> np.ndarray:
    """int64 (n,): the first n rows, ascending, of a node that holds this share of the table's rows."""
    return np.cumsum(rng.geometric(share, n)) - 1


def codes_of(kind: str, rng: np.random.Generator, n_rows: int, n_features: int, n_bins: int) -> np.ndarray:
    """int64 (n_rows, n_features): codes of a kind of table, one of KINDS.

    one-hot : two bins, of one feature the second. sorted : rows by their first feature, which the others follow roughly; these
    are a few of many.
    """
    shape = n_rows, n_features
    if kind == "one-hot":
        return (rng.integers(0, n_features, (n_rows, 1)) == np.arange(n_features)).astype(np.int64)
    if kind == "sorted":
        return np.clip(n_bins // 2 + np.round(rng.normal(0, 2, shape)), 0, n_bins - 1).astype(np.int64)
    codes = rng.integers(0, n_bins, shape)
    share = {"random": 0.0, "half in one bin": 0.5, "90 % in one bin": 0.9}[kind]
    return np.where(rng.random(shape) < share, n_bins // 2, codes)
