"""The tables of codes are whole, and a close code's range says what to do."""

import pytest

from protocol import errors
from protocol.errors import CLOSE_MEANINGS, MEANINGS, CloseCode, ErrorCode, may_reconnect


def every_class(root=errors.ProtocolError):
    yield root
    for child in root.__subclasses__():
        yield from every_class(child)


def test_every_error_code_has_a_meaning_and_no_other():
    assert set(MEANINGS) == set(ErrorCode)


def test_every_close_code_has_a_meaning_and_no_other():
    assert set(CLOSE_MEANINGS) == set(CloseCode)


def test_a_meaning_is_one_sentence():
    for when in [meaning.when for meaning in MEANINGS.values()] + list(CLOSE_MEANINGS.values()):
        assert when.endswith(".") and "\n" not in when and "|" not in when


@pytest.mark.parametrize("code", [4400, 4401, 4403, 4409, 4413, 4449, 1000])
def test_do_not_come_back_as_you_are(code):
    assert not may_reconnect(code)


@pytest.mark.parametrize("code", [4450, 4453, 4458, 4459, 4499, 1001, 1006, 1009, 1011, 1012])
def test_come_back_with_back_off(code):
    assert may_reconnect(code)


@pytest.mark.parametrize("cls", list(every_class()), ids=lambda cls: cls.__name__)
def test_an_error_is_a_value_that_can_be_sent(cls):
    error = cls("what happened", ref="stream 3")
    assert isinstance(error.code, ErrorCode)
    assert (error.message, error.ref, str(error)) == ("what happened", "stream 3", "what happened")
    assert error.fatal == (error.close_code is not None)


def test_a_given_code_counts_for_that_error_alone():
    error = errors.StreamError("gap", code=ErrorCode.STREAM_GAP)
    assert error.code is ErrorCode.STREAM_GAP
    assert errors.StreamError("other").code is ErrorCode.STREAM_UNKNOWN


def test_errors_that_close_the_socket_are_called_fatal_by_the_table():
    for cls in every_class():
        if cls.close_code is not None and cls is not errors.Forbidden:
            assert MEANINGS[cls.code].fatal
