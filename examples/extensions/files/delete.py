"""`files.delete`: remove a file from the sandbox after approval."""

import os
import tempfile
from pathlib import Path
from stat import S_ISREG
from typing import Any

from apcore import Context, InvalidInputError, ModuleAnnotations, ModuleExample
from pydantic import BaseModel, ConfigDict, Field


class DeleteInput(BaseModel):
    """File to remove."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(
        description="The file, relative to the sandbox.",
        pattern=r"^[^\x00]+$",
        max_length=255,
    )


class DeleteOutput(BaseModel):
    """Removed file."""

    deleted: str = Field(description="The file, relative to the sandbox.")
    size: int = Field(description="The size of the file in bytes.")


class Delete:
    """Delete a file.

    The sandbox is the folder named by the environment variable `APCORE_EXAMPLE_ROOT`, by default
    `apcore-example` in the system's temporary folder.
    """

    name = "Delete a file"
    description = (
        "Permanently delete one file from the server's sandbox folder. Needs approval. Folders, "
        "links and anything outside the sandbox are refused."
    )
    version = "1.0.0"
    tags = ["files"]
    annotations = ModuleAnnotations(destructive=True, requires_approval=True, open_world=False)
    examples = [
        ModuleExample(
            title="Remove an old report",
            inputs={"path": "reports/2019.txt"},
            output={"deleted": "reports/2019.txt", "size": 1204},
        )
    ]
    input_schema = DeleteInput
    output_schema = DeleteOutput

    def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        """Remove the file."""
        root = _sandbox()
        file = _resolve_inside(root, DeleteInput.model_validate(inputs).path)
        size = _size_of(file)
        file.unlink()
        return {"deleted": file.relative_to(root).as_posix(), "size": size}


def _sandbox() -> Path:
    default = Path(tempfile.gettempdir(), "apcore-example")
    return Path(os.environ.get("APCORE_EXAMPLE_ROOT", default)).resolve()


def _resolve_inside(root: Path, path: str) -> Path:
    # Only the folder is resolved: a link must be seen as a link, not as its target.
    file = root / path
    folder = file.parent.resolve()
    if file.name == ".." or not folder.is_relative_to(root):
        raise InvalidInputError("The path leads out of the sandbox")
    return folder / file.name


def _size_of(file: Path) -> int:
    try:
        status = file.lstat()
    except OSError as error:
        raise InvalidInputError("There is no such file in the sandbox") from error
    if not S_ISREG(status.st_mode):
        raise InvalidInputError("Only regular files can be deleted")
    return status.st_size
