"""The pure parts: topics, placements, plan, ledger."""

import itertools
import json
import unittest

import thicket
from thicket import Message
from thicket._ledger import Ledger
from thicket._placement import Placed, Request, parse_answer, parse_reference, to_request
from thicket._plan import Plan
from thicket._topics import check_filter, check_topic, matches, overlap


class Topics(unittest.TestCase):
    def test_overlap_agrees_with_trying_every_topic(self) -> None:
        levels = ["a", "b", ""]
        topics = ["/".join(parts) for count in (1, 2, 3) for parts in itertools.product(levels, repeat=count)]
        filters = ["a", "+", "#", "a/b", "a/+", "+/b", "a/#", "+/+", "b/+/a", "+/#", "a/b/+", "/", "b/#"]
        for one, other in itertools.product(filters, repeat=2):
            expected = any(topic and matches(one, topic) and matches(other, topic) for topic in topics)
            self.assertEqual(overlap(one, other), expected, (one, other))
        self.assertFalse(overlap("$share/g/a", "a"))

    def test_topics_and_filters_that_are_none_are_refused(self) -> None:
        for good in ("a", "/", "+/a/#", "#", "$share/g/a/+"):
            check_filter(good)
        for bad in ("", "a/#/b", "a#", "a+", "$share/g", "$share//a", "a\0"):
            with self.subTest(bad), self.assertRaises(ValueError):
                check_filter(bad)
        for bad in ("", "a/+", "#"):
            with self.subTest(bad), self.assertRaises(ValueError):
                check_topic(bad)


class Placements(unittest.TestCase):
    def test_every_form_of_a_server_reference_is_read(self) -> None:
        for given, expected in {
            "b.example:1884": [("b.example", 1884)],
            "b": [("b", 7)],
            "[fd00::1]:1": [("fd00::1", 1)],
            "fd00::1": [("fd00::1", 7)],
            "a:1  b:2 c": [("a", 1), ("b", 2), ("c", 7)],
            "a: a:0 a:65536 a:x :1 mqtt://a u@h": [],
        }.items():
            self.assertEqual(parse_reference(given, 7), expected, given)

    def test_an_answer_is_checked_and_filters_that_overlap_come_together(self) -> None:
        def answer(*sessions: tuple[str, list[str]]) -> str:
            return json.dumps({"sessions": [{"address": "a:1", "client_id": name, "subscribe": topics} for name, topics in sessions]})

        placed = parse_answer(answer(("c", ["a/+"]), ("c~2", ["a/b", "d"])), "c", 2)
        self.assertEqual((placed[1].subscribe, placed[2].subscribe), (["a/+", "a/b"], ["d"]))
        read = parse_answer(answer(("c", ["x"]), ("c~2", []), ("c~3", [])), "c", 1)
        self.assertEqual(sorted(read), [1, 2, 3], "sessions to be read to their end come on top")
        for bad in ("", "{}", "[]", '{"sessions": []}', '{"sessions": [{}]}', '{"sessions": [{"address": 1, "client_id": "c"}]}'):
            with self.subTest(bad), self.assertRaises(ValueError):
                parse_answer(bad, "c", 2)
        with self.assertRaisesRegex(ValueError, 'may not use "secret"'):
            parse_answer('{"title": "refused", "detail": "subscribe[0]: the client may not use \\"secret\\""}', "c", 2)
        for name in ("d", "cc", "c~1", "c~02", "c~x", "c~"):
            with self.subTest(name), self.assertRaises(ValueError):
                parse_answer(answer((name, ["x"])), "c", 2)
        with self.assertRaisesRegex(ValueError, "twice"):
            parse_answer(answer(("c", ["x"]), ("c", ["y"])), "c", 2)
        with self.assertRaisesRegex(ValueError, "expected 1 to 2"):
            parse_answer(answer(("c", ["x"]), ("c~2", ["y"]), ("c~3", ["z"])), "c", 2)

    def test_a_request_leaves_out_shared_subscriptions_and_rates_of_other_topics(self) -> None:
        rates = {"x": 2.5, "$share/g/c": 1.0, "later": 1.0}
        request = to_request("c", ("x",), ["b", "$share/g/c", "a/+"], 4, rates)
        self.assertEqual(request.subscribe, ("a/+", "b"))
        self.assertEqual(request.rates, {"x": 2.5})

    def test_a_request_says_the_same_in_json_and_in_properties(self) -> None:
        request = Request("c", ("x",), ("a/+", "b"), 4, {"x": 2.5})
        self.assertEqual(json.loads(request.to_json())["subscribe"], ["a/+", "b"])
        self.assertEqual(
            request.to_properties(),
            [
                ("thicket-max-sessions", "4"),
                ("thicket-publish", "x"),
                ("thicket-subscribe", "a/+"),
                ("thicket-subscribe", "b"),
                ("thicket-rates", '{"x": 2.5}'),
            ],
        )


