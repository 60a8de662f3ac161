"""Push configs of tasks, managed in each dialect and read in one format."""

from typing import Any

from .checking_client import Agent, Answer, Json

UNREACHABLE = "http://127.0.0.1:9/hook"
"""A URL without a listener, for webhooks that get no notification."""


class Hooks:
    """The push configs of tasks, managed in the dialect of *agent*."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def set(self, task_id: str, **config: Any) -> Answer:
        return self.agent.ask("push set", self.create_params(task_id, **config))

    def get(self, task_id: str, config_id: str = "") -> Answer:
        return self.agent.ask("push get", self.params_of(task_id, config_id))

    def list_all(self, task_id: str) -> Answer:
        return self.agent.ask("push list", self.params_of(task_id))

    def delete(self, task_id: str, config_id: str = "") -> Answer:
        return self.agent.ask("push delete", self.params_of(task_id, config_id))

    def create_params(self, task_id: str, **config: Any) -> Json:
        """Return the params that create a push config."""
        translated = self.in_dialect(config)
        nested = translated if self.agent.modern else {"pushNotificationConfig": translated}
        return {"taskId": task_id, **nested}

    def params_of(self, task_id: str, config_id: str = "") -> Json:
        """Return the params that name a task and optionally one of its push configs."""
        task, config = ("taskId", "id") if self.agent.modern else ("id", "pushNotificationConfigId")
        return {task: task_id, **({config: config_id} if config_id else {})}

    def send_params(self, skill: str, *parts: Any, hook: Json, **members: Any) -> Json:
        """Return the params of a send that includes a push config."""
        name = "taskPushNotificationConfig" if self.agent.modern else "pushNotificationConfig"
        options = {"configuration": {name: self.in_dialect(hook)}}
        return {**self.agent.params(skill, *parts, **members), **options}

    def in_dialect(self, config: Json) -> Json:
        """Translate a push config of 1.0 to the agent's dialect."""
        auth = config.get("authentication")
        if self.agent.modern or not isinstance(auth, dict) or "scheme" not in auth:
            return config
        other_members = {name: value for name, value in auth.items() if name != "scheme"}
        return {**config, "authentication": {"schemes": [auth["scheme"]], **other_members}}

    def as_shown(self, task_id: str, **config: Any) -> Json:
        """Return an active push config as responses show it."""
        if self.agent.modern:
            return {"taskId": task_id, **config}
        return {**self.create_params(task_id, **config), "status": "active"}

    def of(self, task_id: str) -> list[Json]:
        """Return all push configs of a task in the format of 1.0."""
        result = self.list_all(task_id).result
        return [plain(config) for config in (result["configs"] if self.agent.modern else result)]

    def ids(self, task_id: str) -> list[str]:
        return [config["id"] for config in self.of(task_id)]


def plain(response_config: Json) -> Json:
    """Translate a push config of either version to 1.0."""
    config: Json = {**response_config, **response_config.get("pushNotificationConfig", {})}
    auth = dict(config.get("authentication", {}))
    for scheme in auth.pop("schemes", ()):
        config["authentication"] = {"scheme": scheme, **auth}
    members = ("taskId", "id", "url", "token", "authentication")
    return {name: config[name] for name in members if name in config}
