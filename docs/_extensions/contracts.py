"""What the pages of the API show: a package's own names, and the contract of an operation, the shapes of its arrays."""

from importlib import import_module

from npformer.operations.record import Record


def setup(app):
    app.connect("autodoc-process-docstring", add_contract)
    app.connect("autodoc-skip-member", skip_names_from_elsewhere)
    app.connect("viewcode-follow-imported", module_of_the_math)
    return {"parallel_read_safe": True}


def skip_names_from_elsewhere(app, what, name, member, skip, options):
    """Leave out what a module imports for its own use: it belongs to a package that the module is not part of."""
    module = getattr(member, "__module__", None)
    page = app.env.current_document.docname.removeprefix("api/generated/")
    return True if what == "module" and module and not module.startswith(page) else None


def module_of_the_math(app, module, name):
    """The module with the source of an operation, which also the page of ``npformer`` links; None for other names."""
    record = getattr(getattr(import_module(module), name, None), "record", None)
    return record and record.function.__module__


def add_contract(app, what, name, function, options, lines):
    """Write the contract below the first line of an operation's docstring."""
    record = getattr(function, "record", None)
    if isinstance(record, Record) and record.forward is None:  # the docstring of a backward pass has the shapes already
        given, made = shapes(record.contract.arrays.values()), shapes(record.contract.results)
        lines[1:1] = ["", f"**Shapes:** {given}{made and ' → ' + made}", ""]


def shapes(arrays):
    """The names of arrays with their axes, in one line."""
    kinds = {"mask": " bool", "ids": " int"}
    return ", ".join(f"``{array.name}`` {array}{kinds.get(array.kind, '')}" for array in arrays)
