"""Tells people how unattended runs end: Prefect automations that call a webhook (`schedule.notify`).

An address is a secret: Prefect keeps it encrypted in a block, and nothing here prints it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from flows.deploy.plan import Plan
from tracewheel.config.notify import HELD_EVENT, Happening, NotifyConfig

RUN = "prefect.flow-run"
EVENTS: dict[Happening, tuple[str, ...]] = {
    "failed": (f"{RUN}.Failed", f"{RUN}.TimedOut"),
    "crashed": (f"{RUN}.Crashed",),
    "stopped": (f"{RUN}.Stopped", f"{RUN}.Cancelled"),
    "refused": (f"{RUN}.Refused",),
    "held": (HELD_EVENT,),
    "awaiting": (f"{RUN}.AwaitingApproval",),
    "promoted": (f"{RUN}.Promoted",),
    "skipped": (f"{RUN}.Skipped",),
}
COMPLETE = (f"{RUN}.Completed", f"{RUN}.Promoted", f"{RUN}.Refused", f"{RUN}.AwaitingApproval")
# Jinja, filled in by Prefect. `text` is what chat services show; the rest is for programs.
TOLD = """{
  "text": {{ ("retrain/NAME: " ~ (event.resource.get("prefect.state-name") or event.event) ~ ": "
              ~ (event.resource.get("prefect.state-message") or event.payload.get("message") or "")) | tojson }},
  "deployment": {{ "NAME" | tojson }},
  "event": {{ event.event | tojson }},
  "run": {{ (event.resource.get("prefect.resource.name") or "") | tojson }},
  "state": {{ (event.resource.get("prefect.state-name") or "") | tojson }},
  "message": {{ (event.resource.get("prefect.state-message") or event.payload.get("message") or "") | tojson }}
}"""
OVERDUE = """{
  "text": {{ "retrain/NAME: no run was complete for DAYS days" | tojson }},
  "deployment": {{ "NAME" | tojson }},
  "event": "overdue"
}"""


def register_notifications(plan: Plan, deployment_id: UUID) -> None:
    """Replace the deployment's automations by those of the profile."""
    from prefect.client.orchestration import get_client

    owner = f"prefect.deployment.{deployment_id}"
    blocks = [_save_block(plan.name, number, notify) for number, notify in enumerate(plan.config.schedule.notify)]
    with get_client(sync_client=True) as client:
        client.delete_resource_owned_automations(owner)
        for number, (notify, block) in enumerate(zip(plan.config.schedule.notify, blocks, strict=True)):
            for automation in _automations(plan.name, number, notify, block, owner):
                client.create_automation(automation)


def _save_block(name: str, number: int, notify: NotifyConfig) -> UUID:
    from prefect.blocks.fields import SecretDict
    from prefect.blocks.webhook import Webhook
    from pydantic import SecretStr

    block = Webhook(url=SecretStr(notify.address()), headers=SecretDict({"Content-Type": "application/json"}))
    return cast(UUID, block.save(f"tracewheel-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{number}", overwrite=True))


def _automations(name: str, number: int, notify: NotifyConfig, block: UUID, owner: str) -> list[Any]:
    from prefect.events.actions import CallWebhook
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    ours: dict[str, str | list[str]] = {"prefect.resource.id": owner, "prefect.resource.role": "deployment"}
    made: list[tuple[str, str, EventTrigger, str]] = []
    if notify.on:
        trigger = EventTrigger(
            expect={event for happening in notify.on for event in EVENTS[happening]},
            match_related=ours,
            posture=Posture.Reactive,
            threshold=1,
        )
        payload = TOLD.replace("NAME", name)
        made.append(("ends", f"Tells how runs end: {', '.join(notify.on)}.", trigger, payload))
    if notify.overdue_days is not None:
        days = f"{notify.overdue_days:g}"
        trigger = EventTrigger(
            expect=set(COMPLETE),
            match_related=ours,
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(days=notify.overdue_days),
        )
        payload = OVERDUE.replace("NAME", name).replace("DAYS", days)
        made.append(("overdue", f"Tells when no run was complete for {days} days.", trigger, payload))
    return [
        AutomationCore(
            name=f"tracewheel {name}: {what} ({number + 1})",
            description=description,
            tags=["tracewheel"],
            trigger=trigger,
            actions=[CallWebhook(block_document_id=block, payload=payload)],
            owner_resource=owner,
        )
        for what, description, trigger, payload in made
    ]
