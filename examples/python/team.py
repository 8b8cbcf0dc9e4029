"""A downstream team: charges accounts when dueline says that it is time.

It shares nothing with dueline but the broker. Its own database (SQLite here) remembers which keys it has
handled, in the same transaction as the charge: a message that comes twice has one effect.

    python team.py --brokers 127.0.0.1:9092 --prefix dueline --queue billing --tiers 10s,1m \
        --group billing-team --ledger ledger.db
"""

import argparse
import signal
import sqlite3
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from dueline_contract import NewerVersion, NotATask, Outcome, Task

BATCH = 500
SOURCE = "/billing-team"


class Refused(Exception):
    """The charge can never succeed."""


class Busy(Exception):
    """The charge may succeed later."""


class Ledger:
    """The team's own database: charges, and the keys that were handled."""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("create table if not exists handled (key_hash text primary key) without rowid")
        self.db.execute("create table if not exists charge (account text, cents integer)")

    def once(self, task):
        """Charges, unless this key was charged before. One transaction for both."""
        self.db.execute("begin immediate")
        try:
            new = self.db.execute(
                "insert into handled values (?) on conflict do nothing", (task.key_hash,)
            ).rowcount
            if new:
                self.charge(task)
            self.db.execute("commit")
        except BaseException:
            self.db.execute("rollback")
            raise

    def charges(self):
        return self.db.execute("select account, cents from charge order by account").fetchall()

    def charge(self, task):
        """The business: what you write instead."""
        order = task.payload or {}
        if "cents" not in order:
            raise Refused("the order has no amount")
        # An account that answers at the second try only, to show a retry.
        if order.get("busy") and task.attempt == 0:
            raise Busy("the bank does not answer")
        self.db.execute("insert into charge values (?, ?)", (task.key, order["cents"]))


def handle(ledger, task):
    """One task to one outcome."""
    if (task.payload or {}).get("cents") == 0:
        return Outcome("skipped")
    try:
        ledger.once(task)
        return Outcome("done")
    except Refused as refused:
        return Outcome("dead", reason=str(refused))
    except Busy as busy:
        return Outcome("retry", reason=str(busy))


class Team:
    """Reads tasks, answers outcomes; offsets pass only what the broker has acknowledged an outcome of."""

    def __init__(self, arguments):
        brokers = {"bootstrap.servers": arguments.brokers}
        self.outcomes = f"{arguments.prefix}.{arguments.queue}.outcomes"
        self.consumer = Consumer(
            brokers
            | {
                "group.id": arguments.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                # another member takes over a dead one's partitions after so long
                "session.timeout.ms": 6_000,
            }
        )
        # idempotent, and keys go where Java's producers send them
        self.producer = Producer(brokers | {"enable.idempotence": True, "partitioner": "murmur2_random"})
        self.ledger = Ledger(arguments.ledger)
        self.consumer.subscribe(
            [f"{arguments.prefix}.{arguments.queue}.{tier}" for tier in arguments.tiers.split(",")]
        )
        self.running = True

    def stop(self, *_):
        self.running = False

    def run(self):
        while self.running:
            messages = self.consumer.consume(BATCH, timeout=0.5)
            if messages:
                self.answer(messages)
        self.consumer.close()

    def answer(self, messages):
        errors = []
        done = {}
        for message in messages:
            if message.error():
                print(f"kafka: {message.error()}", file=sys.stderr)
                continue
            at = (message.topic(), message.partition())
            if done.get(at) is None and at in done:
                continue  # behind a message that is left where it is
            try:
                task = Task.read(message.headers(), message.value())
            except NotATask as error:
                print(f"{at} {message.offset()}: {error}", file=sys.stderr)
            except NewerVersion as error:
                print(f"{at} {message.offset()}: {error}", file=sys.stderr)
                self.consumer.seek(TopicPartition(*at, message.offset()))
                done[at] = None
                continue
            else:
                self.say(task, handle(self.ledger, task), errors)
            done[at] = message.offset() + 1
        if self.producer.flush(30) or errors:
            # Nothing is committed: the messages come again, and the ledger knows what was done.
            raise KafkaException(f"outcomes were not acknowledged: {errors[:3]}")
        offsets = [TopicPartition(*at, offset) for at, offset in done.items() if offset is not None]
        if offsets:
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def say(self, task, outcome, errors):
        def report(error, _):
            if error:
                errors.append(error)

        outcome_id = f"{task.task_id}-{task.generation}-{task.attempt}-{outcome.outcome}"
        self.producer.produce(
            self.outcomes,
            key=task.key,
            value=outcome.body(),
            headers=outcome.headers(task, outcome_id, SOURCE),
            on_delivery=report,
        )
        self.producer.poll(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("brokers", "prefix", "queue", "tiers", "group", "ledger"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--charges", action="store_true", help="print what was charged, and end")
    arguments = parser.parse_args()
    if arguments.charges:
        for account, cents in Ledger(arguments.ledger).charges():
            print(account, cents)
        return
    team = Team(arguments)
    signal.signal(signal.SIGTERM, team.stop)
    signal.signal(signal.SIGINT, team.stop)
    team.run()


if __name__ == "__main__":
    main()
