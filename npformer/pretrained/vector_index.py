"""Vectors of sentences in a file, by their sentences: only those of new ones are computed."""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np

from npformer.arrays import Array
from npformer.files.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

OF_MODEL = "vectors of model"  # in the file, the checksum of their model
CHUNK = 2000  # sentences computed at a time; after Ctrl-C the vectors of whole chunks are kept


class VectorIndex:
    """The vectors in a file, if it is there, and of what is added.

    Parameters
    ----------
    path : Path
    of_model : str
        The checksum of the model: a file with the vectors of another one is refused.
    """

    def __init__(self, path: Path, of_model: str):
        self.path = path
        self.of_model = of_model
        self.by_key: dict[bytes, Array] = {}
        if path.exists():
            arrays, info = load_checkpoint(path)
            if info.get(OF_MODEL) != of_model:
                raise CheckpointError(
                    f"{path} has no vectors of this model: choose another file, or delete it"
                )
            keys = map(bytes, arrays["keys"])
            self.by_key = dict(zip(keys, arrays["vectors"], strict=True))

    def missing(self, sentences: Iterable[str]) -> list[str]:
        """The sentences that have no vector yet."""
        return [sentence for sentence in sentences if key_of(sentence) not in self.by_key]

    def add(self, sentences: list[str], compute: Callable[[list[str]], Array]) -> None:
        """Add the vectors that ``compute`` returns of some sentences, and write the file."""
        n_before = len(self.by_key)
        try:
            for first in range(0, len(sentences), CHUNK):
                chunk = sentences[first : first + CHUNK]
                self.by_key |= zip(map(key_of, chunk), compute(chunk), strict=True)
        finally:  # Ctrl-C, too
            if len(self.by_key) > n_before:
                self._write()

    def vectors_of(self, sentences: Iterable[str]) -> Array:
        """The vectors of sentences, (N, D)."""
        return np.array([self.by_key[key_of(sentence)] for sentence in sentences])

    def _write(self):
        keys = np.frombuffer(b"".join(self.by_key), np.uint8).reshape(len(self.by_key), -1)
        arrays = {"keys": keys, "vectors": np.array(list(self.by_key.values()))}
        save_checkpoint(self.path, arrays, {OF_MODEL: self.of_model})


def key_of(sentence: str) -> bytes:
    """A checksum of a sentence, by which its vector is found."""
    return blake2b(sentence.encode(), digest_size=16).digest()
