"""The tables of plan, routes and ledger that all client libraries run: tests/vectors."""

import asyncio
import json
import pathlib
import unittest
from collections.abc import Callable
from typing import Any

from thicket import Message, SubscriptionOptions
from thicket._ledger import Ledger
from thicket._placement import Placed, parse_reference
from thicket._plan import Plan
from thicket._routes import Routes

VECTORS = json.loads((pathlib.Path(__file__).resolve().parents[3] / "tests" / "vectors" / "clients.json").read_text())


def address(text: str) -> tuple[str, int]:
    return parse_reference(text, 1)[0]


class PlanTable:
    def __init__(self, case: Any) -> None:
        self.plan = Plan(case["max_sessions"], tls=False)

    def apply(self, placed: dict[str, list[str]]) -> list[str]:
        sessions = {int(number): Placed(where, None, [], filters) for number, (where, *filters) in placed.items()}
        return sorted(self.plan.apply(sessions))

    def run(self, name: str, arguments: list[Any]) -> object:
        plan = self.plan
        operations: dict[str, Callable[..., object]] = {
            "apply": self.apply,
            "asked": lambda number, name, _: plan.on_asked(number, name),
            "drained": plan.on_drained,
            "filters": lambda number: {name: how.is_moved for name, how in plan.filters(number).items()},
            "give_up": plan.give_up,
            "home": plan.home,
            "is_unsubscribed": plan.is_unsubscribed,
            "leaves": plan.leaves,
            "left": lambda number, is_routed: plan.on_left(number, is_routed=is_routed),
            "may_move": plan.may_move,
            "move_to": plan.move_to,
            "note_address": lambda number, where: plan.note_address(number, address(where)),
            "refused": plan.on_refused,
            "session_at": lambda where: plan.session_at(address(where)),
            "sessions": plan.sessions,
            "subscribe": lambda name: plan.subscribe(name, SubscriptionOptions(2)),
            "subscribed": plan.on_subscribed,
            "unsubscribe": plan.unsubscribe,
            "unsubscribed": plan.on_unsubscribed,
        }
        return operations[name](*arguments)


class LedgerTable:
    def __init__(self, _: Any) -> None:
        self.ledger = Ledger()

    def run(self, name: str, arguments: list[Any]) -> object:
        if name == "admits":
            session, qos, topic, payload, identity = arguments
            return self.ledger.admits(session, Message(topic, payload.encode(), qos), identity)
        return {"begin": self.ledger.begin, "end": self.ledger.end}[name](*arguments)


RETURNS = {
    "admits", "apply", "drained", "filters", "home", "is_unsubscribed", "leaves", "left", "may_move", "move_to", "refused", "session_at",
    "sessions", "unsubscribe",
}  # fmt: skip


class Vectors(unittest.IsolatedAsyncioTestCase):
    def test_plan_and_ledger_do_as_the_tables_say(self) -> None:
        for part, table in (("plan", PlanTable), ("ledger", LedgerTable)):
            for case in VECTORS[part]:
                state = table(case)
                for number, (name, *rest) in enumerate(case["steps"], 1):
                    expected = rest.pop() if name in RETURNS else None
                    found = state.run(name, rest)
                    if name in RETURNS:
                        self.assertEqual(found, expected, (case["name"], number, name, rest))

    async def test_routes_do_as_the_tables_say(self) -> None:
        for case in VECTORS["routes"]:
            await self.run_routes(case)

    async def run_routes(self, case: Any) -> None:
        routes = Routes()
        waiting: dict[str, asyncio.Task[int | None]] = {}
        for number, (name, *arguments) in enumerate(case["steps"], 1):
            where = (case["name"], number, name)
            match name:
                case "enter":
                    topic, expected = arguments
                    task = asyncio.ensure_future(routes.enter(topic))
                    await asyncio.sleep(0)
                    self.assertEqual(task.done(), expected != "waits", where)
                    if task.done():
                        self.assertEqual(task.result(), expected, where)
                    else:
                        waiting[topic] = task
                case "resumes":
                    topic, expected = arguments
                    self.assertEqual(await waiting.pop(topic), expected, where)
                case "uses":
                    self.assertEqual(routes.uses(arguments[0]), arguments[1], where)
                case "learned":
                    self.assertEqual(sorted(routes.learned), arguments[0], where)
                case "settle":
                    routes.leave(*arguments)
                case _:
                    getattr(routes, name)(*arguments)
