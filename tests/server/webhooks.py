"""Webhooks of tasks, asked for in each way and read in one form."""

from typing import Any

from .asking import Agent, Answer, Json

NOBODY = "http://127.0.0.1:9/hook"
"""Where nobody listens: for webhooks that are never told anything."""


class Hooks:
    """The webhooks of tasks, asked for in the way of *agent*."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def set(self, task_id: str, **config: Any) -> Answer:
        return self.agent.ask("push set", self.setting(task_id, **config))

    def get(self, task_id: str, config_id: str = "") -> Answer:
        return self.agent.ask("push get", self.naming(task_id, config_id))

    def every(self, task_id: str) -> Answer:
        return self.agent.ask("push list", self.naming(task_id))

    def delete(self, task_id: str, config_id: str = "") -> Answer:
        return self.agent.ask("push delete", self.naming(task_id, config_id))

    def setting(self, task_id: str, **config: Any) -> Json:
        """The params of a set."""
        spelled = self.spelled(config)
        nested = spelled if self.agent.modern else {"pushNotificationConfig": spelled}
        return {"taskId": task_id, **nested}

    def naming(self, task_id: str, config_id: str = "") -> Json:
        """The params that name a task, and one of its webhooks."""
        task, config = ("taskId", "id") if self.agent.modern else ("id", "pushNotificationConfigId")
        return {task: task_id, **({config: config_id} if config_id else {})}

    def sending(self, skill: str, *parts: Any, hook: Json, **members: Any) -> Json:
        """The params of a send whose task shall tell a webhook."""
        name = "taskPushNotificationConfig" if self.agent.modern else "pushNotificationConfig"
        wish = {"configuration": {name: self.spelled(hook)}}
        return {**self.agent.params(skill, *parts, **members), **wish}

    def spelled(self, config: Json) -> Json:
        """A webhook of 1.0 as the version writes it."""
        known = config.get("authentication")
        if self.agent.modern or not isinstance(known, dict) or "scheme" not in known:
            return config
        rest = {name: value for name, value in known.items() if name != "scheme"}
        return {**config, "authentication": {"schemes": [known["scheme"]], **rest}}

    def shown(self, task_id: str, **config: Any) -> Json:
        """What an answer holds of a webhook that works."""
        if self.agent.modern:
            return {"taskId": task_id, **config}
        return {**self.setting(task_id, **config), "status": "active"}

    def of(self, task_id: str) -> list[Json]:
        """All webhooks of a task, as 1.0 writes them."""
        result = self.every(task_id).result
        return [plain(config) for config in (result["configs"] if self.agent.modern else result)]

    def ids(self, task_id: str) -> list[str]:
        return [config["id"] for config in self.of(task_id)]


def plain(shown: Json) -> Json:
    """A webhook of either version as 1.0 writes it."""
    config: Json = {**shown, **shown.get("pushNotificationConfig", {})}
    known = dict(config.get("authentication", {}))
    for scheme in known.pop("schemes", ()):
        config["authentication"] = {"scheme": scheme, **known}
    members = ("taskId", "id", "url", "token", "authentication")
    return {name: config[name] for name in members if name in config}
