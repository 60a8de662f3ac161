"""The states of a task and the ways between them (FR-TSK-001, A2A 1.0 §4.1.3)."""

from a2a.types import Role, TaskState

SUBMITTED = TaskState.TASK_STATE_SUBMITTED
WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
REJECTED = TaskState.TASK_STATE_REJECTED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED

TERMINAL = frozenset({COMPLETED, FAILED, CANCELED, REJECTED})
PAUSED = frozenset({INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
SETTLED = TERMINAL | PAUSED
RUNNING = frozenset({SUBMITTED, WORKING})

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    SUBMITTED: frozenset({WORKING, CANCELED, FAILED, REJECTED}),
    WORKING: frozenset({COMPLETED, FAILED, CANCELED, REJECTED, INPUT_REQUIRED}),
    INPUT_REQUIRED: frozenset({WORKING, CANCELED, FAILED, REJECTED, INPUT_REQUIRED}),
}

NAMES: dict[int, str] = {
    state: name.removeprefix("TASK_STATE_").lower().replace("_", "-")
    for name, state in TaskState.items()
}
NAMES[TaskState.TASK_STATE_UNSPECIFIED] = "unknown"
STATES = {**{name: state for state, name in NAMES.items()}, **dict(TaskState.items())}
ROLES = {"user": Role.ROLE_USER, "agent": Role.ROLE_AGENT, **dict(Role.items())}
