"""Why a model does not learn: checks of data, model, gradient, settings and decoding, each a small experiment."""

from npformer.diagnosis.doctor import diagnose as diagnose
from npformer.diagnosis.finding import Finding as Finding, Findings as Findings
