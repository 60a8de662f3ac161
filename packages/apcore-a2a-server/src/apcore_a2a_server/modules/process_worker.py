"""The code of a process that runs modules for `processes.ProcessPool`, one call at a time."""

import importlib.util
import json
import os
import pickle
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from queue import SimpleQueue
from typing import Any

from apcore import CancelToken, Context, ModuleError
from apcore_a2a_core.values import is_array, is_object

SIZE = struct.Struct("!Q")
"""The header of each message: the size of the rest in bytes."""
MAX_MODULES = 100
"""Maximum number of modules that a process keeps loaded; each version of a modified file counts."""
KEPT_ATTRIBUTES = ("trace_id", "caller_id", "call_chain", "identity", "global_deadline")
"""Attributes of a Context that are sent to the process, in addition to `data`."""
RESTORABLE_PREFIXES = ("apcore.", "apcore_a2a_core.", "apcore_a2a_server.", "builtins")
"""Prefixes of the names of Python modules whose errors the server can restore."""


@dataclass(frozen=True)
class FileModule:
    """A module that is loaded from its file.

    Attributes:
        path: The file.
        name: The name under which the server has imported the file.
        class_name: The qualified name of the module's class.
        modified: The time of the file's last change in nanoseconds; a modified file is loaded
            again.
    """

    path: str
    name: str
    class_name: str
    modified: int

    def load(self) -> Any:
        """Import the file, create the module and run its `on_load`, as apcore does."""
        spec = importlib.util.spec_from_file_location(self.name, self.path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.path} can't be imported")
        python_module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(python_module)
        module = attrgetter(self.class_name)(python_module)()
        on_load = getattr(module, "on_load", None)
        if on_load is not None:
            on_load()
        return module


@dataclass(frozen=True)
class PortableContext:
    """The part of an apcore Context that is sent to a process: the values that can be pickled.

    Attributes:
        data: The items of the Context's data, such as `ext.a2a.history`, each pickled.
        attributes: The `KEPT_ATTRIBUTES` of the Context, each pickled.
    """

    data: Mapping[str, bytes]
    attributes: Mapping[str, bytes]

    @classmethod
    def of(cls, context: Any) -> "PortableContext":
        """Return the part of *context* that can be sent."""
        data = dict(context.data)
        # copies, since the lazy sequence and the read-only mapping can't be pickled
        data["ext.a2a.history"] = [*data.get("ext.a2a.history", ())]
        data["ext.a2a.request_metadata"] = {**data.get("ext.a2a.request_metadata", {})}
        attributes = {name: getattr(context, name, None) for name in KEPT_ATTRIBUTES}
        return cls(_pickle_all(data), _pickle_all(attributes))

    def context(self) -> Any:
        """Return a Context without services and executor.

        Its cancel token is never canceled.
        """
        factory: Any = Context  # its type parameter for `services` can't be inferred
        context = factory.create(data=_unpickle_all(self.data), cancel_token=CancelToken())
        for name, value in _unpickle_all(self.attributes).items():
            object.__setattr__(context, name, value)
        return context


@dataclass(frozen=True)
class NotLoaded:
    """The reply if the module can't be loaded in the process.

    Attributes:
        trace: The text of the error's traceback.
    """

    trace: str


