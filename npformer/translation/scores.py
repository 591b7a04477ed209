"""How good a translation is, by sacrebleu (``pip install npformer[translation]``)."""


def score(hypotheses, references, language):
    """BLEU and chrF of translations against one reference each.

    Parameters
    ----------
    hypotheses, references : lists of str
        As people write: cased, not tokenised.
    language : str
        Of both, as "fr": what Moses' tokeniser has to know.

    Returns
    -------
    dict
        "bleu", cased and tokenised by sacreBLEU: the number to compare with others that have the same signature;
        "bleu_lower", of lower-cased text as Moses' tokeniser cuts it: what the literature on Multi30k reports;
        "chrf"; and the signature of each under "signatures".

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
    """What ``score`` needs is installed, or an error that says how."""
    try:
        import sacrebleu  # noqa: F401
        import sacremoses  # noqa: F401
    except ImportError as error:
        raise ImportError("scores need sacrebleu and sacremoses: pip install 'npformer[translation]'") from error
