"""The command's options for webhooks: allowed hosts, signing, retries, and invalid values."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from apcore_a2a.command.main import main
from apcore_a2a_server.push.signing import Signer, receiver_secret
from standardwebhooks import Webhook

from tests.push.agents import SECRET, verify
from tests.push.receiver import Reply, free_port, receiving

from .processes import COMMAND, SIGNALS, Process, extensions, process, use_environment

LOCAL = ["serve", "--host", "127.0.0.1", "--port", "0"]
ENABLE_PUSH = "--push-notifications"
STATES = ["submitted", "working", "completed"]
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a folder with modules and no configuration as home and working directory."""
    monkeypatch.chdir(tmp_path)
    extensions(tmp_path, "echo.py", "nap.py")
    use_environment(monkeypatch, tmp_path)


@contextmanager
def serving(home: Path, *flags: str, **variables: str) -> Iterator[Process]:
    """Start a server with these flags; check that it never logs the secret."""
    with process([*COMMAND, *LOCAL, *flags], home, variables) as agent:
        yield agent
        assert agent.end(SIGNALS[0]) == 0
    assert SECRET[6:] not in agent.log


def send(process: Process, url: str, skill: str = "echo", **data: Any) -> Json:
    """Send a message with a webhook; return the answer."""
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"data": data}]}
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
    params = {"message": message, "configuration": configuration, "metadata": {"skillId": skill}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    answer: Json = httpx.post(process.url, json=request, trust_env=False, timeout=20).json()
    return answer


def refusal(process: Process, url: str) -> str:
    text: str = send(process, url, text="hi")["error"]["message"]
    return text


@pytest.mark.process
@pytest.mark.smoke
def test_dev_mode_notifies_webhooks_on_this_machine_with_signatures(
    tmp_path: Path,
) -> None:
    with (
        receiving() as receiver,
        serving(tmp_path, ENABLE_PUSH, "--dev", "--push-secrets", SECRET) as agent,
    ):
        send(agent, receiver.url, text="hi")
        for delivery in receiver.wait(3):
            verify(delivery, receiver.url)
        assert receiver.states == STATES
        assert "not signed" not in agent.log
        assert "set APCORE_A2A_PUSH_SECRETS instead" in agent.log


@pytest.mark.process
def test_in_production_only_https_urls_of_public_hosts_are_allowed(tmp_path: Path) -> None:
    with receiving() as receiver, serving(tmp_path, ENABLE_PUSH) as agent:
        assert refusal(agent, receiver.url) == "Webhook URL must use HTTPS in production mode"
        assert "public addresses" in refusal(agent, "https://127.0.0.1/hook")
        assert "port must be 443 or 8443" in refusal(agent, "https://93.184.215.14:22/")
        assert "not signed" in agent.wait_for("(.*not signed.*)")
    assert len(receiver) == 0


@pytest.mark.process
def test_hosts_and_ports_can_be_allowed(tmp_path: Path) -> None:
    flags = ("--push-allowed-hosts", "10.1.0.0/16,hooks.example", "--push-ports", "443,9443")
    with serving(tmp_path, ENABLE_PUSH, *flags) as agent:
        assert "task" in send(agent, "https://10.1.2.3:9443/", text="hi")["result"]
        assert "public addresses" in refusal(agent, "https://10.2.0.1/")
        assert "public addresses" in refusal(agent, "https://93.184.215.14/")
        assert "443 or 9443" in refusal(agent, "https://10.1.2.3:8443/")


@pytest.mark.process
def test_retries_and_timeout_can_be_set(tmp_path: Path) -> None:
    flags = ("--push-retries", "0.1", "--push-timeout", "1")
    with (
        receiving(lambda delivery: Reply(silent=True)) as receiver,
        serving(tmp_path, ENABLE_PUSH, "--dev", *flags) as agent,
    ):
        send(agent, receiver.url, text="hi")
        first, second = receiver.wait(2)
        # the timeout of the first attempt includes the time to connect
        assert 0.3 < second.at - first.at < 6
        agent.wait_for(r"(has failed: no answer in 1 s)")


@pytest.mark.process
def test_webhook_options_are_read_from_the_environment_and_the_config_file(tmp_path: Path) -> None:
    config = {
        "version": "1",
        "project": {"name": "Tests"},
        "apcore-a2a": {"push-notifications": True, "push-retries": [0.1, 0.2], "dev": "yes"},
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    variables = {"APCORE_A2A_PUSH_SECRETS": SECRET, "APCORE_A2A_PUSH_TIMEOUT": "5"}
    with (
        receiving() as receiver,
        serving(tmp_path, "--config", "c.yaml", **variables) as agent,
    ):
        receiver.answer = lambda delivery: Reply(500 if len(receiver) < 3 else 200)
        send(agent, receiver.url, text="hi")
        verify(receiver.wait(5)[-1], receiver.url)


def run_webhooks_secret(
    capfd: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[str], list[str]]:
    """Run `webhooks secret`; return the exit code and the lines of both outputs."""
    code = main(["webhooks", "secret", *arguments])
    out, err = capfd.readouterr()
    return code, out.splitlines(), err.splitlines()


def test_the_printed_secret_verifies_the_signatures_for_that_receiver(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("APCORE_A2A_PUSH_SECRETS", SECRET)
    code, (secret,), err = run_webhooks_secret(capfd, "https://hooks.example.com/a2a?x")
    assert (code, err) == (0, [])
    headers = dict(Signer([SECRET]).headers("n1", b"{}", "https://hooks.example.com/other"))
    assert Webhook(secret).verify(b"{}", headers) == {}


def test_the_printed_secret_is_the_explicit_one_or_derived_from_the_newest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    new, explicit = "whsec_" + "R0hJSktM" * 4, "whsec_" + "TU5PUFFS" * 4
    secrets = [new, SECRET, f"https://hooks.example.com={explicit}"]
    config = {"version": "1", "project": {"name": "T"}, "apcore-a2a": {"push-secrets": secrets}}
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")

    def printed_secret(url: str) -> list[str]:
        return run_webhooks_secret(capfd, url, "--config", "c.yaml")[1]

    assert printed_secret("https://other.example") == [
        receiver_secret(new, "https://other.example")
    ]
    assert printed_secret("https://hooks.example.com/a") == [explicit]


def test_a_secret_on_the_command_line_is_used_with_a_warning(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    code, out, _ = run_webhooks_secret(capfd, "https://h.example", "--push-secrets", SECRET)
    assert (code, len(out)) == (0, 1)
    (message,) = caplog.messages
    assert "--push-secrets" in message
    assert "APCORE_A2A_PUSH_SECRETS" in message
    assert SECRET[6:] not in message


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["https://h.example"], "set APCORE_A2A_PUSH_SECRETS"),
        (["h.example", "--push-secrets", SECRET], "Not the URL of a webhook"),
        (["https://h.example", "--push-secrets", "hunter2"], "--push-secrets must each be whsec_"),
        (["https://h.example", "--push-secrets", f"x://h={SECRET}"], "--push-secrets must name"),
        (["https://h.example", f"https://a.example={SECRET}"], "Unexpected argument"),
        ([], "Missing argument"),
    ],
)
def test_wrong_arguments_of_webhooks_secret_exit_with_1(
    arguments: list[str], problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_webhooks_secret(capfd, *arguments)
    assert (code, out) == (1, [])
    assert problem in err[0]
    assert not [line for line in err if "hunter2" in line or SECRET[6:] in line]


@pytest.mark.process
def test_notifications_can_go_through_a_proxy(tmp_path: Path) -> None:
    with receiving() as proxy:
        address = proxy.url.removesuffix("/hook")
        with serving(tmp_path, ENABLE_PUSH, "--dev", "--push-proxy", address) as agent:
            send(agent, "http://hooks.example.com:8080/hook", text="hi")
            assert {d.headers["host"] for d in proxy.wait(3)} == {"hooks.example.com:8080"}
            assert {d.path for d in proxy.deliveries} == {"http://hooks.example.com:8080/hook"}


@pytest.mark.process
def test_undelivered_notifications_are_reported_at_shutdown(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    flags = ("--shutdown-timeout", "600", "--push-retries", "600,600")
    with process([*COMMAND, *LOCAL, ENABLE_PUSH, "--dev", *flags], tmp_path) as agent:
        send(agent, url, "nap", seconds=0)
        agent.wait_for("(Attempt 1 of 3)")
        assert agent.end(SIGNALS[0]) == 0
        assert "3 notifications for webhook" in agent.log
        assert "are lost: the server is shutting down" in agent.log


@pytest.mark.process
def test_after_a_second_signal_the_server_does_not_wait_for_receivers(tmp_path: Path) -> None:
    flags = ("--shutdown-timeout", "600", "--push-timeout", "600")
    with (
        receiving(lambda delivery: Reply(silent=True)) as receiver,
        process([*COMMAND, *LOCAL, ENABLE_PUSH, "--dev", *flags], tmp_path) as agent,
    ):
        send(agent, receiver.url, text="hi")
        receiver.wait(1)
        agent.signal(SIGNALS[0])
        agent.wait_for("(delivering 3 pending notifications)")
        time.sleep(0.2)  # a signal that comes sooner would count as a repetition of the first
        assert agent.end(SIGNALS[0]) == 0
        assert "3 notifications for webhook" in agent.log


INVALID_PROXIES = [
    "socks5://hunter2@proxy",
    "http://[",
    "http://h:99999",
    "http://user:hunter2/@proxy:3128",
    "http://proxy:3128/path",
]
HOSTS_ERROR = "--push-allowed-hosts must be names or networks"
INVALID: dict[tuple[str, ...], str] = {
    ("--push-secrets", SECRET): "--push-secrets needs --push-notifications",
    ("--push-ports", "443"): "--push-ports needs --push-notifications",
    (ENABLE_PUSH, "--push-secrets", "hunter2"): "--push-secrets must each be whsec_",
    (
        ENABLE_PUSH,
        "--push-ports",
        "0",
    ): "--push-ports must be a list of whole numbers from 1 to 65535",
    (ENABLE_PUSH, "--push-ports", "https"): "--push-ports takes a list of whole numbers, not ",
    (
        ENABLE_PUSH,
        "--push-retries",
        "-1",
    ): "--push-retries must be a list of numbers from 0 to a day",
    (ENABLE_PUSH, "--push-retries", "soon"): "--push-retries takes a list of numbers",
    (ENABLE_PUSH, "--push-timeout", "0"): "--push-timeout must be greater than 0 and at most a day",
    (ENABLE_PUSH, "--push-max-pending", "0"): "--push-max-pending must be a whole number",
    (
        ENABLE_PUSH,
        "--push-allowed-hosts",
        "10.0.0.1/8",
    ): f"{HOSTS_ERROR}: 10.0.0.1/8 has host bits",
    (
        ENABLE_PUSH,
        "--push-allowed-hosts",
        "a.example:443",
    ): f"{HOSTS_ERROR}: 'a.example:443' does not",
    (ENABLE_PUSH, "--push-allowed-hosts", "a,*."): "--push-allowed-hosts may have * only by itself",
}


INVALID |= {
    (ENABLE_PUSH, "--push-proxy", proxy): "--push-proxy must be an address such as"
    for proxy in INVALID_PROXIES
}


@pytest.mark.parametrize("flags", INVALID)
def test_an_invalid_option_exits_with_1_and_says_what_is_wrong(
    flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    code = main([*LOCAL, *flags])
    printed = capfd.readouterr().err
    assert code == 1
    assert printed.startswith(f"apcore-a2a: {INVALID[flags]}")
    assert "hunter2" not in printed
    assert "Traceback" not in printed
