"""A part of a model: an exercise whose function returns ``y, backward``, as those of a page do."""

import inspect
import traceback
from dataclasses import dataclass, replace

import numpy as np

from npformer import tree
from npformer.exercises.course.cases import paths
from npformer.exercises.course.page import Page
from npformer.exercises.exercise import Case, Complaint, ComplaintAboutGradients, Exercise
from npformer.runtime.forks import cached_property


@dataclass(frozen=True, eq=False, kw_only=True)
class Part(Exercise):
    """A function of the page, or one of its two directions.

    What is expected is what the page's function returns, which the tests compare with npformer.

    Attributes
    ----------
    course_name : str
        That of the course to which it belongs.
    one_page : Page
        The page that has the function.
    name : str
        That of the function, or of its backward pass.
    function : str
        The name of the function, if it is another one.
    argument_names : tuple of str
        By default those of the function.
    result_names : tuple of str
        Without the gradients.
    gradients : tuple of str
        The names of what ``backward`` returns, "grads" for those of the parameters. Empty if it is
        not asked for.
    has_later_backward : bool
        Whether the backward pass is an exercise of its own, which follows.
    derivation : str
        Why the answer is right, for a person who has solved it. Lines that are indented are Python,
        with the names of the page and those of the arguments: assignments, and equations ``a ==
        b``.
    """

    course_name: str
    one_page: Page
    name: str
    function: str = ""
    argument_names: tuple[str, ...] = ()
    result_names: tuple[str, ...] = ("y",)
    gradients: tuple[str, ...] = ()
    has_later_backward: bool = False
    derivation: str = ""
    given = ""  # it is written, not mended

    @property
    def key(self):
        """Its name among those of all exercises."""
        return f"{self.course_name}/{self.name}"

    @property
    def answer(self):
        """The function of the page."""
        return getattr(self.one_page.module, self.function or self.name)

    def expected(self, *args):
        """What the function should return."""
        return self.results_of(self.answer, args)

    @cached_property
    def first_arguments(self):
        """The arguments of the first case."""
        return self.cases(np.random.default_rng(0))[0].args

    @cached_property
    def arguments(self):
        """The names of the arguments of a case."""
        n_of_backward = len(self.gradients[:1])
        n_of_function = len(self.first_arguments) - n_of_backward
        names = list(self.argument_names or inspect.signature(self.answer).parameters)
        names = names[:n_of_function]
        if self.gradients:
            names.append(self.one_page.argument_of_backward(self.function_name))
        return dict.fromkeys(names, "")

    @cached_property
    def results(self):
        """The names of the results, with those of the gradients of each parameter."""
        names = list(self.result_names)
        for name in self.gradients:
            if name == "grads":
                names += [f"grads{path}" for path in paths(self.first_arguments[0])]
            else:
                names.append(name)
        return dict.fromkeys(names, "")

    @property
    def is_backward(self):
        """Whether it asks for a backward pass alone."""
        return self.name != self.function_name

    @property
    def imports(self):
        """The answer stands in the person's file, which has them."""
        return f"# {self.function_name} in your file"

    @property
    def answer_source(self):
        """The text of the answer; without the backward pass if that is asked for later."""
        if self.has_later_backward:
            return self.one_page.forward_of(self.function_name)
        return self.one_page.source_of(self.function_name)

    @cached_property
    def forward(self):
        """The exercise of the forward pass alone, where a backward pass is asked for with it."""
        if not self.gradients:
            return None
        text = self.one_page.forward_of(self.function_name)
        return replace(
            self,
            gradients=(),
            has_later_backward=True,
            float64_from="",  # asked when the numbers of both are right
            cases=lambda rng: [Case(case.what, *case.args[:-1]) for case in self.cases(rng)],
            mistakes=tuple(each for each in self.mistakes if next(iter(each.change)) in text),
        )

    def results_of(self, function, args):
        """The arrays that the function and its backward pass return, also those of nested dicts."""
        self.check_defaults(function)
        if self.has_later_backward:
            return self.both(function, args)[0]
        if not self.gradients:
            return function(*args)
        *given, dy = args
        y, backward = self.both(function, given)
        gradients = self.gradients_in(backward(dy))
        arrays = [y]
        for name, gradient in zip(self.gradients, gradients, strict=True):
            like = given[0] if name == "grads" else None
            arrays += leaves(name, gradient, like)
        return tuple(arrays)

    def gradients_in(self, value):
        """What backward returns, as a tuple; raises Complaint if it has another length."""
        names = ", ".join(self.gradients)
        if value is None:
            raise Complaint(f"backward returns None: is `return {names}` missing?")
        if len(self.gradients) == 1:
            return (value,)
        if not isinstance(value, tuple) or len(value) != len(self.gradients):
            raise Complaint(f"backward does not return {len(self.gradients)} results: {names}")
        return value

    def both(self, function, args):
        """The result of a function, and its backward pass."""
        try:
            value = function(*args)
        except Exception as error:
            self.explain(error)
            raise
        wanted = f"{next(iter(self.results))}, backward"
        if value is None:
            raise Complaint(f"it returns None: is `return {wanted}` missing?")
        if not isinstance(value, tuple) or len(value) != 2:
            raise Complaint(f"it does not return two results: {wanted}")
        if not callable(value[1]):
            but = "expected the function itself: `backward`, not `backward(…)`"
            raise Complaint(f"its second result is {value[1]!r:.40}, {but}")
        return value

    def explain(self, error):
        """Raise Complaint in place of an error, or add to it what may be its reason."""
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if any(frame.f_code.co_name == "backward" for frame in frames):
            raise Complaint(
                "it calls backward: return the function itself, `backward`, not `backward(…)`"
            ) from None
        own = next((frame for frame in frames if frame.f_code.co_name == self.function_name), None)
        for name, x in own.f_locals.items() if own else ():
            if isinstance(x, tuple) and len(x) == 2 and callable(x[1]):
                error.add_note(f"{name} holds two results: write {name}, {name}_backward = …")

    def check_defaults(self, function):
        """Raise Complaint if the arguments have other defaults than those of the page."""
        if defaults_of(function) != defaults_of(self.answer):
            raise Complaint(
                f"its arguments have other defaults than the given ones: expected {self.signature}"
            )

    def completed(self, names):
        """The person's function, with the page's others, so that this one alone is checked.

        What the file lacks is missed here already, as it is when the file runs alone.
        """
        own = names[self.function_name]
        given: dict = {}
        exec(self.one_page.text, given)
        names.update({name: x for name, x in given.items() if name in names})
        names[self.function_name] = own
        return own


