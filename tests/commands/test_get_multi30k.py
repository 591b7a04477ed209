"""``scripts/get_multi30k.py``, with a small corpus of our own and a server of our own."""

import functools
import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from npformer.commands import get_multi30k

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
def fetch(call, tmp_path):
    """``fetch(*arguments)`` runs the command, which does what it is to do: what it shows."""

    def fetch(*arguments, out=tmp_path):
        code, shown, errors = call(get_multi30k.main, *arguments, "--out", out)
        assert code == 0, errors
        return shown

    return fetch


@pytest.fixture
def fails(failure, tmp_path):
    """``fails(*arguments)`` runs the command, and returns the line with which it ends."""

    def fails(*arguments, out=tmp_path):
        [message] = failure(get_multi30k.main, *arguments, "--out", out).splitlines()
        assert message.startswith("error: ")
        return message

    return fails


def texts_in(folder):
    assert all(path.suffix == ".gz" for path in folder.iterdir()), "a temporary file was left"
    return {path.stem: gzip.decompress(path.read_bytes()) for path in folder.iterdir()}


# -- from a server ---------------------------------------------------------------------------------


def test_all_files_then_none_again(fetch, server, tmp_path):
    out = tmp_path / "deep" / "er"
    shown = fetch("--url", server.url + "/", out=out)
    assert texts_in(out) == TEXTS
    assert f"train.fr.gz: {server.url}/train.fr.gz\n" in shown
    assert "non-commercial" in shown
    assert f"--data {out} --src en --tgt fr --out runs/en-fr\n" in shown

    asked = len(server.asked)
    again = fetch("--url", server.url, out=out)
    assert len(server.asked) == asked == 9
    assert again.count(".gz: already there\n") == 9


def test_only_the_languages_asked_for(fetch, server, tmp_path):
    shown = fetch("--url", server.url, "--langs", "de,en")
    not_french = {name: text for name, text in TEXTS.items() if not name.endswith("fr")}
    assert texts_in(tmp_path) == not_french
    assert "--src de --tgt en --out runs/de-en" in shown


WRONG = {
    "another text": gzip.compress(b"another text\n"),
    "cut short": GZIPPED["/train.en.gz"][:-9],
    "nonsense": b"\x1f\x8bnonsense",
    "empty": b"",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_fetched_again_and_a_wrong_answer_is_not_kept(
    fetch, fails, server, tmp_path, kind
):
    server.files["/train.en.gz"] = WRONG[kind]
    message = fails("--url", server.url)
    assert f"{server.url}/train.en.gz is damaged or not the train.en expected" in message
    assert hashlib.sha256(get_multi30k.text_of(WRONG[kind])).hexdigest() in message
    assert f"expected {get_multi30k.SHA256['train.en']}" in message
    assert texts_in(tmp_path) == {}

    server.files = GZIPPED
    fetch("--url", server.url)
    for there in (WRONG[kind], TEXTS["train.en"]):  # which is not compressed
        (tmp_path / "train.en.gz").write_bytes(there)
        server.asked.clear()
        fetch("--url", server.url)
        assert server.asked == ["/train.en.gz"]
        assert texts_in(tmp_path) == TEXTS


@pytest.mark.parametrize("broken", [503, None])
def test_a_server_that_fails_twice(fetch, server, tmp_path, broken):
    server.files["/train.en.gz"] = [broken, broken, GZIPPED["/train.en.gz"]]
    fetch("--url", server.url)
    assert texts_in(tmp_path) == TEXTS


def test_a_server_that_fails(fails, server):
    def says(words, answers, cut=0):
        server.files["/train.en.gz"] = list(answers)
        server.cut = cut
        server.asked.clear()
        message = fails("--url", server.url)
        assert f"{server.url}/train.en.gz: " in message and words in message
        assert "--from DIR takes a local copy" in message
        assert server.asked == ["/train.en.gz"] * len(answers)

    says("HTTP Error 404", [404])  # it is not asked again
    says("503", [503] * 3)
    says("IncompleteRead", [GZIPPED["/train.en.gz"]] * 3, cut=7)
    server.server_close()  # nobody listens on its port now
    assert "refused" in fails("--url", server.url)


# -- from a folder ---------------------------------------------------------------------------------


def test_from_a_folder_plain_or_gzip(fetch, tmp_path):
    folder, out = tmp_path, tmp_path / "out"
    for i, (name, text) in enumerate(TEXTS.items()):
        if i % 2:
            (folder / name).write_bytes(text)
        else:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text, 1))
    fetch("--from", folder, out=out)
    assert texts_in(out) == TEXTS


def test_missing_files_of_a_folder_are_all_named(fetch, fails, tmp_path):
    folder, out = tmp_path, tmp_path / "out"
    for name in set(TEXTS) - {"val.de", "train.fr"}:
        (folder / name).write_bytes(TEXTS[name])
    message = fails("--from", folder, out=out)
    assert f"{folder} lacks" in message
    assert "train.fr, val.de;" in message
    assert not out.exists()
    (folder / "train.fr").write_bytes(TEXTS["train.fr"])
    fetch("--from", folder, "--langs", "en,fr", out=out)  # val.de is not asked for
    assert len(texts_in(out)) == 6


def test_no_more_of_a_file_is_read_than_a_text_may_have(fails, tmp_path, monkeypatch):
    monkeypatch.setattr(get_multi30k, "LONGEST", 1000)
    bomb = gzip.compress(bytes(10**6)) * 100  # which holds 100 MB
    assert len(get_multi30k.text_of(bomb)) == 1000
    (tmp_path / "long").write_bytes(bytes(2000))
    assert len(get_multi30k.read_file(tmp_path / "long")) == 1000
    for name, text in TEXTS.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "train.en").write_bytes(bomb[:1000])
    message = fails("--from", tmp_path, out=tmp_path / "out")
    assert f"{tmp_path / 'train.en'} is damaged or not the train.en expected" in message
    assert (tmp_path / "train.en").exists()  # not kept in --out; the person's own file stays
