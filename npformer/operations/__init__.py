"""What an operation is: its contract, its record, its dispatcher, and the backends that have
kernels for it.

``operation`` and ``backward_of`` (``record.py``) make an operation of a function, and
``Backend.kernel_of`` (``backend.py``) puts a kernel in its place. Those of ``formula.py`` only give
a function its record, so that the math of the reference calls the functions themselves.

What everybody else calls is the dispatcher (``dispatcher.py``): it binds the arguments, checks them
against the contract (``contract.py``, ``shapes.py``) and their type hints (``options.py``), and
follows a plan (``plan.py``), which says whether a kernel computes the result, and what is converted
for it. ``explain.py`` lists what ran. ``settings.py`` has the records of options that several
operations share. Nothing else in this folder knows any operation.
"""
