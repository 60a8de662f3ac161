"""`apcore-a2a serve`: options and their sources, output and exit codes."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from apcore_a2a.command.main import main
from apcore_a2a.command.options import (
    DECLARED,
    OPTIONS,
    CommandConfigurationError,
    explicit_options,
    group_by_section,
    load_config,
)
from apcore_a2a.command.serve import serve
from apcore_a2a_server.app.options import Limits, ServeSettings
from apcore_a2a_server.fields import (
    FILES,
    KINDS,
    OBJECTS,
    PAIRS,
    SWITCH,
    options_of,
)
from apcore_a2a_server.modules.loading import MAX_SHOWN
from apcore_a2a_server.push import PushSettings

from tools.options import PAGE, page

from .processes import (
    COMMAND,
    SIGNALS,
    WITHOUT_COVERAGE,
    agent_client,
    environment,
    extensions,
    free_port,
    process,
    run,
    use_environment,
)

WEBHOOKS = ["--push-notifications"]
LOCAL = ["serve", "--host", "127.0.0.1", "--port", "0"]
OTHER_SECTIONS: dict[str, Any] = {
    "legacy": {"version": "1", "project": {"name": "Legacy", "description": "Old", "version": 2}},
    "namespace": {
        "apcore": {"project": {"name": "Spaced", "description": "New", "version": 3}},
        "_config": {"allow_unknown": False},
    },
    "strict": {"apcore": {"project": {"name": "Strict"}}, "_config": {"strict": True}},
}
"""The sections of a config file other than ours, in each of apcore's modes."""

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a home and a working directory without configuration."""
    monkeypatch.chdir(tmp_path)
    use_environment(monkeypatch, tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a config file and returns its path."""

    def write(mode: str = "legacy", file: str = "config.yaml", /, **keys: Any) -> str:
        path = tmp_path / file
        document = {**OTHER_SECTIONS[mode], "apcore-a2a": keys} if keys else OTHER_SECTIONS[mode]
        path.write_text(json.dumps(document), encoding="utf-8")
        return str(path)

    return write


def read(*arguments: str) -> dict[str, Any]:
    """Return the options that `serve` would get with these arguments."""
    return explicit_options(serve.make_context("serve", [*arguments]))


# Options and the sources of their values


def test_every_option_of_serve_is_a_flag_unless_a_shell_cannot_express_it() -> None:
    python_only = {option.field for option in DECLARED if option.kind is None}

    assert python_only == {"auth", "client_key", "companions", "config", "limits", "ssl_context"}
    declared_fields = {option.field for option in (*options_of(ServeSettings), *options_of(Limits))}
    assert declared_fields - python_only <= {option.field for option in OPTIONS.values()}
    assert len(OPTIONS) == len(DECLARED) - len(python_only)
    assert len({option.section for option in DECLARED}) == len(group_by_section(DECLARED))


def test_every_field_is_declared_as_an_option() -> None:
    for settings in (ServeSettings, Limits, PushSettings):
        fields = settings.__dataclass_fields__
        assert [option.field for option in options_of(settings)] == [*fields]


VALUES: dict[Any, list[Any]] = {
    str: ["one", "two", "three"],
    int: ["1", "2", "3"],
    float: ["1.5", "2", "3.25"],
    Sequence[float]: ["0.5", "1,2.5", "3"],
    Sequence[int]: ["8443", "443,8443", "1"],
    bool: ["yes", "no", "on"],
    Sequence[str]: ["https://a", "https://b,https://c", "*"],
}


