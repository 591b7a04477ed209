"""Work on a few rows that takes microseconds, as in decoding, and that threads share: products with
a large matrix, and attention.

``helpers`` are the threads, ``product`` is the product, which reads matrices as they lie
(``dots``), or of columns that lie side by side (``panels``). ``words`` has the records and words
through which threads tell each other what to do. Other files import from here.
"""

from npformer.cpu.few_rows.helpers import JIT, PIECES, share_pieces
from npformer.cpu.few_rows.product import (
    WORTH_IT,
    add_multiple,
    multiply_few_rows,
    panels_of,
    team_for,
)
from npformer.cpu.few_rows.words import PIECE_SIGNATURE, Matrix, array_at, record_at
