"""Names for authors of modules: behavior that the examples in their docstrings do not show."""

from typing import Any

import pytest
from apcore_a2a_core import Usage


def test_usage_is_summed() -> None:
    assert sum([Usage(3, 1), Usage(output_tokens=2)], Usage()) == Usage(3, 3)


@pytest.mark.parametrize("number", [-1, 2**53 + 1, 0.5, True, None, "3"])
def test_usage_accepts_only_integers_as_counts_of_tokens(number: Any) -> None:
    with pytest.raises(ValueError, match=r"from 0 to 2\*\*53"):
        Usage(input_tokens=number)
    with pytest.raises(ValueError, match=r"from 0 to 2\*\*53"):
        Usage(output_tokens=number)
