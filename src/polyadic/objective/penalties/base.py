"""What a penalty looks like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from polyadic.networks.cp import CPCores


class Penalty(ABC):
    """A term of the objective that depends on the cores alone.

    A solver lists the names of the penalties that it can minimise. The torch engine also minimises
    those with a `torch_value`, whatever their name. Every solver refuses the others by name.

    `add_gradient` covers the factors only (and the additive part, where the penalty applies to it).
    A penalty may depend on the output weights too, as `Order` and `Norm` do: the gradient with
    respect to those is up to the solvers that list it.

    Attributes
    ----------
    name : str
        In `PENALTIES`, in the lists of solvers and in errors.
    set_by : str
        The parameters by which a user asks for it, for errors.
    """

    name: str
    set_by: ClassVar[str] = ""

    @abstractmethod
    def value(self, cores: CPCores) -> float:
        """Return the penalty."""

    @abstractmethod
    def add_gradient(self, cores: CPCores, out: Sequence[np.ndarray]) -> None:
        """Add the gradient with respect to the factors to `out`, one array per factor."""

    @abstractmethod
    def active(self) -> bool:
        """Return whether the penalty can be above zero."""

    def torch_value(self, factors: Sequence[Any]) -> Any:
        """Return the penalty of factors that are tensors (d_n, R), for PyTorch to differentiate."""
        raise NotImplementedError(f"The penalty {self.name!r} has no torch_value.")

    @property
    def has_torch(self) -> bool:
        """Whether it writes `torch_value`."""
        return type(self).torch_value is not Penalty.torch_value
