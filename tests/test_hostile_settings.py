"""Whatever stands in PUBSUB, it works or is refused in words, by the check as by the first use."""

from typing import Any

import pytest
from django.test import override_settings
from hypothesis import strategies as st

from pubsub.checks import check_settings
from pubsub.conf import KNOWN, conf
from pubsub.errors import InvalidSetting
from pubsub.topic_options import OPTIONS
from tests.hostile import any_text, attack, names_anything, values

pytestmark = [pytest.mark.long, names_anything]


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


names = st.one_of(st.sampled_from(sorted(KNOWN)), any_text, values)
anything = st.one_of(any_text, values)
options = st.dictionaries(st.one_of(st.sampled_from(sorted(OPTIONS)), any_text), anything)
topics = st.dictionaries(st.one_of(any_text, values.filter(_is_hashable)), st.one_of(options, values), max_size=2)
given = st.one_of(
    values,
    topics.map(lambda these: {"topics": these}),
    st.dictionaries(names.filter(_is_hashable), anything, max_size=2),
    *(anything.map(lambda value, name=name: {name: value}) for name in sorted(KNOWN)),
)


@pytest.mark.timeout(120)
def test_any_settings() -> None:
    @attack(4000, settings=given)
    def run(settings: Any) -> None:
        with override_settings(PUBSUB=settings):
            found = [message.id for message in check_settings()]
            refused = ""
            try:
                conf()
            except InvalidSetting as error:
                refused = str(error)
            assert bool(refused) == bool({"pubsub.E001", "pubsub.E002"} & set(found)), refused
            assert refused.startswith("PUBSUB") or not refused

    run()
