"""The planted faults: what each changes in the code, and the one test that must then fail."""

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).parent
#: What a fault may change: the code that is shipped, never a test.
PRODUCT = ("plugins/", "jobs/", "dags/")


class Fault(BaseModel):
    """A line of code that is wrong on purpose.

    Attributes:
        name: what the code promises and no longer does, as a slug; unique over all tables.
        file: the file to change, from the root of the repository.
        old: the text to replace, `from` in the table; it occurs exactly once in the file.
        new: the text in its place, `to` in the table.
        test: the node id of the test that must fail; without an id in brackets, any row of its table may.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    file: str
    old: str = Field(alias="from", min_length=1)
    new: str = Field(alias="to")
    test: str = Field(pattern=r"^tests/[^:]+\.py::[^ ].*$")

    def applied(self, text: str) -> str:
        """Return the file's text with the fault in it."""
        if not self.file.startswith(PRODUCT):
            raise ValueError(f"{self.name}: a fault is planted in {', '.join(PRODUCT)}, not in {self.file}")
        if (times := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.name}: {self.old!r} must be in {self.file} exactly once, and is there {times} times"
            )
        changed = text.replace(self.old, self.new)
        if changed == text:
            raise ValueError(f"{self.name}: it changes nothing in {self.file}")
        if self.file.endswith(".py"):
            try:
                meant = ast.dump(ast.parse(changed))
            except SyntaxError as error:
                raise ValueError(f"{self.name}: {self.file} is no Python any more: {error}") from None
            if meant == _meaning(text):
                raise ValueError(f"{self.name}: it changes nothing but comments and spaces in {self.file}")
        return changed

    def has_test(self, root: Path) -> bool:
        path, *names = self.test.split("[", 1)[0].split("::")
        if not (root / path).is_file():
            return False
        inside: Sequence[ast.AST] = _parsed((root / path).read_text()).body
        for name in names:
            found = [node for node in inside if getattr(node, "name", None) == name]
            if not found:
                # A Hypothesis state machine's test is an assignment: `TestStore = StoreMachine.TestCase`.
                assigned = [target for node in inside if isinstance(node, ast.Assign) for target in node.targets]
                return any(isinstance(target, ast.Name) and target.id == name for target in assigned)
            inside = getattr(found[0], "body", [])
        return True


@lru_cache
def _meaning(text: str) -> str:
    return ast.dump(ast.parse(text))


#: Many faults have a test in the same file.
_parsed = lru_cache(ast.parse)


def planted(folder: Path = TABLES) -> Iterator[Fault]:
    for table in sorted(folder.glob("*.yaml")):
        yield from (Fault.model_validate(entry) for entry in yaml.safe_load(table.read_text()))
