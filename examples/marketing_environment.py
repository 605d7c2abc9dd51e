"""A team's own tools as an environment, and its verifier: drafts of posts, a schedule within the brief, tracking.

    environment: {kind: "examples.marketing_environment:Marketing"}

docs/your-environment.md goes through it. Put your team's tools in place of these, and the checks of what it asks for.
"""

from __future__ import annotations

import copy
import random
from typing import Any

from tracewheel import DataError, Observation, Task, canonical_json, content_hash, function_tool, spread_tasks

Call = tuple[str, dict[str, Any]]
CHANNELS, AUDIENCES = ("mail", "push", "social"), ("newcomers", "regulars", "students")
PRODUCTS = ("kettle", "lamp", "radio", "tent", "clock", "drill", "sofa", "bicycle")
OPENINGS = ("New this week:", "Only in May:", "Back in stock:", "Our favourite:")
CLOSINGS = ("Have a look.", "Come and try it.", "See you soon.")
GOALS, TARGETS = ("signups", "orders", "downloads"), range(20, 400, 10)
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
POST = {"campaign": TEXT, "channel": TEXT}
TRACKING = {"utm_source": TEXT, "utm_medium": TEXT, "goal": TEXT, "target": WHOLE}
TOOLS = [
    function_tool("brief", "All campaigns with audience and days, and the hours of each channel.", {}),
    function_tool("draft", "Write the post of a campaign in a channel.", {**POST, "text": TEXT}),
    function_tool("schedule", "Say when a drafted post goes out.", {**POST, "audience": TEXT, "day": TEXT, "hour": WHOLE}),
    function_tool("track", "Configure a campaign's tracking.", {"campaign": TEXT, **TRACKING}),
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in TOOLS}


