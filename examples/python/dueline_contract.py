"""The contract of docs/contract in Python: reading task messages, writing outcomes.

Nothing here knows a Kafka client: headers are lists of (name, bytes), as every client has them.
"""

import json
import re
from dataclasses import dataclass

VERSION = 1
TASK_TYPE = "dueline.task.due"
OUTCOME_TYPE = "dueline.task.outcome"
OUTCOMES = ("done", "skipped", "retry", "dead", "working")
MAX_RETRY_AFTER_MS = 7 * 86_400_000


class NotATask(ValueError):
    """The record is broken: no task message. Nothing can be said of it; pass it."""


class NewerVersion(ValueError):
    """The record is of a later version of the contract: leave it where it is, and upgrade."""


def _texts(headers):
    texts = {}
    for name, value in headers or []:
        # Of two headers of one name the last counts.
        texts[name] = value
    return texts


def _text(texts, name):
    try:
        return texts[name].decode()
    except KeyError:
        raise NotATask(f"header {name} is missing") from None
    except (AttributeError, UnicodeDecodeError):
        raise NotATask(f"header {name} is no text") from None


def _number(texts, name, bits=31):
    text = _text(texts, name)
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) >= 1 << bits:
        raise NotATask(f"header {name} is no number: {text[:40]!r}")
    return int(text)


def _instant(texts, name):
    text = _text(texts, name)
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text):
        raise NotATask(f"header {name} is no instant: {text[:40]!r}")
    return text


@dataclass(frozen=True)
class Task:
    """One delivery of one try of a task."""

    source: str  #: the instance it comes from
    task_id: int
    kind: str
    key: str
    key_hash: str  #: what to deduplicate by
    generation: int
    attempt: int  #: failed attempts before this one
    delivery: int  #: above 1 it may be a duplicate
    due_at: str  #: the deadline as asked for, RFC 3339
    claimed_at: str
    traceparent: str | None
    payload: object  #: what the task was scheduled with, or None

    @classmethod
    def read(cls, headers, value):
        """Reads a record. Raises NotATask, or NewerVersion for one that must be left in place."""
        texts = _texts(headers)
        if _number(texts, "ce_duelineversion") > VERSION:
            raise NewerVersion("upgrade this consumer: the message is of a later version")
        if _text(texts, "ce_type") != TASK_TYPE:
            raise NotATask(f"header ce_type is not {TASK_TYPE}")
        key_hash = _text(texts, "ce_keyhash")
        if not re.fullmatch(r"[0-9a-fA-F]{32}", key_hash):
            raise NotATask("header ce_keyhash is not 32 hexadecimal digits")
        try:
            payload = None if value is None else json.loads(value)
        except ValueError:
            raise NotATask("the value is not JSON") from None
        return cls(
            source=_text(texts, "ce_source"),
            task_id=_number(texts, "ce_taskid", bits=63),
            kind=_text(texts, "ce_kind"),
            key=_text(texts, "ce_subject"),
            key_hash=key_hash,
            generation=_number(texts, "ce_generation"),
            attempt=_number(texts, "ce_attempt"),
            delivery=_number(texts, "ce_delivery"),
            due_at=_instant(texts, "ce_time"),
            claimed_at=_instant(texts, "ce_claimedat"),
            traceparent=_text(texts, "traceparent") if "traceparent" in texts else None,
            payload=payload,
        )


@dataclass(frozen=True)
class Outcome:
    """What became of one try."""

    outcome: str  #: one of OUTCOMES
    reason: str | None = None  #: needed by retry and dead
    retry_after_ms: int | None = None  #: with retry: the least pause before the next try

    def __post_init__(self):
        if self.outcome not in OUTCOMES:
            raise ValueError(f"{self.outcome!r} is none of {OUTCOMES}")
        if self.outcome in ("retry", "dead") and not (self.reason or "").strip():
            raise ValueError(f"{self.outcome} needs a reason")
        if self.retry_after_ms is not None and (
            self.outcome != "retry" or not 0 <= self.retry_after_ms <= MAX_RETRY_AFTER_MS
        ):
            raise ValueError("retry_after_ms is 0 to 604800000, with retry only")

    def headers(self, task, outcome_id, source):
        """The outcome's headers. `outcome_id` is the same whenever this outcome is sent again."""
        return [
            ("ce_specversion", b"1.0"),
            ("ce_id", outcome_id.encode()),
            ("ce_source", source.encode()),
            ("ce_type", OUTCOME_TYPE.encode()),
            ("ce_duelineversion", str(VERSION).encode()),
            ("ce_instance", task.source.encode()),
            ("ce_taskid", str(task.task_id).encode()),
            ("ce_keyhash", task.key_hash.encode()),
            ("ce_generation", str(task.generation).encode()),
            ("ce_attempt", str(task.attempt).encode()),
            ("content-type", b"application/json"),
        ]

    def body(self):
        """The outcome's value."""
        members = {"outcome": self.outcome, "reason": self.reason, "retry_after_ms": self.retry_after_ms}
        said = {name: value for name, value in members.items() if value is not None}
        return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
