"""Why a model does not learn: checks of data, model, gradient, settings and decoding.

Each is a small experiment. There is a file for each question, and ``doctor`` has the list of all.
"""

from npformer.diagnosis.doctor import diagnose as diagnose
from npformer.diagnosis.finding import Finding as Finding, Findings as Findings
