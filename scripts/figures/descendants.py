"""Draw the figures of docs/descendants."""

from scripts.figures.drawing import chart, figure  # needs pip install -e .


@figure
def one_page_gpt():
    """The loss of docs/one_page_gpt.py in the run that the page shows, on 192 passages of each part
    of the text.
    """
    steps = [50, 100, 200, 300, 500, 700, *range(1000, 5001, 500)]
    read = [
        2.532,
        2.140,
        1.687,
        1.525,
        1.394,
        1.328,
        1.233,
        1.141,
        1.059,
        0.997,
        0.925,
        0.863,
        0.792,
        0.738,
        0.714,
    ]
    new = [
        2.478,
        2.102,
        1.716,
        1.579,
        1.484,
        1.424,
        1.395,
        1.366,
        1.355,
        1.393,
        1.423,
        1.455,
        1.524,
        1.577,
        1.604,
    ]
    axes = chart("step", "loss per character")
    axes.plot(
        steps, new, "s--", color="black", markersize=5, label="the last tenth, which it never reads"
    )
    axes.plot(steps, read, "o-", color="black", markersize=5, label="the rest of the text")
    axes.set(ylim=(0, 2.7), xticks=range(0, 5001, 1000))
    axes.legend(frameon=False)
