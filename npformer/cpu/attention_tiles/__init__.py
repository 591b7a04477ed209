"""Attention in tiles: the steps of ``reference/math/flash_attention.py``, in loops.

Why it is fast: the rows of a head are short and far apart, so its matrices are copied before they
are multiplied, once for all tiles, and stay in the cache. A thread computes whole heads without
returning to Python. The kernels work in place: scores become weights, and in the backward pass
gradients of the weights become gradients of the scores. Tiles of keys that are hidden from all
queries of a tile, by the causal mask or by a mask with a row for each query, are skipped.

An order to read the files in: ``tile`` says where a tile is and which of its keys a query sees;
``forward`` walks over the tiles; ``scores`` computes with the scores of one; ``backward`` walks
over them again. ``heads`` has the matrices of heads, and their copies. ``calls`` divides the heads
between threads, and ``options`` is what the kernels get besides arrays. Other files import from
here.
"""

from npformer.cpu.attention_tiles.backward import attend_backward
from npformer.cpu.attention_tiles.forward import attend
from npformer.cpu.attention_tiles.heads import as_heads
from npformer.cpu.attention_tiles.options import KNOWN, kernel_options, with_four_axes
from npformer.cpu.attention_tiles.scores import weigh
from npformer.cpu.attention_tiles.tile import Tile
