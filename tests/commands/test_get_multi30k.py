"""``scripts/get_multi30k.py``, with a small corpus of our own and a server of our own."""

import functools
import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from npformer.commands import get_multi30k

SCRIPTS = Path(__file__).parents[2] / "scripts"

TEXTS = {
    f"{split}.{lang}": f"une phrase, {split}, {lang}: é\n".encode()
    for split in ("train", "val", "test_2016_flickr")
    for lang in ("en", "fr", "de")
}
GZIPPED = {f"/{name}.gz": gzip.compress(text) for name, text in TEXTS.items()}


class Handler(BaseHTTPRequestHandler):
    """Serves ``server.files``.

    A list has the answers in turn: a number is an HTTP status, None a lost connection.
    """

    def do_GET(self):
        self.server.asked.append(self.path)
        answer = self.server.files.get(self.path, 404)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if answer is None:
            return
        self.send_response(answer if isinstance(answer, int) else 200)
        body = b"" if isinstance(answer, int) else answer
        self.send_header("Content-Length", str(len(body) + self.server.cut))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.asked, server.cut = dict(GZIPPED), [], 0
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(
            target=functools.partial(server.serve_forever, poll_interval=0.01)
        )
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def small_corpus(monkeypatch):
    sums = {name: hashlib.sha256(text).hexdigest() for name, text in TEXTS.items()}
    monkeypatch.setattr(get_multi30k, "SHA256", sums)
    monkeypatch.setattr(get_multi30k, "WAITS", (0, 0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def fetch(call):
    """``fetch(*arguments)`` runs the command, which does what it is to do: what it shows."""

    def fetch(*arguments):
        code, shown, errors = call(get_multi30k.main, *arguments)
        assert code == 0, errors
        return shown

    return fetch


@pytest.fixture
def failure(call):
    """``failure(*arguments)`` runs the command, and returns the line with which it ends."""

    def failure(*arguments, code=1):
        ended = call(get_multi30k.main, *arguments)
        assert ended.code == code
        *usage, message = ended.errors.splitlines()
        if code == 1:
            assert message.startswith("error: ") and not usage
        return message

    return failure


def texts_in(folder):
    assert all(path.suffix == ".gz" for path in folder.iterdir()), "a temporary file was left"
    return {path.stem: gzip.decompress(path.read_bytes()) for path in folder.iterdir()}


# -- from a server ---------------------------------------------------------------------------------


def test_all_files_then_none_again(fetch, server, tmp_path):
    shown = fetch("--url", server.url + "/", "--out", tmp_path / "deep" / "er")
    assert texts_in(tmp_path / "deep" / "er") == TEXTS
    assert f"train.fr.gz: {server.url}/train.fr.gz\n" in shown
    assert "non-commercial" in shown
    assert f"--data {tmp_path / 'deep' / 'er'} --src en --tgt fr --out runs/en-fr\n" in shown

    asked = len(server.asked)
    again = fetch("--url", server.url, "--out", tmp_path / "deep" / "er")
    assert len(server.asked) == asked == 9
    assert again.count(".gz: already there\n") == 9


def test_only_the_languages_asked_for(fetch, server, tmp_path):
    shown = fetch("--url", server.url, "--out", tmp_path, "--langs", "de,en")
    assert texts_in(tmp_path) == {
        name: text for name, text in TEXTS.items() if not name.endswith("fr")
    }
    assert "--src de --tgt en --out runs/de-en" in shown


@pytest.mark.parametrize(
    "damaged",
    [gzip.compress(b"old"), GZIPPED["/val.fr.gz"][:-9], TEXTS["val.fr"], b""],
    ids=["another text", "cut short", "not gzip", "empty"],
)
def test_a_wrong_file_already_there_is_fetched_again(fetch, server, tmp_path, damaged):
    fetch("--url", server.url, "--out", tmp_path)
    (tmp_path / "val.fr.gz").write_bytes(damaged)
    server.asked.clear()
    fetch("--url", server.url, "--out", tmp_path)
    assert server.asked == ["/val.fr.gz"]
    assert texts_in(tmp_path) == TEXTS


@pytest.mark.parametrize(
    "wrong",
    [
        gzip.compress(b"another text\n"),
        GZIPPED["/train.en.gz"][:-9],
        b"\x1f\x8bnonsense",
        b"",
    ],
    ids=["another text", "cut short", "nonsense", "empty"],
)
def test_a_wrong_checksum_names_both_and_keeps_nothing(failure, server, tmp_path, wrong):
    server.files["/train.en.gz"] = wrong
    message = failure("--url", server.url, "--out", tmp_path)
    assert f"{server.url}/train.en.gz is damaged or not the train.en expected" in message
    assert hashlib.sha256(get_multi30k.text_of(wrong)).hexdigest() in message
    assert f"expected {get_multi30k.SHA256['train.en']}" in message
    assert texts_in(tmp_path) == {}


@pytest.mark.parametrize("broken", [503, None])
def test_a_server_that_fails_twice(fetch, server, tmp_path, broken):
    server.files["/train.en.gz"] = [broken, broken, GZIPPED["/train.en.gz"]]
    fetch("--url", server.url, "--out", tmp_path)
    assert texts_in(tmp_path) == TEXTS


@pytest.mark.parametrize(
    ("answers", "cut", "n_asked", "words"),
    [
        ([404], 0, 1, "HTTP Error 404"),  # it is not asked again
        ([503] * 3, 0, 3, "503"),
        ([GZIPPED["/train.en.gz"]] * 3, 7, 3, "IncompleteRead"),
    ],
)
def test_a_server_that_fails(failure, server, tmp_path, answers, cut, n_asked, words):
    server.files["/train.en.gz"] = list(answers)
    server.cut = cut
    message = failure("--url", server.url, "--out", tmp_path)
    assert f"{server.url}/train.en.gz: " in message and words in message
    assert "--from DIR takes a local copy" in message
    assert server.asked == ["/train.en.gz"] * n_asked


def test_an_unreachable_server(failure, server, tmp_path):
    server.server_close()  # nobody listens on its port now
    assert "refused" in failure("--url", server.url, "--out", tmp_path)


# -- from a folder ---------------------------------------------------------------------------------


def test_from_a_folder_plain_or_gzip(fetch, tmp_path):
    folder, out = tmp_path / "copy", tmp_path / "out"
    folder.mkdir()
    for i, (name, text) in enumerate(TEXTS.items()):
        if i % 2:
            (folder / name).write_bytes(text)
        else:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text, 1))
    fetch("--from", folder, "--out", out)
    assert texts_in(out) == TEXTS


