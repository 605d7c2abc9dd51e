"""Programs that make a table of a table: their rules in words and in Python, and dirty inputs for them."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tracewheel import canonical_json, stored_json

FIELDS = ("id", "customer", "region", "item", "status", "quantity", "price_cents")
WHOLE = ("id", "quantity", "price_cents")
STATUSES = ("paid", "open", "returned", "shipped")
REGIONS = ("north", "south", "east", "west")
CUSTOMERS = ("ada", "bo", "cy", "dee", "eli", "fay")
ITEMS = ("kettle", "lamp", "chair", "radio", "clock", "mirror")
SEGMENTS = ("home", "business", "school")
COLUMNS = (
    ("id", "customer", "quantity"),
    ("id", "item", "price_cents"),
    ("id", "region", "item"),
    ("id", "customer", "region", "price_cents"),
    ("id", "item", "quantity", "price_cents"),
)
GROUPS = ("customer", "region", "item")


@dataclass(frozen=True)
class Rules:
    """What a program does with `orders.csv`.

    Attributes:
        status: Only orders with this status count.
        least: Only orders of at least this quantity count.
        columns: What `report.json` holds of each order; empty where the orders are summed up.
        group: What `report.csv` sums up by: a field of the orders, or `segment`, which `customers.jsonl` gives.
        clean: Whether spaces and capitals are ignored and lines without a whole quantity are dropped.
        latest: Whether only the last line of an id counts.
    """

    status: str
    least: int
    columns: tuple[str, ...] = ()
    group: str = ""
    clean: bool = False
    latest: bool = False

    @property
    def output(self) -> str:
        """The file that is written."""
        return "report.json" if self.columns else "report.csv"

    @property
    def text(self) -> str:
        """The rules in words."""
        parts = [f"`orders.csv` has a header with {', '.join(FIELDS)}."]
        if self.clean:
            parts.append(
                "Strip spaces around all values and lower their letters; skip lines whose quantity is no whole number."
            )
        if self.latest:
            parts.append(
                "Where an id occurs more than once, only its last line counts (before any other rule but the cleaning)."
            )
        parts.append(f"Count only orders with status {self.status} and a quantity of at least {self.least}.")
        if self.columns:
            whole = " and ".join(name for name in self.columns if name in WHOLE)
            parts.append(
                f"Write `report.json`: a list, ordered by id, of objects with {', '.join(self.columns)}; {whole} as numbers."
            )
            return " ".join(parts)
        name = f"the {self.group}"
        if self.group == "segment":
            parts.append(
                "`customers.jsonl` has an object with customer and segment on each line; skip orders of other customers."
            )
            name = "the customer's segment"
        parts.append(
            f"Write `report.csv` with the header {self.group},orders,total and a line for {name}: how many orders, and the "
            f"sum of quantity times price_cents; from the largest total to the smallest, equal ones by {self.group}."
        )
        return " ".join(parts)

    def source(self, least: bool = True, ordered: bool = True, whole: bool = True) -> str:
        """A program that follows the rules, or leaves one out: the least quantity, the order, or numbers as numbers."""
        lines = ["import csv", "import json", "", "", "def transform(orders, segments):"]
        if self.clean:
            lines.append("    orders = [{key: value.strip().lower() for key, value in order.items()} for order in orders]")
        if self.clean:
            lines.append("    orders = [order for order in orders if order['quantity'].strip().isdigit()]")
        if self.latest:
            lines.append("    orders = list({order['id']: order for order in orders}.values())")
        wanted = f"order['status'] == {self.status!r}"
        if least:
            wanted += f" and int(order['quantity']) >= {self.least}"
        lines.append(f"    orders = [order for order in orders if {wanted}]")
        if self.columns:
            if ordered:
                lines.append("    orders.sort(key=lambda order: int(order['id']))")
            number = "int(order[name])" if whole else "order[name]"
            lines.append(f"    whole, columns = {WHOLE!r}, {self.columns!r}")
            lines.append(
                f"    return [{{name: {number} if name in whole else order[name] for name in columns}} for order in orders]"
            )
            ending = ["with open('report.json', 'w') as file:", "    json.dump(transform(orders, segments), file)"]
        else:
            key = f"order['{self.group}']"
            if self.group == "segment":
                lines.append("    orders = [order for order in orders if order['customer'] in segments]")
                key = "segments[order['customer']]"
            lines += [
                "    groups = {}",
                "    for order in orders:",
                f"        count, total = groups.get({key}, (0, 0))",
                f"        groups[{key}] = (count + 1, total + int(order['quantity']) * int(order['price_cents']))",
            ]
            order = "sorted(groups.items(), key=lambda group: (-group[1][1], group[0]))" if ordered else "groups.items()"
            header = [self.group, "orders", "total"]
            lines.append(f"    return [{header!r}, *([name, *numbers] for name, numbers in {order})]")
            ending = [
                "with open('report.csv', 'w', newline='') as file:",
                "    csv.writer(file).writerows(transform(orders, segments))",
            ]
        reading = [
            "",
            "",
            "with open('orders.csv', newline='') as file:",
            "    orders = list(csv.DictReader(file))",
            "segments = {}",
        ]
        if self.group == "segment":
            reading += [
                "with open('customers.jsonl') as file:",
                "    for line in file:",
                "        customer = json.loads(line)",
                "        segments[customer['customer']] = customer['segment']",
            ]
        return "\n".join([*lines, *reading, *ending]) + "\n"

    def result(self, files: dict[str, str], source: str = "") -> Any:
        """What the report of input files holds, by the rules or by another program: JSON, or rows of texts."""
        names: dict[str, Any] = {}
        exec((source or self.source()).partition("\n\n\nwith")[0], names)
        orders = list(csv.DictReader(io.StringIO(files["orders.csv"])))
        lines = files.get("customers.jsonl", "").splitlines()
        segments = {customer["customer"]: customer["segment"] for customer in map(json.loads, lines)}
        found = names["transform"](orders, segments)
        return found if self.columns else [[str(value) for value in row] for row in found]

    def differs(self, source: str) -> Callable[[dict[str, str]], bool]:
        """Whether another program's report of input files is another one."""
        return lambda files: canonical_json(self.result(files, source)) != canonical_json(self.result(files))

    def key(self) -> dict[str, Any]:
        """The rules as JSON, for seeds and hashes."""
        return {**asdict(self), "columns": list(self.columns)}


