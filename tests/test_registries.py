"""Every registered part is in tests/parts.py, on which its laws are tested, and in the docs."""

import re
from pathlib import Path

import parts
import pytest

from polyadic import inits, losses, maps, networks
from polyadic.objective.losses import FORMS
from polyadic.objective.penalties import PENALTIES
from polyadic.solvers.registry import FUSED, SOLVERS

REGISTRIES = {
    "maps": (maps.MAPS, parts.MAPS),
    "losses": (losses.LOSSES, parts.LOSSES),
    "penalties": (PENALTIES, parts.PENALTIES.values()),
    "inits": (inits.INITS, parts.INITS),
    "solvers": (SOLVERS, parts.SOLVERS.values()),
}
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {"maps": maps.MAPS, "losses": losses.LOSSES, "formats": networks.FORMATS}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_registered_part_has_an_instance(kind):
    registered, instances = REGISTRIES[kind]
    tried = {type(instance) for instance in instances}
    missing = {name for name, cls in registered.items() if cls not in tried}
    assert not missing, f"add an instance to tests/parts.py of: {sorted(missing)}"


@pytest.mark.parametrize("page", PAGES)
def test_every_registered_part_is_in_the_table_of_its_page(page):
    text = (DOCS / f"{page}.md").read_text()
    listed = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]*\|", text, re.MULTILINE))))
    missing = set(PAGES[page]) - listed
    assert not missing, f"add a line to the table in docs/{page}.md for: {sorted(missing)}"


def test_every_kind_of_penalty_is_tried_on_every_solver():
    assert {name: type(p) for name, p in parts.penalties_of(parts.PENALISED).items()} == PENALTIES


def test_every_network_has_an_instance():
    assert set(networks.FORMATS) == {name for name, _ in parts.FORMATS}


def test_solvers_are_listed_by_the_names_they_are_registered_under():
    assert {name: type(solver) for name, solver in parts.SOLVERS.items()} == SOLVERS
    assert set(FUSED) <= set(SOLVERS)
    for name in FUSED:
        assert f"solver={name!r}" in SOLVERS[name].name


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_declares_only_known_forms_and_penalties(name):
    assert set(SOLVERS[name].loss_forms) <= set(FORMS)
    assert set(SOLVERS[name].penalties) <= set(PENALTIES)
