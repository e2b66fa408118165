"""Which kernel adds up a table's records on a GPU, and how it is launched: numbers in, numbers out."""

from dataclasses import dataclass

import numpy as np

from gpuboost.kernels import histogram, histogram_tiles
from gpuboost.kernels.cuda_common import CudaKernel

__all__ = ["RecordTiles", "choose_tiles"]


@dataclass(frozen=True)
class RecordTiles:
    """kernel : one of the kernels build_histograms_… . word : type as which it reads records. shape : its two arguments behind
    offsets. shared_bytes : of a block. n_tiles : into how many tiles it cuts a histogram."""

    kernel: CudaKernel
    word: np.dtype
    shape: tuple[int, int]
    shared_bytes: int
    n_tiles: int

    @property
    def n_lines(self) -> int:
        """Lines of a tile; 0 where there is none."""
        return self.shape[0]


def choose_tiles(max_bins: int, n_codes: int, code_bytes: int, shared_limit: int) -> RecordTiles:
    """For records of n_codes codes of up to max_bins bins, where a block may have shared_limit bytes of shared memory.

    A sector of codes where its tile fits: of one-byte codes on every GPU that CUDA supports, of two-byte codes up to 1815 bins
    with 227 KB; of one-byte codes two sectors where a record has them and both tiles fit. Else fewer codes, whose adds may
    conflict, and where not even two fit, global memory.
    """
    n_bytes = code_bytes * n_codes
    shared_bytes = histogram_tiles.tile_bytes(max_bins, code_bytes)
    if shared_bytes <= shared_limit:
        record_bytes, width = histogram.record_bytes(n_bytes), 1
        both_bytes = histogram_tiles.SECOND_TILE + shared_bytes
        if code_bytes == 1 and record_bytes > histogram_tiles.TILE_CODES and both_bytes <= shared_limit:
            width, shared_bytes = 2, both_bytes
        kernel = histogram_tiles.build_histograms_kernel(code_bytes, width)
        n_words = histogram_tiles.tile_words(record_bytes)
        shape = histogram_tiles.tile_lines(max_bins, code_bytes), n_words
        return RecordTiles(kernel, np.dtype(np.uint64), shape, shared_bytes, -(-record_bytes // (8 * n_words * width)))
    record_words, word = -(-n_bytes // 4), np.dtype(np.uint32)
    if code_bytes == 2 and (n_words := histogram.strided_words(n_codes, max_bins, shared_limit)):
        shape, shared_bytes = (histogram.strided_stride(max_bins), n_words), histogram.strided_bytes(n_words, max_bins)
        return RecordTiles(histogram.build_strided_histograms_kernel, word, shape, shared_bytes, -(-record_words // n_words))
    return RecordTiles(histogram.build_histograms_global_kernel(code_bytes), word, (0, 0), 0, record_words)
