"""Show the contract of an operation, the shapes of its arrays, in its page of the API."""

from npformer.operation import Record


def setup(app):
    app.connect("autodoc-process-docstring", add_contract)
    return {"parallel_read_safe": True}


def add_contract(app, what, name, function, options, lines):
    """Write the contract below the first line of an operation's docstring."""
    record = getattr(function, "record", None)
    if isinstance(record, Record) and record.forward is None:  # the docstring of a backward pass has the shapes already
        given, made = shapes(record.contract.arrays.values()), shapes(record.contract.results)
        lines[1:1] = ["", f"**Shapes:** {given} → {made}", ""]


def shapes(arrays):
    """The names of arrays with their axes, in one line."""
    kinds = {"mask": " bool", "ids": " int"}
    return ", ".join(f"``{array.name}`` {array}{kinds.get(array.kind, '')}" for array in arrays)
