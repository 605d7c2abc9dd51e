"""Terminal tasks on lines and columns: log files, and sums of CSV files."""

from __future__ import annotations

import random
from collections import Counter

from tracewheel_worlds.terminal.parts import Parts, one_file

LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")
USERS = ("ada", "bo", "cy", "dee", "eli")
SERVICES = ("api", "auth", "billing", "cart", "mail", "search", "web", "worker")
MESSAGES = ("disk slow", "retry later", "token expired", "page missing", "queue full", "cache cold")
REGIONS = ("north", "south", "east", "west")
COLUMNS = ("units", "cents", "returns")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun")


def logs_parts(tier: int, rng: random.Random) -> Parts:
    """Lines of one level; the codes in them; how often each occurs; the same for one user."""
    level, user = rng.choice(LEVELS), rng.choice(USERS)
    codes = rng.sample(range(100, 1000), 6)
    files: dict[str, list[str]] = {}
    for service in rng.sample(SERVICES, tier + 1):
        folder = "logs/old" if rng.random() < 0.3 else "logs"
        files[f"{folder}/{service}.log"] = [_log_line(level, user, codes, rng) for _ in range(rng.randint(8, 14))]
    lines = [line for content in files.values() for line in content if f" {level} " in line]
    chosen = [line for line in lines if f"user={user} " in line] if tier == 4 else lines
    find = f"grep -rh ' {level} ' logs" + (f" | grep 'user={user} '" if tier == 4 else "")
    counts = Counter(line.split("code=")[1].split()[0] for line in chosen)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    where = f"all lines of level {level} in the files under `logs`"
    match tier:
        case 1:
            name, wanted, after = "found.txt", sorted(lines), "sort"
            what = f"Write {where} to `{name}`, sorted."
        case 2:
            name, wanted, after = "codes.txt", sorted(counts), "grep -o 'code=[0-9]*' | cut -d= -f2 | sort -u"
            what = f"Write the codes in {where} to `{name}`: each once, sorted, one a line."
        case _:
            name, wanted = "counts.txt", [f"{code} {count}" for code, count in ranked]
            after = "grep -o 'code=[0-9]*' | cut -d= -f2 | sort | uniq -c | sort -k1,1nr -k2,2 | awk '{print $2, $1}'"
            of = f" of user {user}" if tier == 4 else ""
            what = (
                f"Count the codes in {where}{of}. Write `{name}` with a line for each code, as in `{ranked[0][0]} 7`: "
                "most frequent first, equal ones by code."
            )
    text = "".join(f"{line}\n" for line in wanted)
    command = f"{find} | {after}"
    first = sorted(files)[0]
    near = {
        "wrong_place": f"{command} > logs/{name}",
        "extra_change": f"{command} > /tmp/o; rm {first}; cp /tmp/o {name}",
        "half_done": f"{command} | sed '$d' > {name}",
    }
    if len(wanted) > 1:
        near["wrong_order"] = f"{command} | tac > {name}"
    contents = {path: "".join(f"{line}\n" for line in content) for path, content in files.items()}
    return Parts(what, dict(contents), one_file(name, text), f"{command} > /tmp/o; cp /tmp/o {name}", near)


def sum_parts(tier: int, rng: random.Random) -> Parts:
    """The sum of a column: of one file, of all, of some rows, by region."""
    column, region = rng.choice(COLUMNS), rng.choice(REGIONS)
    months = rng.sample(MONTHS, 1 if tier == 1 else tier + 1)
    rows = {month: [_sale(rng) for _ in range(rng.randint(6, 12))] for month in months}
    place = 3 + COLUMNS.index(column)
    everything = [row for month in months for row in rows[month]]
    files = {f"sales/{month}.csv": _csv(rows[month]) for month in months}
    which = f"`sales/{months[0]}.csv`" if tier == 1 else "all CSV files in `sales` together"
    name, data = ("regions.csv" if tier == 4 else "total.txt"), "tail -qn +2 sales/*.csv"
    if tier == 4:
        totals: Counter[str] = Counter()
        for row in everything:
            totals[row[1]] += int(row[place - 1])
        text = "".join([f"region,{column}\n", *(f"{key},{totals[key]}\n" for key in sorted(totals))])
        what = (
            f"Sum up the column {column} by region over {which}. Write `{name}`: the header region,{column}, then the regions "
        )
        what += "in alphabetical order."
        command = (
            f"(echo region,{column}; {data} | awk -F, '{{s[$2] += ${place}}} END {{for (r in s) print r \",\" s[r]}}' | sort)"
        )
        wrong = f"{data} | awk -F, '{{s[$2] += ${place}}} END {{for (r in s) print r \",\" s[r]}}' | sort"
    else:
        some = [row for row in everything if row[1] == region] if tier == 3 else everything
        text = f"{sum(int(row[place - 1]) for row in some)}\n"
        only = f", counting rows of region {region} alone" if tier == 3 else ""
        what = f"Write the sum of the column {column} of {which}{only}, a whole number, to `{name}`."
        test = f'$2 == "{region}" ' if tier == 3 else ""
        command = f"{data} | awk -F, '{test}{{s += ${place}}} END {{print s + 0}}'"
        wrong = f"{data} | awk -F, '{test}{{s += ${place}}} END {{print s + 1}}'"
    near = {
        "wrong_place": f"{command} > sales/{name}",
        "extra_change": f"{command} > {name}; touch done.txt",
        "half_done": f"{wrong} > {name}",
        "wrong_type": f"{command} | sed 's/$/.0/' > {name}",
    }
    return Parts(what, dict(files), one_file(name, text), f"{command} > {name}", near)


def _log_line(level: str, user: str, codes: list[int], rng: random.Random) -> str:
    hour, minute, second = rng.randint(0, 23), rng.randint(0, 59), rng.randint(0, 59)
    time = f"2026-{rng.randint(1, 9):02}-{rng.randint(1, 28):02}T{hour:02}:{minute:02}:{second:02}"
    shown = level if rng.random() < 0.5 else rng.choice(LEVELS)
    who = user if rng.random() < 0.4 else rng.choice(USERS)
    return f"{time} {shown} code={rng.choice(codes[: rng.randint(1, 6)])} user={who} {rng.choice(MESSAGES)}"


def _sale(rng: random.Random) -> list[str]:
    return [str(rng.randint(1000, 9999)), rng.choice(REGIONS), *(str(rng.randint(0, 400)) for _ in COLUMNS)]


def _csv(rows: list[list[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in [["id", "region", *COLUMNS], *rows])
