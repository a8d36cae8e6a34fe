"""The settings of `polyadic fit`: of the command line, then of a TOML file, then defaults."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer


class Task(StrEnum):
    """What to predict."""

    auto = "auto"
    regression = "regression"
    classification = "classification"


class Preset(StrEnum):
    """How much time to take."""

    fast = "fast"
    default = "default"
    best = "best"


# Constructor parameters of an estimator by preset.
PRESETS: dict[str, dict[str, Any]] = {
    "fast": {"n_members": 1, "rank": 16},
    "default": {},
    "best": {"n_members": 10, "trees": True},
}


@dataclass(frozen=True)
class FitSettings:
    """The settings of a fit; the names are those of the options, and of the keys of a TOML file.

    Attributes
    ----------
    data : str
    target : str
    task : "auto", "regression" or "classification"
    categorical, drop : list of str
        Columns to read as categories, and columns to leave out.
    weight : str or None
        The column of row weights.
    rank : int or None
    preset : "fast", "default" or "best"
    valid : str, float or None
        A file of held-out rows, or the share of rows to hold out.
    seed : int
    max_time : float or None
        Seconds.
    checkpoint, memory : str or None
        A folder to resume from, and the memory for the rows, such as "2GB".
    output : str or None
        The model file.
    """

    data: str
    target: str
    task: str = "auto"
    categorical: list[str] = dataclasses.field(default_factory=list)
    drop: list[str] = dataclasses.field(default_factory=list)
    weight: str | None = None
    rank: int | None = None
    preset: str = "default"
    valid: str | float | None = None
    seed: int = 0
    max_time: float | None = None
    checkpoint: str | None = None
    memory: str | None = None
    output: str | None = None

    def configuration(self) -> dict[str, Any]:
        """Return all settings but those that have no value."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value not in (None, [])}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the estimator that the settings stand for."""
        given = {
            "rank": self.rank,
            "max_time": self.max_time,
            "checkpoint": self.checkpoint,
            "memory": self.memory,
        }
        given = {name: value for name, value in given.items() if value is not None}
        return {**PRESETS[self.preset], **given, "random_state": self.seed}


# The types that a key of a TOML file may have.
_TYPES: dict[str, tuple[type, ...]] = {
    "categorical": (list,),
    "drop": (list,),
    "rank": (int,),
    "seed": (int,),
    "valid": (str, float, int),
    "max_time": (float, int),
}


def resolve(given: dict[str, Any], config: Path | None) -> FitSettings:
    """Return the settings: those given on the command line, then those of the file, then defaults.

    A setting of the command line that was not given is None, or an empty list.
    """
    found = {} if config is None else read_config(config)
    found |= {
        name: str(value) if isinstance(value, StrEnum) else value
        for name, value in given.items()
        if value not in (None, [], ())
    }
    if not found.get("target"):
        raise typer.BadParameter("say which column to predict.", param_hint="'--target'")
    for name, allowed in (("task", list(Task)), ("preset", list(Preset))):
        if name in found and found[name] not in allowed:
            raise typer.BadParameter(
                f"{found[name]!r} is not one of {', '.join(allowed)}.", param_hint=f"'--{name}'"
            )
    found["valid"] = _share_or_file(found.get("valid"))
    return FitSettings(**found)


def read_config(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file; a key may be written with - or _."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise typer.BadParameter(
            f"there is no file {str(path)!r}.", param_hint="--config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--config") from error
    known = {field.name for field in dataclasses.fields(FitSettings)}
    out = {}
    for key, value in read.items():
        name = key.replace("-", "_")
        if name not in known:
            raise typer.BadParameter(
                f"{path} has the key {key!r}; known keys are {', '.join(sorted(known))}.",
                param_hint="--config",
            )
        types = _TYPES.get(name, (str,))
        texts = not isinstance(value, list) or all(isinstance(item, str) for item in value)
        if isinstance(value, bool) or not isinstance(value, types) or not texts:
            kinds = " or ".join(_WORDS[one] for one in types)
            raise typer.BadParameter(
                f"{path}: {key} must be {kinds}, got {value!r}.", param_hint="--config"
            )
        out[name] = value
    return out


_WORDS = {str: "text", int: "a whole number", float: "a number", list: "a list of texts"}


def _share_or_file(valid: Any) -> str | float | None:
    """Return the share of rows to hold out as a number; anything else is a file."""
    if valid is None:
        return None
    try:
        share = float(valid)
    except ValueError:
        return str(valid)
    if not 0.0 < share < 1.0:
        raise typer.BadParameter(
            f"a share of rows is between 0 and 1, got {valid}.", param_hint="'--valid'"
        )
    return share


def as_toml(configuration: dict[str, Any]) -> str:
    """Return a configuration as lines of a TOML file.

    >>> print(as_toml({"target": "price", "drop": ["id"], "seed": 0}))
    target = "price"
    drop = ["id"]
    seed = 0
    """
    lines = (
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in configuration.items()
    )
    return "\n".join(lines)
