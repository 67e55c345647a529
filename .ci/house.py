"""Count how the packages read, and fail where a count is above its budget in ``pyproject.toml`` (``[tool.house]``).

Each count measures a habit that makes code hard to read for a newcomer: words that replace a noun, names that two
things share, several statements on a line. No count says that a sentence is good. Budgets only go down: after an
improvement, ``python .ci/house.py lower`` writes the new counts; it never raises a budget.

Options: ``list NAME`` prints the places that the count NAME sees, one a line.
"""

import ast
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from io import StringIO
from math import ceil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("simsched", "hwbackend", "workloads")
LONGEST = 600  # lines of a file, in the packages, validation and tests

# Names that do not tell what a variable holds.
VAGUE = {"found", "made", "each", "said", "known", "mine", "given", "asked", "told", "taken", "kept"}
# Participles that do not end in "ed", without those that are verbs or nouns, too, such as read, run, set and split.
IRREGULAR = (
    "begun bought broken brought built chosen done drawn driven fallen felt found given gone grown heard held hidden "
    "kept known laid lent lost made meant met paid proven said seen sent shown sold sought spent taken taught thought "
    "thrown told understood won worn woven written"
)
NOT_PARTICIPLES = {"bed", "embed", "exceed", "feed", "need", "proceed", "red", "seed", "speed", "succeed"}

# Each count: its unit, and the total that it is a rate of (none: places).
RATES = {
    "what": ("per 1,000 words", "words"),
    "that-of": ("per 1,000 words", "words"),
    "summaries-what": ("% of summaries", "summaries"),
    "shared-classes": ("% of classes", "classes"),
    "participle-functions": ("functions", ""),
    "vague-names": ("% of stores", "stores"),
    "parallel-assignments": ("per 1,000 lines", "lines"),
    "ternaries": ("per 1,000 lines", "lines"),
    "fmt-skip": ("places", ""),
    "long-files": (f"files over {LONGEST} lines", ""),
}


def is_participle(name: str) -> bool:
    """Return whether a function's name is one participle, such as ``found`` or ``_widened``."""
    word = name.strip("_")
    if "_" in word or word in NOT_PARTICIPLES:
        return False
    return word.endswith("ed") or word in IRREGULAR.split()


class House:
    """Places that the counts see, as ``file:line: text``, and the totals that rates are taken of."""

    def __init__(self) -> None:
        self.places: dict[str, list[str]] = {name: [] for name in RATES}
        self.totals: Counter[str] = Counter()
        self._classes: dict[str, list[str]] = defaultdict(list)

    def see(self, count: str, where: str, line: int, text: str) -> None:
        """Add a place to a count."""
        self.places[count].append(f"{where}:{line}: {text}")

    def read(self, path: Path) -> None:
        """Count one module."""
        where = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        self.totals["lines"] += sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)
        for line, prose in comments(text):
            self._read_prose(where, line, prose)
            if re.match(r"#\s*fmt:\s*(skip|off)", prose):
                self.see("fmt-skip", where, line, prose)
        for node in ast.walk(ast.parse(text)):
            self._read_node(where, node)

    def _read_prose(self, where: str, line: int, prose: str) -> None:
        """Count the words of a docstring or a comment."""
        self.totals["words"] += len(prose.split())
        for name, pattern in (("what", r"\bwhat\b"), ("that-of", r"\b(that|those)\s+of\b")):
            for match in re.finditer(pattern, prose, re.IGNORECASE):
                row = prose.count("\n", 0, match.start())
                self.see(name, where, line + row, prose.splitlines()[row].strip())

    def _read_node(self, where: str, node: ast.AST) -> None:
        """Count one node of a module's syntax tree."""
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self._read_docstring(where, node)
        if isinstance(node, ast.ClassDef):
            self.totals["classes"] += 1
            self._classes[node.name.lstrip("_")].append(f"{where}:{node.lineno}: {node.name}")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
            self.see("participle-functions", where, node.lineno, node.name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self.totals["stores"] += 1
            if node.id in VAGUE:
                self.see("vague-names", where, node.lineno, node.id)
        if isinstance(node, ast.IfExp):
            self.see("ternaries", where, node.lineno, ast.unparse(node))
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            self.see("parallel-assignments", where, node.lineno, ast.unparse(node))

    def _read_docstring(
        self, where: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ) -> None:
        """Count a docstring's words, and its summary."""
        docstring = ast.get_docstring(node)
        if not docstring:
            return
        line = node.body[0].lineno
        self.totals["summaries"] += 1
        self._read_prose(where, line, docstring)
        if re.match(r"((Return|Give|Say) )?what\b", docstring, re.IGNORECASE):
            self.see("summaries-what", where, line, docstring.splitlines()[0])

    def finish(self) -> None:
        """Count what needs all modules: classes that share a name, and long files."""
        for places in self._classes.values():
            if len(places) > 1:
                self.places["shared-classes"] += places
        for path in modules("validation", "tests", *PACKAGES):
            length = len(path.read_text(encoding="utf-8").splitlines())
            if length > LONGEST:
                self.see("long-files", path.relative_to(ROOT).as_posix(), length, "lines")

    def value(self, count: str) -> float:
        """Return a count in its unit."""
        unit, total = RATES[count]
        places = len(self.places[count])
        if not total:
            return places
        return places * (100 if unit.startswith("%") else 1000) / max(1, self.totals[total])


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment of a module."""
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def modules(*packages: str) -> list[Path]:
    """Return the modules of packages, sorted by their paths."""
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def lower(house: House, budgets: dict[str, float]) -> None:
    """Write each count that is below its budget into ``pyproject.toml``, rounded up to a tenth."""
    path = ROOT / "pyproject.toml"
    head, title, table = path.read_text(encoding="utf-8").partition("\n[tool.house]\n")
    for name, budget in budgets.items():
        value = ceil(round(house.value(name) * 10, 6)) / 10
        if value < budget:
            table = re.sub(rf"^{name} = [\d.]+", f"{name} = {value:g}", table, count=1, flags=re.MULTILINE)
    path.write_text(head + title + table, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print each count beside its budget, and return 1 where one is above it."""
    house = House()
    for path in modules(*PACKAGES):
        house.read(path)
    house.finish()
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["house"]
    match arguments:
        case ["list", name] if name in RATES:
            print(*house.places[name], sep="\n")
            return 0
        case ["lower"]:
            lower(house, budgets)
            return 0
        case []:
            pass
        case _:
            print(f"usage: python .ci/house.py [lower | list NAME]; NAME is one of {', '.join(RATES)}")
            return 2
    status = 0
    for name, (unit, _) in RATES.items():
        value = house.value(name)
        over = value > budgets[name]
        status |= over
        print(f"{name:<21} {value:>6.1f}  budget {budgets[name]:>6g}  {unit}{'  ABOVE ITS BUDGET' if over else ''}")
    if status:
        print("Mend the places above a budget: python .ci/house.py list NAME prints them.")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
