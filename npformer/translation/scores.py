"""Scores of translations, by sacrebleu."""

from importlib.util import find_spec

from npformer.runtime.extras import pip_install


def score(hypotheses, references, language):
    """Compute BLEU and chrF of translations, with one reference for each.

    Parameters
    ----------
    hypotheses, references : lists of str
        Ordinary text, cased and not tokenised.
    language : str
        Language of both, such as "fr", for Moses' tokeniser.

    Returns
    -------
    dict
        "bleu", cased and tokenised by sacreBLEU, which is comparable with other scores of the same signature;
        "bleu_lower", of lower-cased text, tokenised by Moses' tokeniser, as the literature on Multi30k reports it;
        "chrf"; and "signatures", a dict with the signature of each score.

    Examples
    --------
    >>> scores = score(["Un homme à vélo."], ["Un homme à vélo."], "fr")
    >>> round(scores["bleu"]), round(scores["bleu_lower"]), round(scores["chrf"])
    (100, 100, 100)
    >>> scores["signatures"]["bleu"]  # doctest: +ELLIPSIS
    'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...'
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references: expected equally many")
    check_packages()
    from sacrebleu.metrics import BLEU, CHRF
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    cut, normal = MosesTokenizer(language), MosesPunctNormalizer(language)
    lower_hypotheses, lower_references = (
        [cut.tokenize(normal.normalize(line.lower()), return_str=True, escape=False) for line in lines]
        for lines in (hypotheses, references)
    )
    metrics = {
        "bleu": (BLEU(force=True), hypotheses, references),
        "bleu_lower": (BLEU(tokenize="none", force=True), lower_hypotheses, lower_references),
        "chrf": (CHRF(), hypotheses, references),
    }
    scores = {name: metric.corpus_score(ours, [theirs]).score for name, (metric, ours, theirs) in metrics.items()}
    signatures = {name: str(metric.get_signature()) for name, (metric, _, _) in metrics.items()}
    signatures["bleu_lower"] += "|lower-cased, then Moses' punctuation normaliser and tokeniser (sacremoses)"
    return scores | {"signatures": signatures}


def check_packages():
    """Raise an error that says what to install if a package that ``score`` needs is missing."""
    if not (find_spec("sacrebleu") and find_spec("sacremoses")):  # to import them takes half a second
        raise ImportError(f"scores need sacrebleu and sacremoses: {pip_install('translation')}")
