"""Why a model does not learn: checks of data, model, gradient, settings and decoding.

Each is a small experiment of one record, ``subject``. ``questions`` has a file for each and the
list of all, ``doctor`` asks them, and ``finding`` has the table of what they may find. ``watch``
looks for the ``signs`` that are seen only while a model trains.
"""

from npformer.diagnosis.doctor import diagnose as diagnose
from npformer.diagnosis.finding import Finding as Finding, Findings as Findings
