"""Measure the memory for reading and batching a text of five million pairs: it should be the same as for a small text.

python scripts/measure/measure_streaming.py
python scripts/measure/measure_streaming.py --pairs 300000

Writes two files of random sentences to a temporary folder, reads one epoch of batches from them, and records the memory
of the process (resident set) meanwhile.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from npformer.commands.arguments import new_parser, positive  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import add_json, write_json
from scripts.bench.memory import peak_bytes, resident_bytes

from npformer.data import ParallelText, Place, Subwords, TokenBatches

WORDS = 5000


@command
def main(argv=None):
    parser = new_parser(__doc__)
    parser.add_argument("--pairs", type=positive, default=5_000_000, help="(default: 5,000,000)")
    add_json(parser)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        text = write(Path(folder), options.pairs)
        megabytes = (text.source.stat().st_size + text.target.stat().st_size) / 1e6
        print(f"{options.pairs:,} pairs, {megabytes:,.0f} MB of text")
        subwords = Subwords.learn((line for _, line in zip(range(20_000), text.lines(), strict=False)), 4000)
        rows = measure(TokenBatches(text, subwords, subwords, max_tokens=4096, seed=1))
    write_json(options.json, {"pairs": options.pairs, "megabytes": megabytes, "rows": rows})


def write(folder, n_pairs):
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(WORDS)]
    paths = folder / "train.en", folder / "train.fr"
    with open(paths[0], "w") as source, open(paths[1], "w") as target:
        for _ in range(n_pairs):
            sentence = rng.choices(words, k=rng.randint(5, 20))
            source.write(" ".join(sentence) + "\n")
            target.write(" ".join(reversed(sentence)) + "\n")
    return ParallelText(*paths)


def measure(batches):
    start, n_pairs, rows, chunk = time.perf_counter(), 0, [], 0
    print("   pairs read    memory    at most    seconds")
    for place, src, _ in batches.epoch(Place()):
        if place.chunk > chunk and place.chunk % 5 == 0:
            rows.append(note(n_pairs, start))
        chunk = place.chunk
        n_pairs += len(src)
    rows.append(note(n_pairs, start))
    return rows


def note(n_pairs, start):
    resident, most, seconds = resident_bytes() / 1e6, peak_bytes() / 1e6, time.perf_counter() - start
    print(f"{n_pairs:>13,} {resident:>6.0f} MB {most:>7.0f} MB {seconds:>10.1f}", flush=True)
    return {"pairs": n_pairs, "resident_mb": resident, "peak_mb": most, "seconds": seconds}


if __name__ == "__main__":
    sys.exit(main())
