"""The README's example runs as printed."""

import re
from pathlib import Path

import needs

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(code.strip().splitlines()) <= 13
    with needs.data():
        exec(compile(code, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert float(re.search(r"R2 on test rows: (0\.\d+)", shown)[1]) > 0.83
    assert (tmp_path / "houses.safetensors").exists()
