"""The base class of losses, which declares their compiled and their torch form.

Shapes: y : (n, L), for softmax (n, 1) with the number of the class; raw : (n, L); sample_weight :
(n,). Every loss is a mean over rows and a sum over outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numba.core.errors import NumbaError
from scipy.optimize import minimize

from polyadic.kernels import losses as kernel
from polyadic.objective.losses.links import LINKS

# The forms that a loss may have, and the method that defines each.
FORMS = {
    "compiled": "`value_and_slope`, which Numba compiles",
    "curvature": "`curvature`, which Numba compiles",
    "torch": "`torch_losses`, the loss in PyTorch",
}

# How far the best constant may be from the link of the mean: in standard deviations of the target,
# or on the scale of the link. Without a bound it would be infinite for counts that are all zero.
_FARTHEST = 10.0


@dataclass(frozen=True)
class Loss:
    """A loss, its slope, and the link between a raw prediction and the mean.

    A loss of your own is a frozen dataclass that subclasses `Loss`. Its fields are its parameters,
    which must be numbers. It defines at least one of these forms:

    `value_and_slope(y, raw, *parameters) -> (value, slope)`
        A static method on plain numbers, compiled by Numba: the loss of one output of one row, and
        its derivative with respect to raw. For engine="fused" and solver="riemannian".
    `curvature(y, raw, *parameters) -> number`
        A static method as above: the second derivative of the loss, or that of a parabola that is
        nowhere below the loss and touches it at raw. For solver="als", which needs
        `value_and_slope` as well.
    `torch_losses(self, y, raw) -> (n,)`
        On tensors (n, L): the loss of each row, its outputs added up. For engine="torch" and the
        tensor-network estimators.

    `docs/losses.md` has an example.

    Attributes
    ----------
    link_name : "identity", "log", "logit" or "softmax"
        Between the mean and the raw prediction.
    targets : tuple
        The kinds of y that it allows: "numbers", "two classes" (y is 0 or 1) and "classes".
    location_scale : bool
        Whether y may be centred and scaled: whether the loss is a function of raw - y, so that
        other units of y change its value by a factor only. Parameters are then in units of the
        scaled y.
    quadratic : bool
        Whether the loss is (raw - y)^2.
    exact_curvature : bool
        Whether solver="als" need not try longer steps than to the minimum of the parabola.
    shared_curvature : bool
        Whether solver="als" uses one curvature per row for all outputs. The normal equations of a
        core then do not become more expensive with more outputs.
    best_baseline : bool
        Whether `baseline` is the best constant, and not only close to it.
    """

    code: ClassVar[int] = kernel.OWN
    link_name: ClassVar[str] = "identity"
    targets: ClassVar[tuple[str, ...]] = ("numbers",)
    location_scale: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False
    exact_curvature: ClassVar[bool] = False
    shared_curvature: ClassVar[bool] = False
    best_baseline: ClassVar[bool] = True
    value_and_slope: ClassVar[Callable[..., Any] | None] = None
    curvature: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        written = {"value_and_slope", "curvature", "torch_losses"} & cls.__dict__.keys()
        if written and "code" not in cls.__dict__ and cls.code != kernel.OWN:
            raise TypeError(
                f"{cls.__name__} defines {sorted(written)[0]!r}, but inherits the compiled loss of "
                f"{cls.__mro__[1].__name__}. Subclass Loss itself."
            )

    @property
    def shape(self) -> float:
        """The parameter of a loss with a code: a level or a width; 0 if it has none."""
        return 0.0

    # ---- the forms ------------------------------------------------------------------------------

    def has(self, form: str) -> bool:
        """Return whether the loss has the form "compiled", "curvature" or "torch"."""
        if form == "torch":
            return type(self).torch_losses is not Loss.torch_losses
        own = self.value_and_slope if form == "compiled" else self.curvature
        return self.code in kernel.CODES or own is not None

    def require(self, form: str, user: str, many_classes: bool = False) -> None:
        """Raise ValueError if the loss lacks the form that `user` needs."""
        if not self.has(form):
            raise ValueError(
                f"{user} cannot train {self!r}: the loss lacks {FORMS[form]}. It has "
                f"{' and '.join(FORMS[f] for f in FORMS if self.has(f)) or 'no form at all'}."
                f"{self._torch_advice(form)}"
            )
        if many_classes and form != "torch" and self.code == kernel.OWN:
            raise ValueError(
                f"{user} cannot train {self!r} on more than two classes: a compiled loss of your "
                "own sees one output at a time. Write `torch_losses`, and use engine='torch'."
            )

    def _torch_advice(self, form: str) -> str:
        if form == "torch" or self.has("compiled") or not self.has("torch"):
            return ""
        return " Use engine='torch'; for a tensor network, an optimiser of torch.optim."

    def compiled(self, dtype: type = float) -> kernel.LossForm:
        """Return the compiled value and slope, for kernels that work in this precision."""
        self.require("compiled", "A compiled solver")
        own = self._compile("value_and_slope")
        return kernel.LossForm(self.code, dtype(self.shape), own)

    def compiled_curvature(self) -> kernel.LossForm:
        """Return the compiled curvature, for `kernels.losses.curvatures`."""
        self.require("curvature", "solver='als'")
        own = self._compile("curvature")
        return kernel.LossForm(self.code, float(self.shape), own)

    def torch_losses(self, y: Any, raw: Any) -> Any:
        """Return the loss of each row as a tensor (n,), its outputs added up."""
        self.require("torch", "PyTorch")

    def _compile(self, name: str) -> int | None:
        """Return the address of a compiled function of this loss; None for a loss with a code."""
        function = getattr(self, name)
        if self.code in kernel.CODES:
            return None
        if inspect.ismethod(function):
            raise TypeError(f"{type(self).__name__}.{name} must be a @staticmethod.")
        parameters = tuple(getattr(self, field.name) for field in fields(self))
        try:
            pair = name == "value_and_slope"
            return kernel.compile_function(function, parameters, pair).address
        except NumbaError as error:
            names = ", ".join(["y", "raw", *(field.name for field in fields(self))])
            raise ValueError(
                f"Numba cannot compile {type(self).__name__}.{name}({names}), called with "
                f"parameters {parameters}: {error}"
            ) from error

    # ---- what both engines use -------------------------------------------------------------------

    def check(self, y: np.ndarray) -> None:
        """Raise ValueError if y is outside the domain of the loss."""

    def value(self, y: np.ndarray, raw: np.ndarray, sample_weight=None) -> float:
        """Return the weighted mean loss."""
        return self.value_and_gradient(y, raw, sample_weight)[0]

    def gradient(self, y: np.ndarray, raw: np.ndarray, sample_weight=None) -> np.ndarray:
        """Return d value / d raw, (n, L)."""
        return self.value_and_gradient(y, raw, sample_weight)[1]

    def value_and_gradient(
        self, y: np.ndarray, raw: np.ndarray, sample_weight=None
    ) -> tuple[float, np.ndarray]:
        """Return both at once."""
        raw = np.ascontiguousarray(raw, dtype=np.float64)
        y = np.ascontiguousarray(y, dtype=np.float64)
        weight = np.ones(len(raw)) if sample_weight is None else np.asarray(sample_weight, float)
        weight = weight / weight.sum()
        one_by_one = y.shape[1] == raw.shape[1]
        if not self.has("compiled") or (self.code == kernel.OWN and not one_by_one):
            return self._evaluate_by_torch(y, raw, weight)
        slope = np.empty_like(raw)
        rows = np.arange(len(raw))
        return kernel.weighted_losses(self.compiled(), y, weight, rows, 0, raw, slope), slope

    def _evaluate_by_torch(self, y, raw, weight) -> tuple[float, np.ndarray]:
        import torch

        moving = torch.tensor(raw, requires_grad=True)
        total = (self.torch_losses(torch.tensor(y), moving) * torch.tensor(weight)).sum()
        total.backward()
        return total.item(), moving.grad.numpy()  # type: ignore[union-attr]

    def link(self, mean: np.ndarray) -> np.ndarray:
        """Return the raw prediction that corresponds to this mean."""
        return LINKS[self.link_name].link(mean)

    def inverse_link(self, raw: np.ndarray) -> np.ndarray:
        """Return the mean, or the probabilities, that correspond to a raw prediction."""
        return LINKS[self.link_name].inverse(raw)

    def baseline(self, y: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
        """Return the best constant raw prediction, to start from, (L,).

        It is found by minimising the mean loss. Where y holds the number of one of several classes,
        it is the link of the mean: the number of outputs is not known here.
        """
        start = self._link_of_mean(y, sample_weight)
        if "classes" in self.targets:
            return start
        return self._best_constant(y, sample_weight, start)

    def _best_constant(
        self, y: np.ndarray, sample_weight: np.ndarray, start: np.ndarray
    ) -> np.ndarray:
        """Return the constant (L,) of least mean loss, or `start` if none is better."""
        unit = np.ones_like(start)
        if self.link_name == "identity":
            spread = np.sqrt(np.average((y - start) ** 2, axis=0, weights=sample_weight))
            unit = np.where(spread > 0, spread, 1.0)

        def objective(move: np.ndarray) -> tuple[float, np.ndarray]:
            raw = np.tile(start + unit * move, (len(y), 1))
            value, slope = self.value_and_gradient(y, raw, sample_weight)
            return value / size, unit * slope.sum(axis=0) / size

        still = np.zeros_like(start)
        size = 1.0
        first = objective(still)[0]
        size = abs(first) or 1.0  # the minimiser stops at absolute tolerances
        bounds = [(-_FARTHEST, _FARTHEST)] * len(start)
        with np.errstate(all="ignore"):  # a loss may overflow far from the start
            found = minimize(objective, still, jac=True, method="L-BFGS-B", bounds=bounds)
        return start + unit * found.x if found.fun < first / size else start

    def _link_of_mean(self, y: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
        return self.link(np.average(y, axis=0, weights=sample_weight))
