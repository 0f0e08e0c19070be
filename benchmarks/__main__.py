"""``python -m benchmarks``: every benchmark there is, one after the other, and what each one wrote."""

from __future__ import annotations

from benchmarks import balance, dpa_table

FOLDER = balance.RESULTS


def main() -> None:
    """Run all of them."""
    for name, run in (("balance", balance.main), ("dpa_table", dpa_table.main)):
        run([], FOLDER)
        print(f"wrote {FOLDER / name}.json and {FOLDER / name}.md")


if __name__ == "__main__":
    main()
