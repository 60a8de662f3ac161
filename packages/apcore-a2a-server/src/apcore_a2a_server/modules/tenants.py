"""Tenants: single skills that are served as agents of their own, for clients that name no skill."""

from collections.abc import Mapping
from typing import NamedTuple

from apcore_a2a_core import Identity

from .access import Access
from .skills import Skills

OWNER_PREFIX = "%tenant|"
"""Prefix of the owners of tenants' tasks; principals never begin with it: their `%` is escaped."""


class Tenant(NamedTuple):
    """A tenant: its name, and the skill that it serves."""

    name: str
    skill_id: str


class Tenants:
    """The tenants of an agent.

    Args:
        skills: The skills.
        access: The access rules.
        skill_ids: The skill id of each tenant, by the tenant's name; None if each skill is a tenant
            with the skill's id as its name.
    """

    def __init__(
        self, skills: Skills, access: Access, skill_ids: Mapping[str, str] | None = None
    ) -> None:
        self._skills = skills
        self._access = access
        self._skill_ids = skill_ids

    async def find(self, name: str, identity: Identity | None) -> Tenant | None:
        """Return the tenant with this name if *identity* may call its skill, else None.

        Unknown and forbidden tenants look the same, so that names do not reveal hidden skills.
        """
        tenant = self.get(name)
        if tenant is None:
            return None
        verdicts = await self._access.verdicts([tenant.skill_id], identity)
        return tenant if verdicts[tenant.skill_id].allowed else None

    def get(self, name: str) -> Tenant | None:
        """Return the tenant with this name; None if there is none, or its skill is hidden."""
        skill_id = name if self._skill_ids is None else self._skill_ids.get(name)
        if skill_id is None or not self._skills.is_discoverable(skill_id):
            return None
        return Tenant(name, skill_id)


def owner_of(tenant: Tenant, principal: str) -> str:
    """Return the owner of a principal's tasks within a tenant.

    Example:
        ```python
        from apcore_a2a_server.modules.tenants import Tenant, owner_of

        print(owner_of(Tenant("billing", "billing.ask"), "ada"))
        #> %tenant|billing|ada
        ```
    """
    return f"{OWNER_PREFIX}{tenant.name}|{principal}"


def principal_and_tenant(owner: str, skill_id: str) -> tuple[str, Tenant | None]:
    """Return the principal and the tenant, if any, of a task with this owner and skill."""
    if not owner.startswith(OWNER_PREFIX):
        return owner, None
    name, _, principal = owner.removeprefix(OWNER_PREFIX).partition("|")
    return principal, Tenant(name, skill_id)