def draw_rules(tier: int, rng: random.Random) -> Rules:
    """Random rules of a tier from 1 to 4: a selection, a dirty one, a sum by group, a sum over a join."""
    status, least = rng.choice(STATUSES), rng.randint(2, 6)
    if tier <= 2:
        return Rules(status, least, columns=rng.choice(COLUMNS), clean=tier == 2)
    if tier == 3:
        return Rules(status, least, group=rng.choice(GROUPS), clean=rng.random() < 0.5)
    return Rules(status, least, group="segment", clean=rng.random() < 0.5, latest=rng.random() < 0.7)


def draw_files(rules: Rules, rng: random.Random) -> dict[str, str]:
    """Random input files for rules: each rule matters in most of them."""
    rows = []
    for number in rng.sample(range(100, 1000), rng.randint(18, 26)):
        quantity = str(rng.randint(1, 9))
        status = rules.status if rng.random() < 0.6 else rng.choice(STATUSES)
        rows.append(
            [
                str(number),
                rng.choice(CUSTOMERS),
                rng.choice(REGIONS),
                rng.choice(ITEMS),
                status,
                quantity,
                str(rng.randint(1, 40) * 25),
            ]
        )
    if rules.latest:
        rows += [[row[0], *rng.choice(rows)[1:]] for row in rng.sample(rows, 5)]
    if rules.clean:
        for row in rng.sample(rows, len(rows) // 2):
            place = rng.randint(1, 4)
            row[place] = rng.choice((f" {row[place]}", f"{row[place]} ", row[place].upper(), row[place].title()))
        for row in rng.sample(rows, 3):
            row[5] = rng.choice(("", "n/a", "two", "-"))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([FIELDS, *rows])
    files = {"orders.csv": text.getvalue()}
    if rules.group == "segment":
        known = rng.sample(CUSTOMERS, len(CUSTOMERS) - 1)
        lines = [stored_json({"customer": customer, "segment": rng.choice(SEGMENTS)}) for customer in known]
        files["customers.jsonl"] = "\n".join(lines) + "\n"
    return files
