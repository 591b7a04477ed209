"""Download Multi30k (29,000 captions in English, French and German), verify it, and save it in a folder.

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

from npformer.commands import called
from npformer.commands.arguments import new_parser
from npformer.commands.command import command
from npformer.commands.output import output_folder, write_whole

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
WAITS = (1, 3)  # seconds before the second and the third try
GZIP_MAGIC = b"\x1f\x8b"
LONGEST = 2**24  # bytes read of a file: the longest text has 2 MB, and a small gzip file may hold terabytes

# Checksums of the text, not of the .gz files, so that text that is compressed differently or not at all is accepted.
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


@command
def main(argv=None):
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--out", type=output_folder, default="data/multi30k", metavar="DIR", help="(default: data/multi30k)")
    add("--langs", default="en,fr,de", help="two or three of en,fr,de (default: en,fr,de)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--from", type=Path, dest="source", metavar="DIR", help="a local copy, instead of downloading")
    source.add_argument("--url", type=url, default=URL, metavar="BASE", help="folder of a mirror (default: on GitHub)")
    options = parser.parse_args(argv)
    options.langs = list(dict.fromkeys(options.langs.split(",")))
    if len(options.langs) < 2 or not set(options.langs) <= {"en", "fr", "de"}:
        parser.error(f"argument --langs: {','.join(options.langs)!r}, expected two or three of en,fr,de")
    names = [name for name in SHA256 if name.split(".")[-1] in options.langs]
    wanted = [name for name in names if not is_there(options.out / f"{name}.gz", name)]
    if options.source:
        sources, read = local_files(options.source, wanted), read_file
    else:
        sources, read = {name: f"{options.url.rstrip('/')}/{name}.gz" for name in wanted}, download
    for name in names:
        if name in wanted:
            text = verified(text_of(read(sources[name])), name, sources[name])
            write_whole(options.out / f"{name}.gz", gzip.compress(text, mtime=0))
        print(f"{options.out / name}.gz: {sources.get(name, 'already there')}", flush=True)
    src, tgt, *_ = options.langs
    print(
        "\nThe data is for research and teaching, non-commercial: see the terms of Multi30k and of Flickr30k."
        f"\nNext: {called('train-translation')} --data {options.out} "
        f"--src {src} --tgt {tgt} --out runs/{src}-{tgt}"
    )


def is_there(path, name):
    data = read_file(path) if path.is_file() else b""
    return data.startswith(GZIP_MAGIC) and hashlib.sha256(text_of(data)).hexdigest() == SHA256[name]


def local_files(folder, names):
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} {'is a file' if folder.exists() else 'is missing'}: expected a folder")
    found = {name: path for name in names for path in (folder / name, folder / f"{name}.gz") if path.is_file()}
    if missing := [name for name in names if name not in found]:
        names = ", ".join(missing)
        raise FileNotFoundError(f"{folder} lacks (as NAME.gz or as NAME): {names}; add them, or change --langs")
    return found


def read_file(path):
    with open(path, "rb") as file:
        return file.read(LONGEST)


def download(url):
    waits = [*WAITS]
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return whole(response)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            if not waits or getattr(error, "code", 500) < 500:  # trying again does not help against a 404
                raise OSError(f"{url}: {error}; --from DIR takes a local copy, --url BASE another server") from error
        time.sleep(waits.pop(0))


def whole(response):
    """The bytes of an answer, or as many as a file may have."""
    data = response.read(LONGEST)
    if response.length and len(data) < LONGEST:  # the connection was lost: reading a number of bytes does not say so
        raise http.client.IncompleteRead(data, response.length)
    return data


def verified(text, name, source):
    given = hashlib.sha256(text).hexdigest()
    if given != SHA256[name]:
        raise ValueError(
            f"{source} is damaged or not the {name} expected, and was not kept: SHA-256 {given}, "
            f"expected {SHA256[name]}; try again, or another copy with --from DIR or --url BASE"
        )
    return text


def text_of(data):
    try:
        return gzip.open(io.BytesIO(data)).read(LONGEST) if data.startswith(GZIP_MAGIC) else data
    except (OSError, EOFError, zlib.error):
        return data  # damaged: it will not match the checksum


def url(text):
    """The type of an argument that is an address."""
    if not text.startswith(("https://", "http://", "file://")) or not text.isascii() or set(text) & set(" \n"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected an address that begins with https://")
    return text
