"""Work on a few rows that takes microseconds, as in decoding, and that threads share: products with
a large matrix, and attention.

Why it is fast: the time is that of reading the matrix from memory, which one core does not do as
fast as several. BLAS would copy the matrix first, and waking threads would take longer than the
work.

An order to read the files in: ``product`` is the product, in one of six ways, of which it has a
table. ``dots`` has the way that reads the columns of the matrix one by one, ``panels`` those for
rows that are copied side by side. ``helpers`` are the threads. They find a job, one of the
``records``, at an address on a board, whose words they change by ``atomics``. Other files import
from here.
"""

from npformer.cpu.few_rows.helpers import JIT, PIECES, share_pieces
from npformer.cpu.few_rows.product import (
    WORTH_IT,
    add_multiple,
    multiply_few_rows,
    panels_of,
    team_for,
)
from npformer.cpu.few_rows.records import PIECE_SIGNATURE, Matrix, array_at, record_at
