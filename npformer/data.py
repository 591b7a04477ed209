"""Names of ``npformer.text`` and ``npformer.tokens`` under the paths that they had before.

CHANGELOG.md promises that these still lead there.
"""

import sys

from npformer.text import (
    copy_task,
    in_batches,
    lines,
    parallel_text,
    parallel_text as ahead,
    passages as text,
)
from npformer.text.copy_task import BOS, EOS, PAD, CopyTask
from npformer.text.in_batches import batches
from npformer.text.parallel_text import ParallelText, Place, TokenBatches
from npformer.text.passages import Text
from npformer.tokens import (
    Characters,
    Pieces,
    Subwords,
    load_tokens,
    marks,
    subwords,
    tokenizers as tokens,
)

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "Characters",
    "CopyTask",
    "ParallelText",
    "Pieces",
    "Place",
    "Subwords",
    "Text",
    "TokenBatches",
    "batches",
    "load_tokens",
]

MODULES = {
    "ahead": ahead,
    "copy_task": copy_task,
    "in_batches": in_batches,
    "lines": lines,
    "marks": marks,
    "parallel_text": parallel_text,
    "subwords": subwords,
    "text": text,
    "tokens": tokens,
}
sys.modules |= {f"{__name__}.{name}": module for name, module in MODULES.items()}
