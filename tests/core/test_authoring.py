"""Classes for authors of modules: behavior without an example in a docstring."""

from typing import Any

import pytest
from apcore_a2a_core import Usage


def test_usage_is_summed() -> None:
    assert sum([Usage(3, 1), Usage(output_tokens=2)], Usage()) == Usage(3, 3)


@pytest.mark.parametrize("number", [-1, 2**53 + 1, 0.5, True, None, "3"])
def test_a_count_of_tokens_is_an_integer_from_0_to_2_to_the_power_of_53(number: Any) -> None:
    with pytest.raises(ValueError, match=r"from 0 to 2\*\*53"):
        Usage(input_tokens=number)
    with pytest.raises(ValueError, match=r"from 0 to 2\*\*53"):
        Usage(output_tokens=number)
