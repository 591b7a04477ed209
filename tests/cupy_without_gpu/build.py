"""Build CuPy for a make-believe CUDA, into the environment of the Python that runs this file.

CuPy's own stub build (CUPY_INSTALL_USE_STUB) needs no CUDA: every function of CUDA that it calls
does nothing. Here the functions that the libraries of this folder define are left to them. After a
change of their names, build again.

usage: python build.py FOLDER [--libraries]

The sources are unpacked in FOLDER, and the libraries lie there; --libraries builds these alone.
"""

import ctypes
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

VERSION = "14.2.0"
HERE = Path(__file__).parent
LIBRARIES = {"make_believe_cuda": "libcuda.so.1", "make_believe_cublas": "libcublas.so.13"}
STUB = {"CUPY_INSTALL_USE_STUB": "1", "CFLAGS": "-O1 -g0", "CUPY_NUM_BUILD_JOBS": "2"}


def build_libraries(folder):
    """Compile the libraries that take the places of CUDA's driver and runtime, and of cuBLAS."""
    for source, library in LIBRARIES.items():
        command = [
            "g++",
            "-std=c++17",
            "-O2",
            "-Wall",
            "-Wno-attribute-alias",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{library}",
        ]
        subprocess.run(
            [*command, HERE / f"{source}.cpp", "-o", folder / library, "-ldl"], check=True
        )


def patch(source, folder):
    """Leave the functions that the libraries define to them, let CuPy load the driver,
    and know pinned memory.
    """
    libraries = [ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in LIBRARIES.values()]

    def declared(function):
        is_defined = any(hasattr(library, function["name"]) for library in libraries)
        return f"{function['head']};\n" if is_defined else function[0]

    for header in ("cupy_cuda_runtime.h", "cupy_cublas.h"):
        path = source / "cupy_backends" / "stub" / header
        functions = re.compile(
            r"^(?P<head>[\w ]+[ *]+(?P<name>\w+)\([^)]*\)) \{.*?^\}\n", re.MULTILINE | re.DOTALL
        )
        path.write_text(functions.sub(declared, path.read_text()))
    api = source / "cupy_backends" / "cuda" / "api"
    _replace(
        api / "_driver_extern.pxi",
        "cdef object libname = None",
        "cdef object libname = 'libcuda.so.1'",
    )
    _replace(
        api / "runtime.pyx",
        "raise ValueError('Fetching memory unsupported.')",
        "return (<int*>&attrs)[0]",
    )


def _replace(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, f"{path}: {old}"
    path.write_text(text.replace(old, new))


def main(folder):
    """Do nothing twice: what is unpacked and patched is not unpacked again,
    and pip compiles what has changed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    build_libraries(folder)
    if "--libraries" in sys.argv:
        return
    pip(
        "install",
        "setuptools>=77",
        "wheel",
        "Cython>=3.2,<3.3",
        "numpy>=2",
        "cuda-pathfinder>=1.3.4",
    )
    source = folder / f"cupy-{VERSION}"
    if not source.exists():
        pip(
            "download",
            "--no-deps",
            "--no-build-isolation",
            "--no-binary=cupy",
            f"cupy=={VERSION}",
            f"--dest={folder}",
        )
        with tarfile.open(folder / f"cupy-{VERSION}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        patch(source, folder)
    pip("install", "--no-deps", "--no-build-isolation", source)


def pip(*arguments):
    """Run pip, for CuPy's stub build."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, env=os.environ | STUB)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
