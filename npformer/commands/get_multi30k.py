"""Download Multi30k (29,000 captions in English, French and German), verify it, and save it in a
folder.

npformer get-multi30k                          # into data/multi30k, 2 MB
npformer get-multi30k --from ~/Downloads       # no network: a local copy, gzip or plain text
"""

import argparse
import gzip
import hashlib
import http.client
import io
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Annotated

from npformer.commands import called
from npformer.commands.shared import OutputFolder, Reading, UsageError, command_line, write_whole

from npformer.errors import UserError

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
FOLDER = Path("data/multi30k")
LANGUAGES = "en,fr,de"
WAITS = (1, 3)  # seconds before the second and the third try
GZIP_MAGIC = b"\x1f\x8b"
# Bytes read of a file: the longest text has 2 MB, and a small gzip file may hold terabytes.
LONGEST = 2**24

# Checksums of the text, not of the .gz files, so that text that is compressed differently or not at
# all is accepted.
SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
}


def address(text):
    """The type of an argument that is an address."""
    is_address = text.startswith(("https://", "http://", "file://")) and text.isascii()
    if not is_address or set(text) & set(" \n"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected an address that begins with https://")
    return text


@command_line
def main(
    *,
    out: OutputFolder = FOLDER,
    langs: str = LANGUAGES,
    source: Annotated[Path | None, Reading(flag="--from")] = None,
    url: Annotated[str | None, Reading(type=address)] = None,
):
    """Download the texts.

    Parameters
    ----------
    out
        folder of the texts
    langs
        two or three of en,fr,de
    source : DIR
        a local copy, instead of downloading
    url : BASE
        folder of a mirror, where there is no --from (default: on GitHub)
    """
    if source and url:
        raise UsageError("argument --url: not allowed with argument --from")
    languages = list(dict.fromkeys(langs.split(",")))
    if len(languages) < 2 or not set(languages) <= set(LANGUAGES.split(",")):
        raise UsageError(
            f"argument --langs: {','.join(languages)!r}, expected two or three of {LANGUAGES}"
        )
    names = [name for name in SHA256 if name.split(".")[-1] in languages]
    missing = [name for name in names if not is_there(out / f"{name}.gz", name)]
    if source:
        sources = local_files(source, missing)
        read = read_file
    else:
        folder = (url or URL).rstrip("/")
        sources = {name: f"{folder}/{name}.gz" for name in missing}
        read = download
    for name in names:
        file = out / f"{name}.gz"
        if name in missing:
            text = verified(text_of(read(sources[name])), name, sources[name])
            write_whole(file, gzip.compress(text, mtime=0))
        print(f"{file}: {sources.get(name, 'already there')}", flush=True)
    src, tgt, *_ = languages
    print(
        "\nThe data is for research and teaching, non-commercial: see the terms of Multi30k and "
        f"of Flickr30k.\nNext: {called('train-translation')} --data {out} "
        f"--src {src} --tgt {tgt} --out runs/{src}-{tgt}"
    )


def is_there(path, name):
    """Whether a file has the text of this name, compressed."""
    data = read_file(path) if path.is_file() else b""
    return data.startswith(GZIP_MAGIC) and digest(text_of(data)) == SHA256[name]


def local_files(folder, names):
    """The files of a folder, plain or compressed, that have these names."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is missing"
        raise UserError(f"{folder} {what}: expected a folder")
    files = {}
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                files[name] = path
    if missing := ", ".join(name for name in names if name not in files):
        raise UserError(
            f"{folder} lacks (as NAME.gz or as NAME): {missing}; add them, or change --langs"
        )
    return files


def read_file(path):
    with open(path, "rb") as file:
        return file.read(LONGEST)


def download(url):
    """The bytes of an address, after a second and a third try if the server or the network
    fails.
    """
    waits = list(WAITS)
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return whole(response)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            # Trying again does not help against a 404.
            if not waits or getattr(error, "code", 500) < 500:
                raise UserError(
                    f"{url}: {error}; --from DIR takes a local copy, --url BASE another server"
                ) from error
        time.sleep(waits.pop(0))


def whole(response):
    """The bytes of an answer, or as many as a file may have."""
    data = response.read(LONGEST)
    # Reading a number of bytes does not say that the connection was lost.
    if response.length and len(data) < LONGEST:
        raise http.client.IncompleteRead(data, response.length)
    return data


def digest(text):
    return hashlib.sha256(text).hexdigest()


def verified(text, name, source):
    """The text, if it is that of this name."""
    if digest(text) != SHA256[name]:
        raise UserError(
            f"{source} is damaged or not the {name} expected, and was not kept: SHA-256 "
            f"{digest(text)}, expected {SHA256[name]}; try again, or another copy with --from DIR "
            "or --url BASE"
        )
    return text


def text_of(data):
    """What data holds, compressed or not."""
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        return gzip.open(io.BytesIO(data)).read(LONGEST)
    except (OSError, EOFError, zlib.error):
        return data  # damaged: it will not match the checksum