class Marketing:
    """Campaigns, their posts and their tracking.

    >>> desk = Marketing()
    >>> (task,) = desk.make_tasks(1, seed=0)
    >>> desk.reset(task)
    >>> [desk.step(tool, args).text for tool, args in desk.solution(task)][1:]
    ['drafted']

    State: `{"channels": [{"channel", "hours"}], "campaigns": [{"campaign", "product", "audience", "days", "tracking"}],
    "posts": [{"campaign", "channel", "text", "slot"}]}`; a tracking or slot that is not set is None.
    """

    kind = "examples.marketing_environment:Marketing"
    tool_threads = 0  # calls take no time
    system_prompt = "You run marketing operations. Read the brief, then do what is asked and nothing else."
    families = ("draft", "schedule", "track", "launch")
    tiers = (2, 3, 4)

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, task: Task) -> None:
        self._state = copy.deepcopy(task.initial_state)

    def snapshot(self) -> dict[str, Any]:
        return copy.deepcopy(self._state)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """One call. A mistake changes nothing and is an observation, never an exception."""
        parameters = PARAMETERS.get(tool)
        if parameters is None:
            return _error(f"no tool named {tool[:32]}")
        if args.keys() != parameters.keys():
            return _error(f"arguments must be {', '.join(parameters) or 'none'}")
        for name, schema in parameters.items():
            if type(args[name]) is not (str if schema == TEXT else int):
                return _error(f"{name} must be {'text' if schema == TEXT else 'a whole number'}")
        if tool == "brief":
            return Observation(self._brief())
        campaign = next((one for one in self._state["campaigns"] if one["campaign"] == args["campaign"]), None)
        if campaign is None:
            return _error("no such campaign")
        if tool == "track":
            campaign["tracking"] = {name: args[name] for name in TRACKING}
            return Observation("tracked")
        if args["channel"] not in CHANNELS:
            return _error(f"channels are {', '.join(CHANNELS)}")
        post = next((one for one in self._state["posts"] if _key(one) == _key(args)), None)
        if tool == "schedule":
            if post is None:
                return _error("no post is drafted there")
            post["slot"] = {name: args[name] for name in ("audience", "day", "hour")}
            return Observation("scheduled")
        if post is not None:
            self._state["posts"].remove(post)
        self._state["posts"].append({**{name: args[name] for name in (*POST, "text")}, "slot": None})
        return Observation("drafted")

    def _brief(self) -> str:
        state = self._state
        lines = [
            f"{one['campaign']} {one['product']}: {one['audience']}, {' '.join(one['days'])}" for one in state["campaigns"]
        ]
        lines += [f"{one['channel']}: hours {' '.join(map(str, one['hours']))}" for one in state["channels"]]
        return "\n".join([*lines, *(f"post: {one['campaign']} {one['channel']} {one['text']}" for one in state["posts"])])

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        """The task of a logged episode, and of a generated one: both go through here."""
        state, goal = logged.get("initial_state"), logged.get("goal")
        if not isinstance(state, dict) or not isinstance(goal, dict) or goal.get("family") not in self.families:
            raise DataError(f"'initial_state' and 'goal' are objects, and 'goal.family' is one of {', '.join(self.families)}")
        name = content_hash({"state": state, "goal": goal})
        return Task(
            id=f"marketing-{name}",
            environment=self.kind,
            family=goal["family"],
            tier=len(state["campaigns"]),
            prompt=prompt,
            initial_state=state,
            goal=goal,  # for the verifier alone
            verifier=MarketingCheck.kind,
            fingerprint=name,  # equal tasks stay on one side of the split
        )

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """Tasks of all families; in tier n there are n campaigns."""
        return spread_tasks(self._make, self.families, self.tiers, n, seed)

    def _make(self, family: str, tier: int, rng: random.Random) -> Task:
        channels = [{"channel": name, "hours": _three(rng.randint(7, 18))} for name in CHANNELS]
        campaigns: list[dict[str, Any]] = []
        for number, product in zip(rng.sample(range(10, 100), tier), rng.sample(PRODUCTS, tier), strict=True):
            days = [f"2026-05-{day:02}" for day in _three(rng.randint(1, 26))]
            campaign = {"campaign": f"C{number}", "product": product, "audience": rng.choice(AUDIENCES), "days": days}
            campaigns.append({**campaign, "tracking": None})
        own, channel = campaigns[rng.randrange(tier)], rng.choice(CHANNELS)
        text = f"{rng.choice(OPENINGS)} the {own['product']}. {rng.choice(CLOSINGS)}"
        place = {"campaign": own["campaign"], "channel": channel}
        goal: dict[str, Any] = {"family": family, **place, "text": text}
        if family in ("track", "launch"):
            goal["tracking"] = {"utm_source": f"may-{channel}", "utm_medium": channel, "goal": rng.choice(GOALS)}
            goal["tracking"]["target"] = rng.choice(TARGETS)
        posts = [{**place, "text": text, "slot": None}] if family in ("schedule", "track") else []
        logged = {"initial_state": {"channels": channels, "campaigns": campaigns, "posts": posts}, "goal": goal}
        return self.task_from_log(_request(goal, own["product"]), logged)

    def solution(self, task: Task) -> list[Call]:
        """The calls that solve a task; `brief` comes first, as an agent has to look too."""
        goal, own = task.goal, _own(task)
        place = {name: goal[name] for name in POST}
        slot = {"audience": own["audience"], "day": own["days"][0], "hour": _hours(task)[0]}
        calls: dict[str, Call] = {
            "draft": ("draft", {**place, "text": goal["text"]}),
            "schedule": ("schedule", {**place, **slot}),
        }
        if "tracking" in goal:
            calls["track"] = ("track", {"campaign": goal["campaign"], **goal["tracking"]})
        return [("brief", {}), *(calls[name] for name in _asked(task))]

    def near_misses(self, task: Task) -> dict[str, list[Call]]:
        """What must not count: right but for one thing, by what is wrong."""
        right = self.solution(task)
        other = next(one["campaign"] for one in task.initial_state["campaigns"] if one["campaign"] != task.goal["campaign"])
        channel = next(name for name in CHANNELS if name != task.goal["channel"])
        tracking = {"utm_source": "may-mail", "utm_medium": "mail", "goal": "orders", "target": 20}

        def changed(name: str, value: Any) -> list[Call]:
            return [(tool, args | {name: value} if name in args else args) for tool, args in right]

        values = {name: value for _, args in right for name, value in args.items()}
        found = {
            "half_done": right[:-1],
            "extra_change": [*right, ("track", {"campaign": other, **tracking})],
            "extra_post": [*right, ("draft", {"campaign": other, "channel": channel, "text": task.goal["text"]})],
            "wrong_campaign": changed("campaign", other),
        }
        if task.family == "draft":
            place, slot = {name: task.goal[name] for name in POST}, {"audience": "regulars", "day": _own(task)["days"][0]}
            found["scheduled_too"] = [*right, ("schedule", {**place, **slot, "hour": _hours(task)[0]})]
        wrong = {
            "channel": {"wrong_channel": channel},
            "text": {"other_case": task.goal["text"].lower(), "cut_off": task.goal["text"][:-1]},
            "hour": {"too_late": _hours(task)[-1] + 1, "hour_as_text": str(values.get("hour"))},
            "day": {"day_before": "2026-04-30", "day_in_words": "tomorrow"},
            "audience": {"wrong_audience": next(name for name in AUDIENCES if name != _own(task)["audience"])},
            "target": {"target_as_text": str(values.get("target")), "target_one_off": values.get("target", 0) + 1},
            "utm_source": {"wrong_source": "may"},
        }
        return found | {way: changed(name, value) for name in values for way, value in wrong.get(name, {}).items()}

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        if not {"channels", "campaigns", "posts"} <= state.keys():
            raise DataError("a snapshot of Marketing has 'channels', 'campaigns' and 'posts'")
        self._state = copy.deepcopy(state)

    def outcome(self, task: Task, state: dict[str, Any]) -> Any:
        """What of a state counts, for the audit: one slot within the brief is as good as another; posts have no order."""
        posts = [post | {"slot": "in time"} if _in_time(task, post["slot"]) else post for post in state["posts"]]
        return state | {"posts": sorted(posts, key=canonical_json)}


