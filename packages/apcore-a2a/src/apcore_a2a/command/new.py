"""`apcore-a2a new`: a folder with a first skill, its test and a README."""

import re
import shlex
from keyword import iskeyword
from pathlib import Path
from string import Template

import click

RESERVED = ("acl", "core", "internal", "plugin", "schema", "system", "apcore")
"""Words that can't be the first segment of a module's id: apcore reserves them."""
FILES = {
    "extensions/$skill.py": '''\
"""The skill `$skill`."""

from apcore.decorator import module


@module(id="$skill")
def $skill(name: str = "World") -> str:
    """Greet a person by name."""
    return f"Hello, {name}!"
''',
    "test_$skill.py": '''\
"""Tests of the skill `$skill`; run them with pytest."""

from extensions.$skill import $skill


def test_it_greets_a_person_by_name() -> None:
    assert $skill("Ada") == "Hello, Ada!"
''',
    "README.md": """\
# $folder

An A2A agent with one skill, `$skill`, in `extensions/$skill.py`. Files in that folder add skills.

    apcore-a2a serve --host 127.0.0.1        # in this folder
    apcore-a2a card http://127.0.0.1:8000    # in another terminal
    apcore-a2a call http://127.0.0.1:8000 $skill --input '{"name": "Ada"}'
    pytest                                   # after pip install pytest
""",
}
NEXT_STEPS = """\
Created $path with the skill $skill. Serve it, and call it from another terminal:
  cd $path && apcore-a2a serve --host 127.0.0.1
  apcore-a2a call http://127.0.0.1:8000 $skill --input '{"name": "Ada"}'"""


@click.command()
@click.argument("name")
def new(name: str) -> int:
    """Create the folder NAME with a skill to start from, its test and a README."""
    folder = Path(name)
    skill = folder.name.replace("-", "_")
    if not re.fullmatch("[a-z][a-z0-9_]*", skill) or iskeyword(skill) or skill in RESERVED:
        raise ValueError(
            f"{name!r} can't be the name of a skill: choose lowercase letters, digits and _, "
            "with a letter first, and no word that Python or apcore reserves; for example hello"
        )
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ValueError(f"{folder} exists already: choose another name") from None
    (folder / "extensions").mkdir()
    names = {"skill": skill, "folder": folder.name, "path": shlex.quote(str(folder))}
    for name_template, text in FILES.items():
        path = folder / Template(name_template).substitute(names)
        with path.open("x", encoding="utf-8") as file:
            file.write(Template(text).substitute(names))
    print(Template(NEXT_STEPS).substitute(names))
    return 0
