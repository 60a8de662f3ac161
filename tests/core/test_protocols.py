"""Objects that users supply are checked for their methods."""

from typing import Any

from apcore import Executor as ApcoreExecutor
from apcore import Registry as ApcoreRegistry
from apcore_a2a_core import Authenticator, Executor, Registry, missing_methods
from apcore_a2a_core.data import Task
from apcore_a2a_server.store import TaskListResult, TaskRecord, TaskStore


def test_registry_and_executor_of_apcore_satisfy_the_protocols(registry: ApcoreRegistry) -> None:
    executor = ApcoreExecutor(registry)
    assert isinstance(registry, Registry)
    assert isinstance(executor, Executor)
    assert missing_methods(registry, Registry) == []
    assert missing_methods(executor, Executor) == []


def test_missing_methods_are_listed_in_the_order_of_the_protocol() -> None:
    class IncompleteStore:
        get = None

        def save(self, record: Any) -> None: ...

    assert missing_methods(IncompleteStore(), TaskStore) == [
        *("get", "list", "delete"),
        *("save_push_config", "get_push_config", "delete_push_config"),
    ]
    assert missing_methods(IncompleteStore(), Authenticator) == ["authenticate"]


def test_a_task_record_has_defaults_for_all_but_its_task() -> None:
    record = TaskRecord(Task(id="t"))
    assert (record.owner, record.skill, record.version, record.resume) == ("", "", 0, None)
    assert TaskListResult([record], None).records == [record]