class MarketingCheck:
    """What was asked for is there, exactly; all else is as it was. Each part is 0 or 1, and so is the total.

    >>> (task,) = Marketing().make_tasks(1, seed=0)
    >>> MarketingCheck().verify(task, task.initial_state)
    (0.0, {'draft': 0.0, 'untouched': 1.0})
    """

    kind = "examples.marketing_environment:MarketingCheck"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        asked, goal, start = _asked(task), task.goal, task.initial_state
        post = next((one for one in final_state["posts"] if _key(one) == _key(goal)), {"text": None, "slot": None})
        tracking = next((one["tracking"] for one in final_state["campaigns"] if one["campaign"] == goal["campaign"]), None)
        right = {
            "draft": post["text"] == goal["text"],
            "schedule": _in_time(task, post["slot"]),
            "track": canonical_json(tracking) == canonical_json(goal.get("tracking")),  # 20 is neither 20.0 nor "20"
        }
        parts = {name: float(right[name]) for name in asked}
        parts["untouched"] = float(_rest(task, final_state) == _rest(task, start))
        return float(all(parts.values())), parts


def _rest(task: Task, state: dict[str, Any]) -> str:
    """A state without what the task asks to change: equal texts, nothing else was touched."""
    rest, asked = copy.deepcopy(state), _asked(task)
    own = [post for post in rest["posts"] if _key(post) == _key(task.goal)]
    others = [post for post in rest["posts"] if _key(post) != _key(task.goal)]
    own = own or [{**{name: task.goal[name] for name in POST}, "text": None, "slot": None}]
    blank = {name: None for part, name in (("draft", "text"), ("schedule", "slot")) if part in asked}
    rest["posts"] = sorted([*others, *(post | blank for post in own)], key=canonical_json)
    for campaign in rest["campaigns"]:
        if "track" in asked and campaign["campaign"] == task.goal["campaign"]:
            campaign["tracking"] = None
    return canonical_json(rest)


def _in_time(task: Task, slot: Any) -> bool:
    own = _own(task)
    slots = [{"audience": own["audience"], "day": day, "hour": hour} for day in own["days"] for hour in _hours(task)]
    return canonical_json(slot) in map(canonical_json, slots)


def _asked(task: Task) -> tuple[str, ...]:
    return ("draft", "schedule", "track") if task.goal["family"] == "launch" else (task.goal["family"],)


def _own(task: Task) -> dict[str, Any]:
    return next(one for one in task.initial_state["campaigns"] if one["campaign"] == task.goal["campaign"])


def _hours(task: Task) -> list[int]:
    return next(one["hours"] for one in task.initial_state["channels"] if one["channel"] == task.goal["channel"])


def _three(first: int) -> list[int]:
    return list(range(first, first + 3))


def _key(of: dict[str, Any]) -> tuple[Any, Any]:
    return of["campaign"], of["channel"]


def _request(goal: dict[str, Any], product: str) -> str:
    post = f"the {goal['channel']} post of the {product} campaign"
    wanted = {"draft": f'Draft {post}: "{goal["text"]}"', "schedule": f"Schedule {post} within the brief."}
    if tracking := goal.get("tracking"):
        values = ", ".join(f"{name} {value}" for name, value in tracking.items())
        wanted["track"] = f"Configure the tracking of the {product} campaign: {values}."
    return " ".join(wanted.values()) if goal["family"] == "launch" else wanted[goal["family"]]


def _error(text: str) -> Observation:
    return Observation(f"error: {text}", error=True)
