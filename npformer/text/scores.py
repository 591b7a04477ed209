"""Scores of translations, by sacrebleu."""

from importlib.util import find_spec

from npformer.checks import each_line, shown, warn
from npformer.errors import UserError
from npformer.extras import pip_install

# Languages that Moses' tokeniser knows, but that have no abbreviations.
WITHOUT_PREFIXES = ("ja", "ko", "cjk")


def score(hypotheses, references, language):
    """Compute BLEU and chrF of translations, with one reference for each.

    Parameters
    ----------
    hypotheses, references : lists of str
        Ordinary text, cased and not tokenised.
    language : str
        Language of both, such as "fr", for Moses' tokeniser. It has rules for some languages; a
        warning says if it takes those of English.

    Returns
    -------
    dict
        "bleu", cased and tokenised by sacreBLEU, which is comparable with other scores of the same
        signature; "bleu_lower", of lower-cased text, tokenised by Moses' tokeniser, as the
        literature on Multi30k reports it; "chrf"; and "signatures", a dict with the signature of
        each score.

    Examples
    --------
    >>> scores = score(["Un homme à vélo."], ["Un homme à vélo."], "fr")
    >>> round(scores["bleu"]), round(scores["bleu_lower"]), round(scores["chrf"])
    (100, 100, 100)
    >>> scores["signatures"]["bleu"]  # doctest: +ELLIPSIS
    'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...'
    """
    hypotheses = list(each_line("hypotheses", hypotheses))
    references = list(each_line("references", references))
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses, {len(references)} references: expected equally many"
        )
    if not hypotheses:
        raise UserError("hypotheses and references are empty, expected one or more sentences")
    check_packages()
    _check_language(language)
    from sacrebleu.metrics import BLEU, CHRF
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    tokenizer = MosesTokenizer(language)
    normalizer = MosesPunctNormalizer(language)

    def lower(lines):
        normal = [normalizer.normalize(line.lower()) for line in lines]
        return [tokenizer.tokenize(line, return_str=True, escape=False) for line in normal]

    as_they_are = hypotheses, references
    compared = {
        "bleu": (BLEU(force=True), *as_they_are),
        "bleu_lower": (BLEU(tokenize="none", force=True), lower(hypotheses), lower(references)),
        "chrf": (CHRF(), *as_they_are),
    }
    scores = {}
    signatures = {}
    for name, (metric, ours, theirs) in compared.items():
        scores[name] = metric.corpus_score(ours, [theirs]).score
        signatures[name] = str(metric.get_signature())
    signatures["bleu_lower"] += (
        "|lower-cased, then Moses' punctuation normaliser and tokeniser (sacremoses)"
    )
    return scores | {"signatures": signatures}


def _check_language(language):
    """Warn of a language for which Moses' tokeniser silently takes the rules of English."""
    if not isinstance(language, str):
        kind = type(language).__name__
        raise TypeError(f"language={shown(language)} is a {kind}, expected a code such as 'fr'")
    from sacremoses.corpus import NonbreakingPrefixes

    codes = NonbreakingPrefixes().available_langs  # also by the names of the languages
    if language not in {*codes.values(), *WITHOUT_PREFIXES}:
        expected = "a code such as 'fr', where there is one"
        if language in codes:
            expected = repr(codes[language])
        warn(
            f"language={language!r}: "
            f"Moses' tokeniser has no rules for it and takes those of English; expected {expected}"
        )


def check_packages():
    """Raise an error that says what to install if a package that ``score`` needs is missing."""
    # To import them takes half a second.
    if not (find_spec("sacrebleu") and find_spec("sacremoses")):
        raise ImportError(f"scores need sacrebleu and sacremoses: {pip_install('translation')}")
