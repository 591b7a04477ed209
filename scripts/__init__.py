"""What users run, ``python scripts/train_copy.py``, and what measures npformer.

In the folders here, what begins with bench_, compare_, diagnose_, draw_, measure_, predict_ or
study_ is a script, with a command line. Scripts import the other files, and each other, as
``scripts.…``: ``pip install -e .`` puts the folder above this
one on Python's path.
"""