def defaults_of(function):
    """What the arguments of a function are if they are not given."""
    return [parameter.default for parameter in inspect.signature(function).parameters.values()]


def leaves(name, value, like):
    """The arrays of a nested dict, which has to have the form of ``like``; or the array alone."""
    if not isinstance(like, dict):
        return [value]
    if not isinstance(value, dict):
        names = ", ".join(like)
        raise ComplaintAboutGradients(
            f"{name} is {value!r:.40}, expected a dict with the names of params: {names}"
        )
    for key in [*like, *value]:
        if key not in value or key not in like:
            what = "no entry" if key in like else "an entry"
            raise ComplaintAboutGradients(
                f"{name} has {what} {key!r:.40}, expected {', '.join(like)}"
            )
    return [leaf for key in like for leaf in leaves(f'{name}["{key}"]', value[key], like[key])]


class AdamPart(Part):
    """The step of Adam, which returns nothing: the parameters after two steps are compared."""

    def results_of(self, function, args):
        """The arrays of the parameters after each step."""
        self.check_defaults(function)
        params, *grads, lr, beta1, beta2, eps = args
        params = tree.map_leaves(np.copy, params)
        means: dict = {}
        after = []
        for step, g in enumerate(grads, 1):
            function(params, g, means, step, lr, beta1, beta2, eps)
            after += [np.array(x) for _, x in tree.leaves(params)]
        return tuple(after)
