"""Task states with their names and transitions (FR-TSK-001), and the roles of messages."""

from .data import Role, TaskState

SUBMITTED = TaskState.TASK_STATE_SUBMITTED
WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
REJECTED = TaskState.TASK_STATE_REJECTED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED

TERMINAL = frozenset({COMPLETED, FAILED, CANCELED, REJECTED})
PAUSED = frozenset({INPUT_REQUIRED})
SETTLED = TERMINAL | PAUSED
"""States of a task that has ended or waits for input."""
OPEN = frozenset({SUBMITTED, WORKING}) | PAUSED
"""States of a task that has not ended."""

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    SUBMITTED: frozenset({WORKING, CANCELED, FAILED, REJECTED}),
    WORKING: frozenset({COMPLETED, FAILED, CANCELED, REJECTED, INPUT_REQUIRED}),
    INPUT_REQUIRED: frozenset({WORKING, CANCELED, FAILED, REJECTED, INPUT_REQUIRED}),
}
"""The states that may follow each state; none may follow a terminal one."""

NAMES: dict[TaskState, str] = {
    state: state.removeprefix("TASK_STATE_").lower().replace("_", "-") for state in TaskState
} | {TaskState.TASK_STATE_UNSPECIFIED: "unknown"}
"""Names of the states in A2A 0.3, in metrics and in logs."""
NUMBERS = {state: number for number, state in enumerate(TaskState)}
"""Numbers of the states in the protocol's `.proto` file, and in durable stores."""
STATES = {name: state for state, name in NAMES.items()} | dict(TaskState.__members__)
"""States by their names in A2A 0.3 and 1.0."""
AGENT = Role.ROLE_AGENT
ROLES = {"user": Role.ROLE_USER, "agent": AGENT} | dict(Role.__members__)
