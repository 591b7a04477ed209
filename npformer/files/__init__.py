"""Files: checkpoints, JSON, logs, locks, and what holds of each file at any time.

A file has its old content or its new one, never a part: it is written under another name and then
renamed (``paths.py``). Files of a folder that belong together are replaced together, by an exchange
of folders (``folders.py``). What is read from a file is checked before anything is made of it
(``checkpoint.py``, ``strict_json.py``).
"""