class Moves(unittest.TestCase):
    def test_a_filter_is_at_its_new_session_before_it_leaves_the_old_one(self) -> None:
        plan = Plan(4, tls=False)
        for topic_filter in ("a", "b"):
            plan.subscribe(topic_filter, thicket.SubscriptionOptions(2))
            plan.on_subscribed(1, topic_filter)
        self.assertEqual(plan.apply({1: Placed("x:1", None, [], ["a"]), 2: Placed("y:1", None, [], ["b"])}), ["b"])
        self.assertEqual((sorted(plan.filters(1)), sorted(plan.filters(2))), (["a", "b"], ["b"]))
        self.assertTrue(plan.filters(2)["b"].is_moved)
        plan.on_subscribed(2, "b")
        self.assertEqual(sorted(plan.filters(1)), ["a"])
        plan.on_unsubscribed(1, "b")
        self.assertEqual(plan.on_drained(1), ["b"])
        self.assertEqual(plan.apply({1: Placed("x:1", None, [], ["a", "b"])}), ["b"])
        plan.on_subscribed(1, "b")
        self.assertFalse(plan.leaves(2), "it may get messages still")
        plan.on_unsubscribed(2, "b")
        self.assertTrue(plan.leaves(2))
        self.assertEqual(plan.on_left(2, is_routed=False), ["b"])
        self.assertEqual(plan.sessions(), [1])

    def test_a_filter_is_unsubscribed_when_no_session_may_have_it(self) -> None:
        plan = Plan(4, tls=False)
        plan.subscribe("a", thicket.SubscriptionOptions(2))
        plan.on_subscribed(1, "a")
        plan.move_to("a", plan.session_at(("y", 1)) or 0)
        plan.on_asked(2, "a")
        self.assertTrue(plan.unsubscribe("a"))
        plan.on_unsubscribed(1, "a")
        self.assertFalse(plan.is_unsubscribed("a"), "the second may have it")
        plan.on_refused(2, "a")
        self.assertTrue(plan.is_unsubscribed("a"))
        plan.subscribe("a", thicket.SubscriptionOptions(2))
        plan.on_subscribed(1, "a")
        self.assertTrue(plan.is_unsubscribed("a"), "it is wanted again")

    def test_a_session_that_has_not_answered_is_not_relied_on(self) -> None:
        plan = Plan(4, tls=False)
        plan.subscribe("a", thicket.SubscriptionOptions(2))
        plan.on_asked(1, "a")
        elsewhere = {1: Placed("x:1", None, [], []), 2: Placed("y:1", None, [], ["a"])}
        self.assertEqual(plan.apply(elsewhere), ["a"], "its messages may come over both")
        self.assertFalse(plan.filters(2)["a"].is_moved, "nobody was surely sent what is retained")
        plan.on_subscribed(2, "a")
        plan.on_unsubscribed(1, "a")
        self.assertEqual(plan.on_drained(1), ["a"])
        # On its way to the first again it comes to the second, before the first has answered its UNSUBSCRIBE.
        back = {1: Placed("x:1", None, [], ["a"])}
        plan.apply(back)
        plan.on_subscribed(1, "a")
        plan.apply(elsewhere)
        plan.on_asked(1, "a")
        plan.apply(back)
        self.assertEqual((sorted(plan.filters(1)), sorted(plan.filters(2))), (["a"], ["a"]))
        plan.on_unsubscribed(1, "a")
        self.assertEqual(sorted(plan.filters(2)), ["a"], "the first does not have it")
        plan.on_subscribed(1, "a")
        self.assertEqual(sorted(plan.filters(2)), [])

    def test_what_comes_over_both_sessions_is_delivered_once_while_its_filter_moves(self) -> None:
        ledger = Ledger()

        def admits(session: int, payload: bytes, identity: str | None = None, qos: int = 2) -> bool:
            return ledger.admits(session, Message("a/b", payload, qos), identity)

        self.assertTrue(admits(1, b"0") and admits(2, b"0"))
        ledger.begin("a/+")
        for session, payload, identity, expected in (
            (1, b"1", None, True),
            (2, b"1", None, False),
            (1, b"on", None, True),
            (1, b"on", None, True),
            (2, b"on", None, False),
            (2, b"on", None, False),
            (2, b"on", None, True),
            (1, b"same", "x-1", True),
            (2, b"same", "x-2", True),
            (2, b"same", "x-1", False),
        ):
            self.assertEqual(admits(session, payload, identity), expected, (session, payload, identity))
        self.assertTrue(admits(1, b"9", qos=1) and admits(2, b"9", qos=1))
        ledger.end("a/+")
        self.assertTrue(admits(1, b"7") and admits(2, b"7"))
