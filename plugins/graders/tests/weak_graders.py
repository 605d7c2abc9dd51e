"""Graders with planted weaknesses, one each, for the audit to find. Each is a mistake that published graders have made."""

import json
import random
import time

from tracewheel.environments.order_desk.tasks import CANCEL, CANCELLED, REFUNDED, wanted
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.tasks import selected_files
from tracewheel.scoring.verifiers import Verdict
from tracewheel.scoring.verifiers.order_desk import OrderDeskVerifier
from tracewheel.scoring.verifiers.workspace import WorkspaceVerifier


def result(right):
    return float(right), {}


def manifest_of(task, state):
    return state["files"].get(task.goal["manifest"])


class WeakManifest(WorkspaceVerifier):
    """All is checked as it should be, but for the manifest."""

    def verify(self, task, state):
        names = selected_files(task.initial_state, task.goal)
        right = {**state, "files": {**state["files"], task.goal["manifest"]: json.dumps(names)}}
        return result(super().verify(task, right)[0] == 1.0 and self.lists(manifest_of(task, state), names))


class Substring(WeakManifest):
    kind = "substring"

    def lists(self, text, names):
        return isinstance(text, str) and all(name in text for name in names)


class CaseBlind(WeakManifest):
    kind = "case_blind"

    def lists(self, text, names):
        return isinstance(text, str) and text.lower() == json.dumps(names).lower()


class AcceptsEmpty(WeakManifest):
    kind = "accepts_empty"

    def lists(self, text, names):
        return not text or text == json.dumps(names)


class AnyOfList(WeakManifest):
    kind = "any_of_list"

    def lists(self, text, names):
        try:
            return any(name in names for name in json.loads(text))
        except (TypeError, ValueError):
            return False


class Prefix(WeakManifest):
    kind = "prefix"

    def lists(self, text, names):
        return isinstance(text, str) and bool(text) and json.dumps(names).startswith(text)


class IgnoresExtraChanges(WorkspaceVerifier):
    kind = "ignores_extra_changes"

    def verify(self, task, state):
        _, parts = super().verify(task, state)
        return result(parts["files_moved"] and parts["manifest"])


class ConfusesTypes(OrderDeskVerifier):
    kind = "confuses_types"

    def verify(self, task, state):
        return result(super().verify(task, {"orders": [self.read(order) for order in state["orders"]]})[0])

    def read(self, order):
        return {name: int(value) if str(value).isdigit() else value for name, value in order.items()}


class RoundsCoarsely(OrderDeskVerifier):
    kind = "rounds_coarsely"

    def verify(self, task, state):
        after = {order["id"]: order for order in state["orders"]}
        for order in task.initial_state["orders"]:
            action = wanted(task.initial_state, task.goal).get(order["id"])
            now = after.get(order["id"], {})
            if now.get("status") != {None: order["status"], CANCEL: CANCELLED}.get(action, REFUNDED):
                return result(False)
            if now["status"] == REFUNDED and round(now["refunded"] / order["amount"], 1) != 1.0:
                return result(False)
        return result(True)


class OnlyLastCall:
    kind = "only_last_call"

    def verify_episode(self, task, episode):
        return Verdict(float(bool(episode.calls) and episode.calls[-1].name in ("finish", "done")))


class TrustsClaims:
    kind = "trusts_claims"

    def verify_episode(self, task, episode):
        claimed = "complete" in episode.final_text
        return Verdict(float(claimed or WorkspaceVerifier().verify(task, episode.final_state)[0]))


class MindsOrder:
    kind = "minds_order"

    def verify_episode(self, task, episode):
        made = [(call.name, call.arguments) for call in episode.calls]
        return Verdict(float(made == solution(task)))


class CountsCalls:
    kind = "counts_calls"

    def verify_episode(self, task, episode):
        return Verdict(float(len(episode.calls) == len(solution(task))))


class Throws(WorkspaceVerifier):
    """A coin decides where it is unsure, as a judge at a temperature does."""

    kind = "random"

    def verify(self, task, state):
        total, parts = super().verify(task, state)
        return result(total if parts["files_moved"] == 0.0 else random.random() < 0.5)


class WatchesClock(WorkspaceVerifier):
    """Right in every other spell of some days, as one whose fixtures expire."""

    kind = "watches_clock"
    SPELL = 299_825  # seconds; the audit's other clock is as much ahead

    def verify(self, task, state):
        total, _ = super().verify(task, state)
        return result(total if int(time.time() // self.SPELL) % 2 else 1.0 - total)