@dataclass(frozen=True)
class PortableError:
    """An error that a module has raised, without the parts that exist only in its process.

    Attributes:
        error_class: For a `ModuleError`, the nearest class that the server knows: its own or a
            base class. For any other error, its class, or RuntimeError if the server could not
            restore it.
        args: The error's arguments that are JSON.
        state: The error's attributes that are JSON.
        trace: The text of the error's traceback.
    """

    error_class: type[BaseException]
    args: tuple[Any, ...]
    state: Mapping[str, Any]
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "PortableError":
        """Convert *error* to this type."""
        trace, error_class = "".join(traceback.format_exception(error)), type(error)
        if isinstance(error, ModuleError):
            error_class = next(filter(_is_restorable, error_class.__mro__))
        elif not _is_restorable(error_class) or not _is_json(error.args):
            reason = (f"The module raised {error_class.__name__}",)
            return cls(RuntimeError, reason, {}, trace)
        state = {name: _plain(value) for name, value in vars(error).items() if _is_json(value)}
        args = tuple(_plain(arg) for arg in error.args if _is_json(arg))
        return cls(error_class, args, state, trace)

    def restore(self) -> BaseException:
        """Recreate the error, with the traceback as a note for the log."""
        # not by calling the class, whose constructor may take any arguments
        error = self.error_class.__new__(self.error_class, *self.args)
        error.args = self.args
        # a ModuleError needs a `cause`; `state` lacks it if the cause is an exception
        error.__dict__.update({"cause": None, **self.state} if self.state else {})
        error.add_note(f"In the module's process:\n{self.trace}")
        return error


def main(descriptor: int) -> None:
    """Run modules until the server closes the socket, or ends."""
    # a service manager may signal all processes, but this one runs until the server ends it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection, calls = socket.socket(fileno=descriptor), SimpleQueue[bytes]()
    connection.set_inheritable(False)
    threading.Thread(target=_receive, args=(connection, calls), daemon=True).start()
    modules: dict[bytes, Any] = {}
    own_id = os.getpid()
    while True:
        reply = _make_reply(calls.get(), modules)
        if os.getpid() != own_id:  # the module has forked: only one process may reply
            os._exit(1)
        connection.sendall(SIZE.pack(len(reply)) + reply)


def _receive(connection: socket.socket, calls: "SimpleQueue[bytes]") -> None:
    """Queue calls; when the server closes the socket, kill this process and its children."""
    with suppress(OSError), connection.makefile("rb") as stream:
        while header := stream.read(SIZE.size):
            (size,) = SIZE.unpack(header)
            calls.put(stream.read(size))
    os.killpg(0, signal.SIGKILL)


def _make_reply(payload: bytes, modules: dict[bytes, Any]) -> bytes:
    """Make a call; return its pickled output or error, or a pickled `NotLoaded`."""
    packed_module, inputs, context = pickle.loads(payload)
    try:
        if len(modules) >= MAX_MODULES:
            modules.clear()
        if packed_module not in modules:
            module = pickle.loads(packed_module)
            modules[packed_module] = module.load() if isinstance(module, FileModule) else module
    except Exception as error:  # loading a module runs its code
        return pickle.dumps(NotLoaded("".join(traceback.format_exception(error))))
    try:
        return pickle.dumps(modules[packed_module].execute(inputs, context.context()))
    except BaseException as error:  # modules may raise anything; the server raises it again
        return pickle.dumps(PortableError.of(error))


def _is_restorable(error_class: type) -> bool:
    return f"{error_class.__module__}.".startswith(RESTORABLE_PREFIXES)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _plain(value: Any) -> Any:
    """Copy a JSON value, with built-in types only: the server may not know their subclasses."""
    if is_object(value):
        return {_plain(key): _plain(member) for key, member in value.items()}
    if is_array(value):
        return [*map(_plain, value)]
    if value.__class__ is tuple:
        return tuple(map(_plain, value))
    return json.loads(json.dumps(value))


def _pickle_all(values: Mapping[str, Any]) -> dict[str, bytes]:
    """Pickle the values that can be pickled, and leave out the others."""
    pickled: dict[str, bytes] = {}
    for name, value in values.items():
        with suppress(Exception):  # objects may raise anything when they are pickled
            pickled[name] = pickle.dumps(value)
    return pickled


def _unpickle_all(values: Mapping[str, bytes]) -> dict[str, Any]:
    """Unpickle the values whose classes can be imported here, and leave out the others."""
    unpickled: dict[str, Any] = {}
    for name, value in values.items():
        with suppress(Exception):  # objects may raise anything when they are unpickled
            unpickled[name] = pickle.loads(value)
    return unpickled
