"""The contract's golden vectors and schemas, and that messages are CloudEvents by the official SDK."""

import json
import re
from pathlib import Path

import pytest
import yaml
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event
from jsonschema import Draft202012Validator

from dueline_contract import NewerVersion, NotATask, Outcome, Task

CONTRACT = Path(__file__).parents[2] / "docs" / "contract"


def document(path):
    return json.loads((CONTRACT / path).read_text())


def schema(name):
    loaded = document(f"schemas/{name}.json")
    Draft202012Validator.check_schema(loaded)
    return Draft202012Validator(loaded, format_checker=Draft202012Validator.FORMAT_CHECKER)


def vectors(name, member):
    found = document(f"vectors/{name}.json")[member]
    assert found
    return [pytest.param(vector, id=vector["name"]) for vector in found]


def record(vector):
    headers = [(name, value.encode()) for name, value in vector["record"]["headers"]]
    value = vector["record"].get("value")
    return headers, None if value is None else value.encode()


def as_object(vector):
    return dict(vector["record"]["headers"])


@pytest.mark.parametrize("vector", vectors("task", "valid"))
def test_task_messages_read_as_the_vectors_say(vector):
    task = Task.read(*record(vector))
    read = {name: getattr(task, name) for name in vector["reads"]}
    assert read == vector["reads"]
    schema("task.headers").validate(as_object(vector))


@pytest.mark.parametrize("vector", vectors("task", "invalid"))
def test_broken_task_messages_are_refused(vector):
    expected = NewerVersion if vector["error"] == "newer" else NotATask
    with pytest.raises(expected) as refused:
        Task.read(*record(vector))
    if expected is NotATask:
        assert vector["header"] in str(refused.value)
    said = vector.get("beyond_schema") or list(schema("task.headers").iter_errors(as_object(vector)))
    assert said


def task_of(reads):
    return Task(
        source=reads["instance"], task_id=reads["task_id"], kind="close_order", key="1001",
        key_hash=reads["key_hash"], generation=reads["generation"], attempt=reads["attempt"], delivery=1,
        due_at="", claimed_at="", traceparent=None, payload=None,
    )  # fmt: skip


@pytest.mark.parametrize("vector", vectors("outcome", "valid"))
def test_outcomes_are_written_as_the_vectors_say(vector):
    headers, value = record(vector)
    schema("outcome.headers").validate(as_object(vector))
    schema("outcome.body").validate(json.loads(value))
    if vector["writes"]:
        reads = vector["reads"]
        outcome = Outcome(reads["outcome"], reads["reason"], reads["retry_after_ms"])
        assert outcome.headers(task_of(reads), "o-1", "/billing") == headers
        assert outcome.body() == value


@pytest.mark.parametrize("vector", vectors("outcome", "invalid"))
def test_broken_outcomes_break_a_schema_too(vector):
    _, value = record(vector)
    if vector.get("beyond_schema"):
        return
    if vector["error"] != "body":
        assert list(schema("outcome.headers").iter_errors(as_object(vector)))
        return
    try:
        body = json.loads(value or b"")
    except ValueError:
        return
    assert list(schema("outcome.body").iter_errors(body))


@pytest.mark.parametrize("vector", vectors("letter", "valid"))
def test_letters_match_their_schema(vector):
    schema("letter.headers").validate(as_object(vector))


@pytest.mark.parametrize("vector", vectors("letter", "invalid"))
def test_broken_letters_break_their_schema(vector):
    assert list(schema("letter.headers").iter_errors(as_object(vector)))


@pytest.mark.parametrize("arguments", [("finished",), ("retry",), ("dead", " "), ("done", None, 5), ("retry", "x", -1)])
def test_an_outcome_that_would_be_refused_cannot_be_made(arguments):
    with pytest.raises(ValueError):
        Outcome(*arguments)


@pytest.mark.parametrize("name", ["task", "outcome"])
def test_messages_are_cloudevents(name):
    """By the CloudEvents SDK: the Kafka protocol binding, binary mode."""
    for vector in document(f"vectors/{name}.json")["valid"]:
        headers = {header: value.encode() for header, value in vector["record"]["headers"]}
        value = vector["record"]["value"]
        message = KafkaMessage(headers, vector["record"]["key"], b"null" if value is None else value.encode())
        event = from_binary_event(message)
        assert event.get_id() == headers["ce_id"].decode()
        assert event.get_type() in ("dueline.task.due", "dueline.task.outcome")
        for attribute in headers:
            if attribute.startswith("ce_"):
                assert re.fullmatch("ce_[a-z0-9]{1,20}", attribute)


def test_the_asyncapi_document_is_whole():
    asyncapi = yaml.safe_load((CONTRACT / "asyncapi.yaml").read_text())
    assert asyncapi["asyncapi"].startswith("3.")

    def references(node):
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for child in node.values():
                yield from references(child)
        elif isinstance(node, list):
            for child in node:
                yield from references(child)

    for reference in references(asyncapi):
        if reference.startswith("#/"):
            node = asyncapi
            for part in reference[2:].split("/"):
                node = node[part]
        else:
            assert (CONTRACT / reference).is_file(), reference
