"""Serve a folder of modules with the installed apcore and use them; print a JSON line per step.

Runs as a module from the repository's root, in an environment with any version of apcore. The
folder is its argument.
"""

import json
import os
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.wire import Json, Rpc
from tests.serving import PATIENCE, running


def send_params(skill: str, content: Json | str, *, modern: bool, **more: Any) -> Json:
    """Return the params of a send, in 1.0 if *modern*, else in 0.3."""
    kind = "text" if isinstance(content, str) else "data"
    part = {kind: content} if modern else {"kind": kind, kind: content}
    message = {"messageId": "m1", "role": "ROLE_USER" if modern else "user", "parts": [part]}
    if not modern:
        message["kind"] = "message"
    return {"message": message, "metadata": {"skillId": skill}, **more}


class Steps:
    """The steps, one method for each."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.old = Rpc(http)
        self.new = Rpc(http, a2a_version="1.0")

    def discover(self) -> Json:
        card = self.http.get("/.well-known/agent-card.json").json()
        health = self.http.get("/health").json()
        return {
            "apcore": version("apcore"),
            "skills": {skill["id"]: skill["tags"] for skill in card["skills"]},
            "health": health["status"],
            "modules": health["module_count"],
        }

    def send_0_3(self) -> Json:
        inputs = {"text": "name,age\nAda,36\nAlan,41\n"}
        answer = self.old.call("message/send", send_params("csv.summary", inputs, modern=False))
        task = answer["result"]
        fetched = self.old.call("tasks/get", {"id": task["id"]})["result"]
        (part,) = task["artifacts"][0]["parts"]
        columns = [[column["name"], column["max"]] for column in part["data"]["columns"]]
        return {"state": task["status"]["state"], "columns": columns, "same": task == fetched}

    def send_1_0(self) -> Json:
        answer = self.new.call("SendMessage", send_params("text.stats", "to be", modern=True))
        task = answer["result"]["task"]
        (part,) = task["artifacts"][0]["parts"]
        return {"state": task["status"]["state"], "total": part["data"]["total"]}

    def stream(self) -> Json:
        params = send_params("text.stats", "a\n\nb", modern=False)
        with self.old.stream("message/stream", params) as stream:
            events = [(number, answer["result"]) for number, answer in stream]
        return {
            "ids": [number for number, _ in events],
            "kinds": [event["kind"] for _, event in events],
            "state": events[-1][1]["status"]["state"],
        }

    def cancel(self) -> Json:
        params = send_params("jobs.countdown", {"seconds": 300}, modern=False)
        with self.old.stream("message/stream", params) as stream:
            for _, answer in stream:
                event = answer["result"]
                if event["kind"] == "artifact-update":
                    break
            canceled = self.old.call("tasks/cancel", {"id": event["taskId"]})["result"]
            *_, last = stream
        return {
            "state": canceled["status"]["state"],
            "last": last[1]["result"]["status"]["state"],
        }

    def cancel_sent(self) -> Json:
        options = {"configuration": {"returnImmediately": True}}
        params = send_params("jobs.countdown", {"seconds": 300}, modern=True, **options)
        task = self.new.call("SendMessage", params)["result"]["task"]
        with self.new.stream("SubscribeToTask", {"id": task["id"]}) as stream:
            next(stream)
            canceled = self.new.call("CancelTask", {"id": task["id"]})["result"]
            *_, last = stream
        return {
            "state": canceled["status"]["state"],
            "last": last[1]["result"]["statusUpdate"]["status"]["state"],
        }

    def bad_input(self) -> Json:
        old = self.old.call("message/send", send_params("csv.summary", {"text": 5}, modern=False))
        new = self.new.call("SendMessage", send_params("jobs.countdown", {}, modern=True))
        violations = new["error"]["data"][1]["fieldViolations"]
        return {
            "wrong": [old["error"]["code"], fields(old["error"])],
            "missing": [new["error"]["code"], [entry["field"] for entry in violations]],
        }

    def unknown_input(self) -> Json:
        params = send_params("csv.summary", {"text": "a", "color": "red"}, modern=False)
        error = self.old.call("message/send", params)["error"]
        return {"code": error["code"], "fields": fields(error)}

    def refused(self) -> Json:
        answer = self.old.call(
            "message/send", send_params("csv.summary", {"text": "a,a"}, modern=False)
        )
        task = answer["result"]
        reason = task["status"]["message"]["parts"][1]["data"]
        return {"state": task["status"]["state"], "code": reason["code"]}

    def approve(self) -> Json:
        file = Path(os.environ["APCORE_EXAMPLE_ROOT"], "old.txt")
        file.write_text("old", encoding="utf-8")
        params = send_params("files.delete", {"path": file.name}, modern=False)
        paused = self.old.call("message/send", params)["result"]
        still_exists = file.exists()
        approval = send_params("files.delete", "yes", modern=False)
        approval["message"]["taskId"] = paused["id"]
        resumed = self.old.call("message/send", approval)["result"]
        return {
            "before": paused["status"]["state"],
            "kept": still_exists,
            "after": resumed["status"]["state"],
            "gone": not file.exists(),
        }

    def approve_bad_input(self) -> Json:
        params = send_params("files.delete", {"path": 5}, modern=False)
        error = self.old.call("message/send", params)["error"]
        return {"code": error["code"], "fields": fields(error)}


def fields(error: Json) -> list[str]:
    """Return the names of the fields that an error of 0.3 reports."""
    return [entry["field"] for entry in error["data"]["errors"]]


def main(folder: str) -> None:
    with running(folder) as url, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        steps = Steps(http)
        for name in [name for name in vars(Steps) if not name.startswith("_")]:
            try:
                result = getattr(steps, name)()
            except Exception:  # the test reports the failed step; the other steps still run
                result = {"failed": traceback.format_exc()}
            print(json.dumps({"step": name, **result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
