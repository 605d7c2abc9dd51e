"""Tells people that no scheduled run was complete for days: a Prefect automation that calls a webhook.

How runs end is told by the runs themselves (`tasks.records.telling`). That none comes must be told by another: the server.
An address is a secret: Prefect keeps it encrypted in a block, and nothing here prints it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from flows.deploy.checks import Plan
from tracewheel.config.notify import NotifyConfig

COMPLETE = tuple(f"prefect.flow-run.{name}" for name in ("Completed", "Promoted", "Refused", "AwaitingApproval"))
OVERDUE = """{
  "text": {{ "retrain/NAME: no run was complete for DAYS days" | tojson }},
  "deployment": {{ "NAME" | tojson }},
  "event": "overdue"
}"""


def register_notifications(plan: Plan, deployment_id: UUID) -> None:
    """Have the server watch for runs that do not come. What it watches already goes on: a restart of `deploy` is no run."""
    from prefect.client.orchestration import get_client

    owner = f"tracewheel.deployment.{deployment_id}"  # what the deployment itself owns, Prefect deletes at each registration
    wanted = [
        _automation(plan.name, number, notify, deployment_id, owner)
        for number, notify in enumerate(plan.config.schedule.notify)
        if notify.overdue_days is not None
    ]
    with get_client(sync_client=True) as client:
        known = client.read_resource_related_automations(owner)
        if sorted(map(_watched, known)) == sorted(map(_watched, wanted)):
            return
        client.delete_resource_owned_automations(owner)
        for automation in wanted:
            client.create_automation(automation)


def _watched(automation: Any) -> str:
    """What an automation is, waits for and does, as far as a profile decides it."""
    return str([automation.name, automation.trigger.within, *(action.block_document_id for action in automation.actions)])


def _automation(name: str, number: int, notify: NotifyConfig, deployment_id: UUID, owner: str) -> Any:
    from prefect.blocks.fields import SecretDict
    from prefect.blocks.webhook import Webhook
    from prefect.events.actions import CallWebhook
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from pydantic import SecretStr

    days = notify.overdue_days or 0.0
    block = Webhook(url=SecretStr(notify.address()), headers=SecretDict({"Content-Type": "application/json"}))
    block_name = f"tracewheel-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{number}"
    trigger = EventTrigger(
        expect=set(COMPLETE),
        match_related={"prefect.resource.id": f"prefect.deployment.{deployment_id}", "prefect.resource.role": "deployment"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(days=days),
    )
    payload = OVERDUE.replace("NAME", name).replace("DAYS", f"{days:g}")
    return AutomationCore(
        name=f"tracewheel {name}: overdue ({number + 1})",
        description=f"Tells when no run was complete for {days:g} days.",
        tags=["tracewheel"],
        trigger=trigger,
        actions=[CallWebhook(block_document_id=cast(UUID, block.save(block_name, overwrite=True)), payload=payload)],
        owner_resource=owner,
    )
