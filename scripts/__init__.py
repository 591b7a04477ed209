"""What users run, ``python scripts/train_copy.py``, and what measures npformer.

Scripts import each other as ``scripts.…``: ``pip install -e .`` puts the folder above this one on Python's path.
"""