def test_missing_files_of_a_folder_are_all_named(fetch, failure, tmp_path):
    folder, out = tmp_path / "copy", tmp_path / "out"
    folder.mkdir()
    for name in set(TEXTS) - {"val.de", "train.fr"}:
        (folder / name).write_bytes(TEXTS[name])
    message = failure("--from", folder, "--out", out)
    assert f"{folder} lacks" in message
    assert "train.fr, val.de;" in message
    assert not out.exists()
    (folder / "train.fr").write_bytes(TEXTS["train.fr"])
    fetch("--from", folder, "--out", out, "--langs", "en,fr")  # val.de is not asked for
    assert len(texts_in(out)) == 6


def test_no_more_of_a_file_is_read_than_a_text_may_have(failure, tmp_path, monkeypatch):
    monkeypatch.setattr(get_multi30k, "LONGEST", 1000)
    bomb = gzip.compress(bytes(10**6)) * 100  # which holds 100 MB
    assert len(get_multi30k.text_of(bomb)) == 1000
    (tmp_path / "long").write_bytes(bytes(2000))
    assert len(get_multi30k.read_file(tmp_path / "long")) == 1000
    for name, text in TEXTS.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "train.en").write_bytes(bomb[:1000])
    message = failure("--from", tmp_path, "--out", tmp_path / "out")
    assert f"{tmp_path / 'train.en'} is damaged or not the train.en expected" in message
    assert (tmp_path / "train.en").exists()  # not kept in --out; the person's own file stays
