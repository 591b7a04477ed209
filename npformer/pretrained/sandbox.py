"""Runs in a process of its own: the turns of a chat become a text by a template in Jinja, of
unknown origin.

It imports nothing of npformer, and reads and writes JSON. The process that started it ends it after
``SECONDS``.
"""

import contextlib
import datetime
import json
import sys

SECONDS = 20  # of a busy machine
MEMORY = 2**29  # bytes of addresses
MOST_CHARACTERS = 2**23  # of a text


def main():
    """Read a dict with the template and its variables; write one with the text, or an error."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not every system has such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        said = {"text": rendered(**json.load(sys.stdin.buffer))}
    except MemoryError:
        said = {"error": f"it needs more than {MEMORY / 2**20:.0f} MB"}
    except Exception as error:  # whatever the template does
        said = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    json.dump(said, sys.stdout)


def rendered(template, variables):
    """The text of a template, with what templates for the library transformers may have."""
    from jinja2.ext import Extension, loopcontrols
    from jinja2.nodes import Scope
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %}, around what a model is trained to say: here it changes nothing."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            return Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
            )

    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    jinja.filters["tojson"] = to_json
    jinja.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.datetime.now().strftime(form),
    }
    parts, n = [], 0
    for part in jinja.from_string(template).generate(**variables):
        parts.append(part)
        n += len(part)
        if n > MOST_CHARACTERS:
            raise ValueError(f"the text has more than {MOST_CHARACTERS:,} characters")
    return "".join(parts)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """The filter of transformers, which unlike that of jinja2 escapes nothing for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def refuse(why):
    """What a template calls if it does not accept the turns."""
    raise ValueError(why)


if __name__ == "__main__":
    main()