@pytest.mark.parametrize("mode", OTHER_SECTIONS)
def test_flags_win_over_variables_and_variables_over_the_file(
    mode: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[Any, list[str]] = {KINDS[kind]: examples for kind, examples in VALUES.items()}
    values[FILES] = ["a.pem", "b.pem,c.pem", "d.pem"]
    values[PAIRS] = ["a=skill.one", "b=skill.two,c=skill.one", "skills"]
    values[OBJECTS] = ["a=https://a", "b=https://b,c=https://c", "d=https://d"]
    for option in OPTIONS.values():
        if option.name == "config":
            continue
        flag_value, variable_value, file_value = (option.choices * 2 or values[option.kind])[:3]
        flags = [option.flag] if option.kind is SWITCH else [option.flag, flag_value]
        key = option.name if mode == "strict" else option.name.replace("_", "-")
        is_number = option.kind in (KINDS[int], KINDS[float])
        config = [
            "--config",
            write(mode, **{key: json.loads(file_value) if is_number else file_value}),
        ]

        assert read(*config) == {option.name: option.read(file_value)}
        with monkeypatch.context() as patch:
            patch.setenv(option.variable, variable_value)
            assert read(*config) == {option.name: option.read(variable_value)}
            assert read(*config, *flags) == {option.name: option.read(flag_value)}
        assert read(*flags) == {option.name: option.read(flag_value)}


@pytest.mark.parametrize("mode", OTHER_SECTIONS)
def test_options_that_are_not_set_keep_their_defaults(
    mode: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APCORE_A2A_URL", "")
    monkeypatch.setenv("APCORE_PORT", "1")

    assert read("--config", write(mode, port=None, url="https://a")) == {"url": "https://a"}
    assert read("--config", write(mode)) == {}


def test_a_switch_can_be_turned_off_by_its_flag(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APCORE_A2A_CONFIG", write(explorer=True))

    assert read() == {"explorer": True}
    assert read("--no-explorer") == {"explorer": False}
    assert read("--no-access-log", "--explorer") == {"explorer": True, "access_log": False}


def test_a_list_has_several_notations(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"cors_origins": ["https://a", "https://b"]}

    assert read("--cors-origins", "https://a,https://b") == expected
    assert read("--cors-origins", "https://a", "--cors-origins", "https://b") == expected
    for written in (["https://a", "https://b"], "https://a https://b", "https://a,https://b"):
        assert read("--config", write(cors_origins=written)) == expected
    monkeypatch.setenv("APCORE_A2A_CORS_ORIGINS", "https://a https://b")
    assert read() == expected
    assert read("--cors-origins", "") == {"cors_origins": []}


def test_tenants_have_several_notations(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"tenant": ["billing=billing.ask", "tea=kitchen.tea"]}

    assert read("--tenant", "billing=billing.ask", "--tenant", "tea=kitchen.tea") == expected
    for written in (
        {"billing": "billing.ask", "tea": "kitchen.tea"},
        ["billing=billing.ask", "tea=kitchen.tea"],
    ):
        assert read("--config", write(tenant=written)) == expected
    monkeypatch.setenv("APCORE_A2A_TENANT", "billing=billing.ask tea=kitchen.tea")
    assert read() == expected
    assert read("--tenant", "skills") == {"tenant": ["skills"]}


def test_an_item_of_a_list_in_the_config_file_may_have_spaces(write: Write) -> None:
    expected = {"cors_origins": ["my apis/a.yaml", "b.yaml"]}
    assert read("--config", write(**expected)) == expected


@pytest.mark.parametrize("mode", OTHER_SECTIONS)
def test_a_wrong_value_in_the_file_is_reported_with_its_key(mode: str, write: Write) -> None:
    wrong_values: list[tuple[str, Any]] = [
        ("port", "many"),
        ("port", True),
        ("port", [1]),
        ("name", {"a": 1}),
        ("name", ["a"]),
        ("state-history", "maybe"),
        ("cors_origins", {"a": 1}),
        ("cors_origins", [["a"]]),
        ("log_level", False),
    ]
    for key, value in wrong_values:
        message = rf"^apcore-a2a\.{key.replace('-', '_')} in the config file takes"
        with pytest.raises(CommandConfigurationError, match=message):
            read("--config", write(mode, **{key: value}))


@pytest.mark.parametrize("mode", OTHER_SECTIONS)
def test_the_error_for_a_misspelled_key_suggests_the_right_one(mode: str, write: Write) -> None:
    with pytest.raises(
        CommandConfigurationError, match=r"apcore-a2a\.max_taks .* \(did you mean max_tasks\?"
    ):
        read("--config", write(mode, **{"max-taks": 1}))


def test_our_section_of_the_file_must_be_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("apcore: {}\napcore-a2a: 8000\n", encoding="utf-8")

    with pytest.raises(CommandConfigurationError, match="must be a mapping, not 8000"):
        read("--config", str(path))


def test_without_a_config_file_there_is_no_config() -> None:
    assert load_config(None) is None


def test_the_config_file_is_found_as_apcore_finds_it(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("legacy", "apcore.yaml", port=1)
    assert read() == {"port": 1}

    monkeypatch.setenv("APCORE_CONFIG_FILE", write("legacy", "other.yaml", port=2))
    assert read() == {"port": 2}
    assert read("--config", write("legacy", "third.yaml", port=3)) == {"port": 3}


def test_the_page_of_options_is_up_to_date() -> None:
    """`python -m tools.options` writes the page."""
    assert PAGE.read_text(encoding="utf-8") == page()


# Startup, shutdown and exit codes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return extensions(tmp_path, "echo.py")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "http"], "--port takes a whole number, not 'http'"),
        (["--port", "70000"], "--port must be a whole number from 0 to 65535"),
        (["--port", "-1"], "--port must be a whole number from 0 to 65535"),
        (["--keep-alive", "long"], "--keep-alive takes a number, not 'long'"),
        (["--log-level", "loud"], "--log-level takes debug, info, warning or error, not 'loud'"),
        (["--extensions-dir", "nope"], "Extensions directory not found: nope\n"),
        (
            ["--extensions-dir", "empty"],
            "There are no modules to serve in empty\nA module is a function with",
        ),
        (
            ["--extensions-dir", "config.yaml"],
            "config.yaml is a file, but a folder of modules is expected\n"
            "Serve the file alone: apcore-a2a serve config.yaml\n",
        ),
        (["--config", "nope.yaml"], "Config file not found: nope.yaml"),
        (["--config", "extensions"], "Config file not found: extensions"),
        (["--config", "bad.yaml"], "Config file bad.yaml: "),
        (["--config", "incomplete.yaml"], "'project.name'"),
        (["--max-tasks", "0"], "--max-tasks must be a whole number, 1 or more"),
        (["--max-runs", "many"], "--max-runs takes a whole number, not 'many'"),
        (["--max-parts", "1001"], "--max-parts must be a whole number from 1 to 1000"),
        (
            ["--memory", "1"],
            "--memory must be 11983726 or more, for one request of max_body (10485760 bytes), "
            "not 1; raise it, or lower max_body",
        ),
        (
            ["--input-timeout", "1e300"],
            "--input-timeout must be greater than 0 and at most a year",
        ),
        (["--allowed-hosts", "a.*"], "--allowed-hosts may have * only by itself"),
        (["--tenant", "billing"], "--tenant takes NAME=SKILL, or 'skills', not 'billing'"),
        (["--tenant", "skills", "--tenant", "x=y"], "--tenant takes 'skills' alone"),
        (["--tenant", "a" * 300 + "=y"], "--tenant needs names of at most 255 characters: 'aaaa"),
        (["--tenant", "a/b=tea"], "--tenant needs names of ASCII letters, digits and . _ ~ -"),
        (["--tenant", "v1=no.such"], "--tenant can't have the name 'v1'"),
        (["--tenant", "tea=no.such"], "--tenant has no skill for 'tea'"),
        (
            ["--allowed-hosts", "a.example:80"],
            "--allowed-hosts takes names without a scheme or port",
        ),
        (["--openapi-server", "https://a"], "--openapi-server needs openapi"),
        (["--openapi", "x", "--openapi-server", "a"], "--openapi-server must begin with http"),
        (["--openapi", "nope.yaml"], "The OpenAPI document nope.yaml: No such file"),
        (["--openapi", "bad.yaml"], "bad.yaml is not an OpenAPI document"),
        (["--client-share", "2"], "--client-share must be greater than 0 and at most 1"),
        (["--auth-rate-limit", "often"], "--auth-rate-limit must look like 10/second;100/minute"),
        (["--input-timeout", "0"], "--input-timeout must be greater than 0 and at most a year"),
        (["--disconnect-grace", "-1"], "--disconnect-grace must be a number from 0 to a year"),
        (["--url", "agent.example.com"], "--url must begin with http:// or https://"),
        (["--push-timeout", "5"], "--push-timeout needs --push-notifications"),
        (["--push-retries", "often"], "--push-retries takes a list of numbers, not "),
        (["--push-ports", "https"], "--push-ports takes a list of whole numbers, not "),
        (
            [*WEBHOOKS, "--push-ports", "0"],
            "--push-ports must be a list of whole numbers from 1 to 65535",
        ),
        ([*WEBHOOKS, "--push-secrets", "sesame"], "--push-secrets must each be whsec_"),
        (
            [*WEBHOOKS, "--push-allowed-hosts", "a.*"],
            "--push-allowed-hosts may have * only by itself, or before the first dot; 'a.*'",
        ),
        (["--explorer", "--explorer-path", "/a b"], "--explorer-path must be a path: "),
        (["--explorer", "--explorer-path", "/health"], "the agent itself is at /health"),
    ],
)
def test_a_wrong_configuration_exits_with_1_and_names_the_problem(
    arguments: list[str],
    message: str,
    folder: Path,
    tmp_path: Path,
    write: Write,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.yaml").write_text("a: [", encoding="utf-8")
    (tmp_path / "incomplete.yaml").write_text("version: 1", encoding="utf-8")
    write()

    assert main([*LOCAL, *arguments]) == 1
    printed = capfd.readouterr().err
    assert message in printed
    assert "sesame" not in printed
    assert printed.splitlines()[0].startswith("apcore-a2a: ")


def test_a_wrong_variable_is_reported_by_name(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APCORE_A2A_MAX_BODY", "10MB")

    assert main(LOCAL) == 1
    assert "APCORE_A2A_MAX_BODY takes a whole number, not '10MB'" in capfd.readouterr().err


@pytest.mark.parametrize("level", ["warning", "error"])
def test_files_that_cannot_be_loaded_are_named_with_the_reason(
    level: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    valid = (folder / "echo.py").read_text(encoding="utf-8")
    failing = "    def {}(self):\n        raise KeyError('sesame')\n"
    (folder / "echo.py").unlink()
    (folder / "a").mkdir()
    for name, text in {
        "a/missing.py": "import missing_dependency",
        "broken.py": "def (",
        "made.py": valid + failing.format("__init__"),
        "none.py": "",
        "opened.py": valid + failing.format("on_load"),
        "silent.py": valid.replace("description", "other"),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")

    assert main([*LOCAL, "--log-level", level]) == 1
    message = capfd.readouterr().err.partition("apcore-a2a: ")[2]
    assert message.splitlines()[:-2] == [
        "No module in extensions could be loaded:",
        "  a/missing.py: ModuleNotFoundError: No module named 'missing_dependency' (line 1)",
        "  broken.py: SyntaxError: invalid syntax (line 1)",
        "  made.py: KeyError",
        "  none.py: No Module subclass found in file",
        "  opened.py: KeyError",
        "  silent.py: Missing or empty description",
    ]
    assert message.splitlines()[-2].startswith("A module is a function")
    assert message.splitlines()[-1] == "Create an example with: apcore-a2a new hello"


def test_only_some_of_many_files_that_cannot_be_loaded_are_named(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "echo.py").unlink()
    for number in range(MAX_SHOWN + 2):
        (folder / f"broken{number:02}.py").write_text("def (", encoding="utf-8")

    assert main(LOCAL) == 1
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("  ")][-2:] == [
        f"  broken{MAX_SHOWN - 1:02}.py: SyntaxError: invalid syntax (line 1)",
        "  and 2 more",
    ]


def test_a_variable_that_is_not_an_option_causes_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "PROT": "1",
        "STOR": "a",
        "XYZZY": "secret",
        "AUTH": "a",
        "API_KEY": "a",
        "CLIENT_SECRET": "a",
        "NAME": "a",
    }
    variables |= {"OPENAPI_TOKEN": "a", "OPENAPI_TOKEN_BASIC": "a", "OPENAPI_TOKENS": "a"}
    kubernetes = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT_HTTP": "1", "PORT_8000_TCP_ADDR": "a"}
    for name, value in {**variables, **kubernetes}.items():
        monkeypatch.setenv(f"APCORE_A2A_{name}", value)

    for command in (["serve", "--extensions-dir", "nope"], ["store", "check", "--store", "nope"]):
        caplog.clear()
        main(command)
        assert [record.getMessage() for record in caplog.records] == [
            "APCORE_A2A_OPENAPI_TOKENS is not an option and is ignored "
            "(did you mean APCORE_A2A_OPENAPI?)",
            "APCORE_A2A_PROT is not an option and is ignored (did you mean APCORE_A2A_PORT?)",
            "APCORE_A2A_STOR is not an option and is ignored (did you mean APCORE_A2A_STORE?)",
            "APCORE_A2A_XYZZY is not an option and is ignored",
        ]


@pytest.mark.process
def test_the_warning_about_a_variable_follows_the_log_format(tmp_path: Path) -> None:
    result = run(["serve", "--log-format", "json"], tmp_path, {"APCORE_A2A_PROT": "1"})

    record = json.loads(result.stderr.splitlines()[0])
    assert (record["level"], record["event"]) == ("WARNING", "unknown_environment_variable")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["sevre"], "No such command 'sevre'"),
        (["--prot", "serve"], "--prot"),
        (["serve", "--prot", "9000"], "--port"),
        (["serve", "--qqqqqq"], "--qqqqqq"),
        (["serve", "--exec", "5"], "--exec"),
        (["serve", "--port"], "requires an argument"),
    ],
)
def test_a_wrong_command_line_exits_with_1_and_points_to_the_help(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert re.search(r"^Try 'apcore-a2a( serve)? --help'\.$", printed, re.MULTILINE)


def test_an_unknown_default_skill_exits_with_1(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*LOCAL, "--default-skill", "nope"]) == 1
    assert "--default-skill is unknown: " in capfd.readouterr().err


def test_a_port_in_use_exits_with_2(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_socket:
        port = str(taken_socket.getsockname()[1])

        assert main([*LOCAL, "--port", port]) == 2
    expected = f"apcore-a2a: Cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert capfd.readouterr().err == expected


def test_an_invalid_host_exits_with_2(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*LOCAL, "--host", "256.0.0.1"]) == 2
    assert "Cannot listen on 256.0.0.1:0" in capfd.readouterr().err


@pytest.mark.process
@pytest.mark.smoke
def test_a_crash_exits_with_2(tmp_path: Path) -> None:
    extensions(tmp_path, "crash.py")

    with process([*COMMAND, *LOCAL], tmp_path) as agent, agent_client(agent) as client:
        with suppress(httpx.RemoteProtocolError):
            client.send("crash", client.part(data={}))
        assert agent.end() == 2
    assert "apcore-a2a: The server crashed: RuntimeError(" in agent.log


def test_a_module_that_exits_while_it_is_loaded_makes_the_command_exit_with_2(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "leaves.py").write_text("raise SystemExit(0)", encoding="utf-8")

    assert main(LOCAL) == 2
    assert "apcore-a2a: The server crashed: SystemExit(0)" in capfd.readouterr().err


@pytest.mark.process
def test_an_api_is_served_without_modules(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    paths = {"/items": {"get": {"operationId": "listItems"}}}
    file.write_text(json.dumps({"openapi": "3.1.0", "paths": paths}))
    command = [*COMMAND, *LOCAL, "--openapi", str(file), "--openapi-server", "http://127.0.0.1:9"]

    with process(command, tmp_path) as agent, agent_client(agent) as client:
        task = client.send("list_items", client.part(data={})).task
        assert task["status"]["message"]["parts"][0]["text"] == "The API can't be reached"


@pytest.mark.process
@pytest.mark.smoke
def test_a_signal_before_the_server_listens_exits_cleanly(folder: Path, tmp_path: Path) -> None:
    signal_early = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    (folder / "early.py").write_text(signal_early, encoding="utf-8")
    result = run(LOCAL, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")

    (folder / "early.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    assert main(LOCAL) == 0


@pytest.mark.process
def test_a_module_that_blocks_its_thread_does_not_block_shutdown(tmp_path: Path) -> None:
    extensions(tmp_path, "block.py")
    command = [*COMMAND, *LOCAL, "--shutdown-timeout", "0"]

    with process(command, tmp_path) as agent, agent_client(agent) as client:
        client.start("block", parts=[client.part(data={})])
        assert agent.end(SIGNALS[0]) == 0


# Output


def test_the_help_and_the_version_load_nothing_heavy() -> None:
    code = """
import sys
from apcore_a2a.__main__ import main
try:
    sys.argv[1:] = sys.argv[1].split()
    main()
finally:
    print(*sys.modules)
"""
    for arguments in ("--help", "serve --help", "--version"):
        command = [sys.executable, "-c", code, arguments]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        loaded = {name.partition(".")[0] for name in result.stdout.splitlines()[-1].split()}

        assert not loaded & {"a2a", "apcore", "pydantic", "starlette", "uvicorn", "yaml"}


@pytest.mark.process
@pytest.mark.clock
def test_the_help_takes_at_most_twice_as_long_as_importing_click(tmp_path: Path) -> None:
    """Measured alternately and in CPU time, so that other load affects both."""
    variables = environment(tmp_path, WITHOUT_COVERAGE)

    def seconds(*arguments: str) -> float:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_utime + usage.ru_stime

    pairs = [
        (seconds("-m", "apcore_a2a", "--help"), seconds("-c", "import click")) for _ in range(7)
    ]
    command_time, click_time = map(min, zip(*pairs, strict=True))

    assert command_time <= 2 * click_time


def test_the_help_names_every_flag_and_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["serve", "--help"]) == 0
    printed = capsys.readouterr().out
    flags = re.findall(r"^  (--[][a-z-]+)", printed, re.MULTILINE)

    assert {flag.replace("[no-]", "") for flag in flags} == {
        *(option.flag for option in OPTIONS.values()),
        "--help",
    }
    assert "[default: 8000]" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert main(["--help"]) == 0
    assert "serve" in capsys.readouterr().out


@pytest.mark.process
def test_the_version_is_printed_after_the_name(tmp_path: Path) -> None:
    result = run(["--version"], tmp_path)

    assert re.fullmatch(r"apcore-a2a \d+\.\d+\.\d+\S*\n", result.stdout)
    assert not result.returncode


@pytest.mark.process
@pytest.mark.smoke
def test_the_script_and_python_dash_m_print_the_same(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("apcore-a2a")
    command = [str(script), "--version"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)

    assert result.stdout == run(["--version"], tmp_path).stdout


LINE_START = r"\d\d:\d\d:\d\d (INFO   |WARNING) "


@pytest.mark.process
@pytest.mark.smoke
def test_startup_logs_a_few_lines(folder: Path, tmp_path: Path) -> None:
    with process([*COMMAND, *LOCAL], tmp_path) as agent:
        url = agent.url
        agent.wait_for_card(url)
        assert agent.end(SIGNALS[1]) == 0

    assert [re.sub(LINE_START, "", line) for line in agent.log.splitlines()] == [
        f"1 skill at {url}",
        f"Agent Card: {url}/.well-known/agent-card.json",
        "Press Ctrl+C to stop",
        "Shutting down",
    ]


@pytest.mark.process
def test_startup_warns_about_broken_modules_and_missing_authentication(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "broken.py").write_text("def (", encoding="utf-8")

    with process([*COMMAND, "serve", "--port", "0"], tmp_path) as agent:
        agent.wait_for("(Ctrl)")
        agent.end(SIGNALS[0])

    assert re.search(LINE_START + ".*broken", agent.log)
    assert re.search(LINE_START + "Anyone who can reach this address can call", agent.log)
    assert "1 skill at http://localhost:" in agent.log
    assert "--url" in agent.log


@pytest.mark.process
def test_log_level_error_prints_nothing(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [*COMMAND, "serve", "--port", str(port), "--log-level", "error"]

    with process(command, tmp_path) as agent:
        agent.wait_for_card(f"http://127.0.0.1:{port}")
        assert agent.end(SIGNALS[0]) == 0

    assert agent.log == ""


@pytest.mark.process
def test_log_level_debug_prints_debug_records_too(folder: Path, tmp_path: Path) -> None:
    command = [*COMMAND, *LOCAL, "--log-level", "debug"]
    with process(command, tmp_path) as agent, agent_client(agent) as client:
        assert client.send().state == "completed"
        assert agent.end(SIGNALS[0]) == 0

    assert "Started server process" in agent.log
    assert re.search(r"POST / \S+ 200 ", agent.log)
    assert " DEBUG " in agent.log


# End to end


@pytest.mark.process
@pytest.mark.parametrize("mode", ["legacy", "namespace"])
def test_the_card_follows_variables_and_the_file(
    mode: str, folder: Path, tmp_path: Path, write: Write
) -> None:
    folder.rename(tmp_path / "modules")
    port = free_port()
    keys = {"extensions-dir": "modules", "url": "https://file", "port": 1, "state_history": True}
    variables = {
        "APCORE_A2A_CONFIG": write(mode, **keys),
        "APCORE_A2A_URL": "https://variable",
        "APCORE_A2A_VERSION": "2.5",
        "APCORE_A2A_PORT": "2",
    }
    command = [*COMMAND, "serve", "--host", "127.0.0.1", "--port", str(port)]

    with process(command, tmp_path, variables) as agent:
        card = agent.wait_for_card(f"http://127.0.0.1:{port}")
        assert agent.end(SIGNALS[0]) == 0

    project = OTHER_SECTIONS[mode].get("apcore", OTHER_SECTIONS[mode])["project"]
    assert (card["name"], card["description"]) == (project["name"], project["description"])
    assert (card["version"], card["url"]) == ("2.5", "https://variable/")
    assert card["capabilities"]["stateTransitionHistory"] is True
    assert "WARNING" not in agent.log


@pytest.mark.process
def test_the_card_announces_webhooks_when_they_are_enabled(folder: Path, tmp_path: Path) -> None:
    secret, port = "whsec_" + "QUJDREVG" * 4, free_port()
    variables = {"APCORE_A2A_PUSH_SECRETS": secret, "APCORE_A2A_PUSH_RETRIES": "1 2"}
    command = [*COMMAND, "serve", "--host", "127.0.0.1", "--port", str(port), *WEBHOOKS, "--dev"]

    with process(command, tmp_path, variables) as agent:
        card = agent.wait_for_card(f"http://127.0.0.1:{port}")
        assert agent.end(SIGNALS[0]) == 0

    assert card["capabilities"]["pushNotifications"] is True
    assert "forge" not in agent.log  # the warning about webhooks without a secret
    assert secret not in agent.log


def test_modules_are_loaded_from_apcores_configured_folder(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "apcore: {extensions: {root: ./elsewhere}}"
    (tmp_path / "apcore.yaml").write_text(text, encoding="utf-8")

    assert main(LOCAL) == 1
    assert "Extensions directory not found: elsewhere\n" in capfd.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("mode", OTHER_SECTIONS)
def test_loading_the_config_file_prints_nothing(
    mode: str, write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    load = f"load_config({write(mode, port=1)!r})"
    code = f"from apcore_a2a.command.options import load_config; {load}"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )

    assert (result.stdout, result.stderr) == ("", "")


def test_an_agent_without_a_target_is_refused(tmp_path: Path) -> None:
    result = run([*LOCAL, "--agent", "say="], tmp_path)

    assert result.returncode == 1
    assert "--agent has say=, which names no target: write say=app:agent" in result.stderr


def test_an_agent_in_a_variable_without_a_target_is_refused(tmp_path: Path) -> None:
    result = run(LOCAL, tmp_path, {"APCORE_A2A_AGENT": "say="})

    assert result.returncode == 1
    assert "APCORE_A2A_AGENT has say=, which names no target" in result.stderr
