"""What a node keeps in its data directory: killed at any moment and started again, it goes on as if nothing had been."""

import contextlib
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from load import KEPT, Publisher, Subscriber, check_books
from nodes import BINARY, PATIENCE_S, Node, free_port, wait_until
from wire import NEVER, Closed, Kind, Property, RawClient, Will, acknowledge, publish, subscribe

QUOTA_EXCEEDED = 0x97
NO_PACKET_IDENTIFIER = 0x92
# Every log segment begins with a header of less than this.
SEGMENT_HEADER = 64


class Home:
    """A data directory and the node that lives in it, one process after the other."""

    def __init__(self, test, path=None):
        self.test = test
        self.path = pathlib.Path(path or tempfile.mkdtemp(prefix="thicket-durability-"))
        self.node = None
        test.addCleanup(shutil.rmtree, self.path, ignore_errors=True)
        test.addCleanup(self.leave)

    def command(self, *arguments):
        return ("--data", str(self.path / "data"), *map(str, arguments))

    def start(self, *arguments):
        """Starts a node here; its port is another one each time."""
        for _ in range(3):
            self.node = Node("node-1", (), self.command(*arguments))
            if self.node.wait_until_ready(1):
                return self.node.port
            words = self.node.log_from(0)
            self.node.log.close()
            # Somebody else may have taken the port before the node listened on it.
            if "in use by another process" not in words:
                break
        self.node = None
        raise AssertionError(f"the node did not start: {words}")

    def refusal(self, *arguments):
        """What a node says that must not start here."""
        command = [BINARY, "broker", "--listen", f"127.0.0.1:{free_port()}", "--http", "off", "--discover", "off"]
        done = subprocess.run(
            [*command, *self.command(*arguments)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        self.test.assertEqual(done.returncode, 1, done)
        self.test.assertNotIn("panicked", done.stdout + done.stderr)
        return done.stdout + done.stderr

    def kill(self):
        """SIGKILL. Returns what the node logged."""
        self.test.assertTrue(self.node.is_alive(), self.node.log_from(0))
        self.node.kill()
        return self.log()

    def stop(self):
        """SIGTERM, and all is on disk. Returns what the node logged."""
        self.node.stop()
        self.test.assertEqual(self.node.process.returncode, 0)
        return self.log()

    def log(self):
        words = self.node.log_from(0)
        self.node.log.close()
        self.node = None
        self.test.assertNotIn("panicked", words)
        return words

    def leave(self):
        """At the end of the test, whatever came of it."""
        if self.node:
            self.node.kill()
            self.test.last_log += self.log()

    def restart(self, *arguments):
        """Killed and started again."""
        self.kill()
        return self.start(*arguments)

    def newest_segment(self, log=0):
        """The file of the log that records go to: the last one with any."""
        segments = sorted((self.path / "data" / f"log-{log}").glob("*.segment"))
        return [path for path in segments if path.read_bytes()[SEGMENT_HEADER:].strip(b"\0")][-1]


class DurabilityCases(unittest.TestCase):
    """Clients of version 5 at a node that may be another process each time."""

    last_log = ""

    def run(self, result=None):
        def count():
            return len(result.failures) + len(result.errors) if result is not None else 0

        before = count()
        outcome = super().run(result)
        if count() > before:
            print(f"\n{self.id()}\n{self.last_log}", file=sys.stderr)
        return outcome

    def client(self, port, client_id, version=5, clean_start=False, expiry=NEVER, props=(), **options):
        """Connected, with a session that stays unless told otherwise; CONNACK is its attribute `connack`."""
        client = RawClient(port, version)
        self.addCleanup(client.close)
        props = ((Property.SESSION_EXPIRY_INTERVAL, expiry), *props) if version == 5 else ()
        client.connack = client.connect(client_id, clean_start=clean_start, props=props, **options)
        return client

    def passing(self, port, client_id="passing"):
        """Connected, with a session that ends with the connection."""
        return self.client(port, client_id, clean_start=True, expiry=0)


class Killed(DurabilityCases):
    """SIGKILL at any moment."""

    def kill_under_load(self, starts):
        """Loads a node started with each of these arguments in turn, and kills it at a random moment each time."""
        seed = random.randrange(2**32)
        self.last_log = f"moments of death from seed {seed}"
        moments = random.Random(seed)
        home = Home(self)
        publishers = [Publisher(f"publisher-{qos}", f"load/{qos}", qos) for qos in (1, 2)]
        subscribers = [Subscriber(f"subscriber-{number}") for number in range(2)]
        away = [Subscriber(f"away-{number}") for number in range(2)]
        port = home.start(*starts[0])
        for subscriber in subscribers + away:
            subscriber.connect(port)
            subscriber.client.subscribe(("load/#", 2))
            subscriber.client.close()
        for number, arguments in enumerate(starts):
            if number > 0:
                port = home.start(*arguments)
            for client in subscribers + publishers:
                client.begin(port)
            # A moment under load is what is tested.
            time.sleep(moments.uniform(0.02, 0.5))
            home.kill()
            for client in publishers + subscribers:
                client.end()
        port = home.start(*starts[0])
        for publisher in publishers:
            publisher.finish(port)
        self.passing(port).publish("load/end", "end", qos=1)
        for subscriber in subscribers + away:
            subscriber.finish(port, b"end")
        check_books(self, publishers, subscribers + away, in_order=True)
        home.stop()

    def test_nothing_acknowledged_is_lost_with_one_worker(self):
        self.kill_under_load([("--workers", 1)] * 4)

    def test_nothing_acknowledged_is_lost_with_two_workers(self):
        self.kill_under_load([("--workers", 2)] * 4)

    def test_nothing_acknowledged_is_lost_when_each_record_is_synced(self):
        self.kill_under_load([("--workers", 2, "--sync", "commit")] * 3)

    def test_nothing_acknowledged_is_lost_when_the_number_of_workers_changes(self):
        self.kill_under_load([("--workers", count) for count in (3, 1, 2, 1)])


class Kept(DurabilityCases):
    """What there was is there."""

    def test_subscriptions_stay_with_their_options_and_end_when_they_were_ended(self):
        home = Home(self)
        port = home.start()
        subscriber = self.client(port, "subscriber")
        subscriber.subscribe(("plain/+", 0x09), props=((Property.SUBSCRIPTION_IDENTIFIER, 7),))
        subscriber.subscribe(("ended", 1), ("$share/group/shared", 1))
        subscriber.send(b"\xa2\x0a\x00\x09\x00\x00\x05ended")
        self.assertEqual(subscriber.expect(Kind.UNSUBACK).codes, [0])
        port = home.restart()
        publisher = self.passing(port)
        for topic in ("ended", "plain/a", "shared"):
            publisher.publish(topic, "x", qos=1, retain=topic == "plain/a")
        again = self.client(port, "subscriber")
        self.assertTrue(again.connack.session_present)
        plain, shared = again.take_message(), again.take_message()
        self.assertEqual((plain.topic, plain.retain, plain.values(Property.SUBSCRIPTION_IDENTIFIER)),
                         ("plain/a", True, [7]))
        self.assertEqual((shared.topic, shared.retain), ("shared", False))
        self.assertEqual(again.ping(), [])

    def test_what_was_under_way_comes_again_with_dup_and_the_same_identifiers(self):
        """[MQTT-4.4.0-1]: PUBLISH with DUP, or PUBREL; then what was never sent."""
        home = Home(self)
        port = home.start()
        subscriber = self.client(port, "subscriber", props=((Property.RECEIVE_MAXIMUM, 3),))
        subscriber.subscribe(("t", 2))
        publisher = self.passing(port)
        for number, qos in enumerate((1, 2, 2, 1)):
            publisher.publish("t", f"{number}", qos=qos)
        sent = [subscriber.expect(Kind.PUBLISH) for _ in range(3)]
        subscriber.send(acknowledge(Kind.PUBREC, sent[1].packet_id))
        subscriber.expect(Kind.PUBREL)
        port = home.restart()
        again = self.client(port, "subscriber", props=((Property.RECEIVE_MAXIMUM, 3),))
        came = [again.receive() for _ in range(3)]
        expected = [(Kind.PUBLISH, sent[0].packet_id), (Kind.PUBREL, sent[1].packet_id), (Kind.PUBLISH, sent[2].packet_id)]
        self.assertEqual([(one.kind, one.packet_id) for one in came], expected)
        self.assertEqual([one.dup for one in came if one.kind == Kind.PUBLISH], [True, True])
        self.assertEqual([one.payload for one in came], [b"0", None, b"2"])
        again.send(acknowledge(Kind.PUBCOMP, sent[1].packet_id))
        last = again.expect(Kind.PUBLISH)
        self.assertEqual((last.payload, last.dup), (b"3", False))

    def test_a_publication_at_qos_2_is_not_taken_twice(self):
        """[MQTT-4.3.3-10]: its PUBREC was lost with the node."""
        home = Home(self)
        port = home.start()
        self.client(port, "subscriber").subscribe(("t", 2))
        publisher = self.client(port, "publisher")
        for packet_id in (5, 6):
            publisher.send(publish("t", f"{packet_id}", 2, packet_id))
            publisher.expect(Kind.PUBREC)
        publisher.send(acknowledge(Kind.PUBREL, 6))
        publisher.expect(Kind.PUBCOMP)
        port = home.restart()
        publisher = self.client(port, "publisher")
        publisher.send(publish("t", "5", 2, 5, dup=True))
        self.assertLess(publisher.expect(Kind.PUBREC).reason_code, 0x80)
        for packet_id, reason_code in ((5, 0), (6, NO_PACKET_IDENTIFIER)):
            publisher.send(acknowledge(Kind.PUBREL, packet_id))
            self.assertEqual(publisher.expect(Kind.PUBCOMP).reason_code, reason_code)
        subscriber = self.client(port, "subscriber")
        self.assertEqual([subscriber.take_message().payload for _ in range(2)], [b"5", b"6"])
        self.assertEqual(subscriber.ping(), [])

    def test_retained_messages_stay_and_removed_ones_stay_away(self):
        home = Home(self)
        port = home.start("--workers", 2)
        publisher = self.passing(port)
        for topic in ("a", "b", "c"):
            publisher.publish(f"kept/{topic}", topic, qos=1, retain=True, props=((Property.USER_PROPERTY, ("k", "v")),))
        publisher.publish("kept/a", "new", qos=1, retain=True)
        publisher.publish("kept/b", "", qos=1, retain=True)
        publisher.publish("kept/d", "d", qos=1, retain=True, props=((Property.MESSAGE_EXPIRY_INTERVAL, 1),))
        home.kill()
        # The passing of time is what is tested.
        time.sleep(1.2)
        port = home.start("--workers", 1)
        subscriber = self.passing(port)
        subscriber.subscribe(("kept/+", 1))
        came = sorted((subscriber.take_message() for _ in range(2)), key=lambda one: one.topic)
        self.assertEqual([(one.topic, one.payload, one.retain) for one in came],
                         [("kept/a", b"new", True), ("kept/c", b"c", True)])
        self.assertEqual(came[1].values(Property.USER_PROPERTY), [("k", "v")])
        self.assertEqual(subscriber.ping(), [])

    def test_wills_go_out_after_their_delay_unless_the_client_comes_back(self):
        """[MQTT-3.1.2-8] [MQTT-3.1.3-9]: the death of the node is the end of the connection."""
        home = Home(self)
        port = home.start()
        self.client(port, "watcher").subscribe(("will/#", 1))
        for name, delay in (("soon", 1), ("late", 2), ("returned", 2)):
            will = Will(f"will/{name}", qos=1, properties=((Property.WILL_DELAY_INTERVAL, delay),))
            self.client(port, name, will=will)
        port = home.restart()
        self.client(port, "returned")
        watcher = self.client(port, "watcher")
        self.assertEqual([watcher.take_message().topic for _ in range(2)], ["will/soon", "will/late"])
        self.assertEqual(watcher.ping(), [])

    def test_sessions_expire_as_long_after_their_client_went_as_they_should(self):
        """[MQTT-3.1.2-23]: also while no node is there."""
        home = Home(self)
        port = home.start()
        for name, expiry in (("brief", 1), ("long", 1000), ("none", 0)):
            self.client(port, name, expiry=expiry).disconnect()
        home.kill()
        # The passing of time is what is tested.
        time.sleep(1.2)
        port = home.start()
        for name, present in (("brief", False), ("long", True), ("none", False)):
            with self.subTest(name):
                self.assertEqual(self.client(port, name).connack.session_present, present)

    def test_a_session_that_was_ended_stays_ended(self):
        home = Home(self)
        port = home.start()
        self.client(port, "client").subscribe(("t", 1))
        self.passing(port, "client").ping()
        port = home.restart()
        self.assertFalse(self.client(port, "client").connack.session_present)

    def test_without_sync_nothing_is_kept(self):
        """`none` promises nothing, and says so by having nothing."""
        home = Home(self)
        port = home.start("--sync", "none")
        self.client(port, "client").ping()
        port = home.restart("--sync", "none")
        self.assertFalse(self.client(port, "client").connack.session_present)


class Files(DurabilityCases):
    """What happened to the files meanwhile."""

    def fill(self, port, first, count=20):
        publisher = self.passing(port)
        for number in range(first, first + count):
            publisher.publish("t", f"{number}", qos=1)

    def numbers(self, port):
        """What a subscriber has got in its queue."""
        self.passing(port, "marker").publish("t", "end", qos=1)
        subscriber = self.client(port, "subscriber")
        self.assertTrue(subscriber.connack.session_present)
        came = []
        while (one := subscriber.take_message().payload) != b"end":
            came.append(int(one))
        return came

    def test_a_torn_end_of_the_log_is_cut_off_with_a_warning(self):
        """A loss of power leaves a part of the last write; what came before it is there."""
        cases = [
            ("cut", lambda path, used: os.truncate(path, used - 7)),
            ("garbage at the end", lambda path, used: write_at(path, used, random.Random(7).randbytes(1000))),
            ("half of the last record", lambda path, used: write_at(path, used - 10, b"\xff" * 10)),
        ]
        for name, damage in cases:
            with self.subTest(name):
                home = Home(self)
                port = home.start("--workers", 1)
                self.client(port, "subscriber").subscribe(("t", 1))
                self.fill(port, 0)
                home.kill()
                path = home.newest_segment()
                damage(path, len(path.read_bytes().rstrip(b"\0")))
                port = home.start("--workers", 1)
                came = self.numbers(port)
                self.assertEqual(came, list(range(len(came))))
                self.assertGreaterEqual(len(came), 19)
                self.assertRegex(home.kill(), rf"WARN.*{re.escape(str(path))}.*cut off")

    def test_damage_in_the_middle_is_refused_with_the_file_and_what_to_do(self):
        home = Home(self)
        port = home.start("--workers", 1)
        self.client(port, "subscriber").subscribe(("t", 1))
        self.fill(port, 0)
        # Synced, and the records behind say so.
        home.stop()
        port = home.start("--workers", 1)
        self.fill(port, 20)
        home.kill()
        path = home.newest_segment()
        whole = path.read_bytes()
        write_at(path, whole.index(b"10", SEGMENT_HEADER), b"\xff\xff")
        damaged = path.read_bytes()
        words = home.refusal("--workers", 1)
        for word in (str(path), "damaged at byte", "restore the data directory from a backup"):
            self.assertIn(word, words)
        self.assertEqual(path.read_bytes(), damaged, "left alone")
        path.write_bytes(whole)
        self.assertEqual(self.numbers(home.start("--workers", 1)), list(range(40)))

    def test_a_directory_that_is_in_use_or_of_another_format_is_refused(self):
        home = Home(self)
        home.start()
        words = home.refusal()
        for word in (str(home.path), "in use by another"):
            self.assertIn(word, words)
        home.stop()
        (home.path / "data" / "format").write_text("99\n")
        words = home.refusal()
        for word in ("format", "99", "start the version that wrote it"):
            self.assertIn(word, words)


def write_at(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


class FullDisk(DurabilityCases):
    """A small disk of its own, where one can be mounted."""

    numbers = itertools.count(1)

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="thicket-full-"))
        self.addCleanup(self.path.rmdir)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=96m", "none", self.path], capture_output=True, text=True, check=False
        )
        if mounted.returncode != 0:
            self.skipTest(f"no disk can be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", self.path], check=True)

    def test_a_full_disk_refuses_what_it_cannot_keep_and_serves_again_when_there_is_room(self):
        home = Home(self, self.path)
        port = home.start("--workers", 1)
        keeper = self.client(port, "keeper")
        keeper.subscribe(("t", 2))
        keeper.disconnect()
        publisher = self.client(port, "publisher")
        taken = 0
        with self.subTest("refused when it is full"):
            self.fill_disk()
            codes = {}
            while not codes:
                for qos in (1, 2):
                    code = publisher.publish("t", self.payload(taken), qos=qos)
                    if code >= 0x80:
                        codes[qos] = code
                    else:
                        taken += 1
                self.assertLess(taken, 2000, "the disk never filled up")
            self.assertEqual(set(codes.values()), {QUOTA_EXCEEDED})
        with self.subTest("and balancers are told"):
            self.assertIsNone(home.node.ask("/v1/health/ready"))
            self.assertIn(b"\nthicket_disk_full 1\n", home.node.ask("/metrics"))
        with self.subTest("3.1.1 has no word for it"):
            older = self.client(port, "older", version=4, clean_start=True)
            older.send(publish("t", self.payload(-1), 1, 1, version=4))
            self.assertEqual(older.until_closed(), [])
        with self.subTest("what nobody has to keep goes on"):
            self.assertLess(publisher.publish("nobody", self.payload(0), qos=1), 0x80)
            self.assertEqual(publisher.ping(), [])
        (self.path / "filler").unlink()
        wait_until(lambda: publisher.publish("t", self.payload(taken), qos=1) < 0x80, "service to resume")
        taken += 1
        wait_until(lambda: home.node.ask("/v1/health/ready") is not None, "the node to be ready again")
        self.fill_disk()
        home.kill()
        with self.subTest("a start needs a little room"):
            self.assertIn("No space left", home.refusal("--workers", 1))
        (self.path / "filler").unlink()
        port = home.start("--workers", 1)
        self.assertLess(self.client(port, "publisher").publish("t", "end", qos=1), 0x80)
        came = []
        again = self.client(port, "keeper")
        while (one := again.take_message().payload) != b"end":
            came.append(int(one.rstrip(b".")))
        self.assertEqual(came, list(range(taken)))
        home.stop()

    def test_a_disk_that_queues_have_filled_has_room_again_when_they_are_empty(self):
        """Nothing but the log takes it: what was delivered is given back, and a node that refuses large messages says that it is not ready."""
        home = Home(self, self.path)
        port = home.start("--workers", 1, "--queue-bytes", "1GiB")
        keeper = self.client(port, "keeper")
        keeper.subscribe(("t", 1))
        keeper.disconnect()
        publisher = self.client(port, "publisher")
        large, taken = b"x" * 900_000, 0
        while publisher.publish("t", large, qos=1) < 0x80:
            taken += 1
            self.assertLess(taken, 200, "the disk never filled up")
        wait_until(lambda: home.node.ask("/v1/health/ready") is None, "balancers to be told")
        keeper = self.client(port, "keeper")
        for _ in range(taken):
            self.assertEqual(keeper.take_message().payload, large)
        wait_until(lambda: publisher.publish("t", large, qos=1) < 0x80, "service to resume")
        wait_until(lambda: home.node.ask("/v1/health/ready") is not None, "the node to be ready again")
        home.stop()

    def test_sessions_subscriptions_and_retained_messages_that_cannot_be_kept_are_refused(self):
        """Those that are there go on, and clients may leave and come back."""
        home = Home(self, self.path)
        port = home.start("--workers", 2)
        client = self.client(port, "client")
        client.subscribe(("old", 1))
        self.fill_disk()

        def refused():
            """What is asked for in vain; each time for something new."""
            name = f"new/{next(self.numbers)}"
            # Not to what it publishes, in case that is not refused yet.
            client.send(subscribe(9, (f"{name}/other", 1)))
            with RawClient(port) as new:
                return {
                    "subscription": client.expect_answer(Kind.SUBACK, 9).codes == [QUOTA_EXCEEDED],
                    "retained": client.publish(name, "x", qos=1, retain=True) == QUOTA_EXCEEDED,
                    "session": new.try_connect(name, props=KEPT).reason_code == QUOTA_EXCEEDED,
                }

        wait_until(lambda: all(refused().values()), "all to be refused")
        for number in range(20):
            client.disconnect()
            client = self.client(port, "client")
            self.assertTrue(client.connack.session_present)
            self.assertLess(client.publish("old", f"{number}", qos=1), 0x80)
            self.assertEqual(client.take_message().payload, b"%d" % number)
        self.passing(port).ping()
        (self.path / "filler").unlink()
        wait_until(lambda: not any(refused().values()), "all to be granted again")
        port = home.restart("--workers", 2)
        self.assertTrue(self.client(port, "client").connack.session_present)

    def payload(self, number):
        return f"{number}".ljust(16000, ".")

    def fill_disk(self):
        """To the last byte."""
        with contextlib.suppress(OSError), (self.path / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass


if __name__ == "__main__":
    unittest.main()
