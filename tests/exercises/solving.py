"""Answers in a person's file."""

import re


def solve(track, *labels):
    """Put answers into the file of a track, those of the page; by default all."""
    text = track.file.read_text(encoding="utf-8")
    for label in labels or [
        label for label, part in track.parts.items() if not part.has_later_backward
    ]:
        part = track.parts[label]
        function = re.compile(rf"(?ms)^def {part.function_name}\(.*?(?=^\S)")
        text = function.sub(lambda _, part=part: part.answer_source + "\n\n", text)
    track.file.write_text(text, encoding="utf-8")
