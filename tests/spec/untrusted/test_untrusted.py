"""The one reader, writer, seal and printer of what others may have made."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from uops.spec.untrusted import (
    BadFile,
    Either,
    SealMismatch,
    escape_to_one_line,
    escape_unprintable,
    find_misfit,
    read_bytes,
    read_json,
    read_text,
    seal,
    unseal,
    write_bytes,
    write_text,
)


def test_printable_escapes_what_acts_on_a_terminal_and_keeps_the_rest():
    assert escape_unprintable("a\tb\nμ−×") == "a\tb\nμ−×"
    assert escape_unprintable("\x1b[31m\x07\x9b\u202e\ud800\r") == "\\x1b[31m\\x07\\x9b\\u202e\\ud800\\x0d"
    assert escape_unprintable(escape_unprintable("\x1b")) == escape_unprintable("\x1b")


def test_a_quoted_name_is_one_printable_line():
    assert escape_to_one_line("n\nok\t\x07\u2028μ") == "n\\nok\\t\\x07\\u2028μ"
    assert escape_to_one_line(escape_to_one_line("\n")) == escape_to_one_line("\n")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev", "pipe"])
def test_only_regular_files_are_read(tmp_path, path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match=path.rpartition("/")[2]):
        read_bytes(tmp_path / path)


def test_a_file_above_the_limit_is_refused_with_its_name(tmp_path):
    (tmp_path / "large").write_bytes(b"12345")
    assert read_bytes(tmp_path / "large", max_bytes=5) == b"12345"
    with pytest.raises(BadFile, match="large is too large: expected at most 4 bytes"):
        read_bytes(tmp_path / "large", max_bytes=4)


def test_text_drops_a_byte_order_mark_and_names_the_line_that_is_no_utf8(tmp_path):
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_text(tmp_path / "t") == "a\nb"
    (tmp_path / "t").write_bytes(b"a\nb\xff")
    with pytest.raises(BadFile, match=r"t:2 is not UTF-8 text: .*0xff"):
        read_text(tmp_path / "t")


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "1" * 5000, "NaN", '{"a": Infinity}', ""])
def test_what_is_no_json_is_one_line_with_the_file(tmp_path, text):
    (tmp_path / "j.json").write_text(text)
    with pytest.raises(BadFile, match=r"j\.json.* is no JSON") as caught:
        read_json(tmp_path / "j.json")
    assert "\n" not in str(caught.value)


def test_a_file_is_replaced_whole_with_its_permissions(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    write_text(tmp_path / "link", "new \ud800", durable=True)
    assert path.read_text() == "new \\ud800"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["f", "link"]


def test_a_durable_file_is_on_the_disk_before_its_name_and_both_at_the_end(tmp_path, monkeypatch):
    fsync, replace, calls = os.fsync, os.replace, []
    monkeypatch.setattr(os, "fsync", lambda f: (calls.append("folder" if stat.S_ISDIR(os.fstat(f).st_mode) else "file"), fsync(f)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("rename"), replace(*paths)))
    monkeypatch.chdir(tmp_path)
    for follow_links in (True, False):
        write_bytes("f", b"new", durable=True, follow_links=follow_links)
    assert calls == ["file", "rename", "folder"] * 2


@pytest.mark.parametrize("call", ["replace", "fsync", "fchmod"])
def test_a_failing_system_call_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, call):
    path = tmp_path / "f"
    path.write_text("old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(path, b"new", durable=True)
    assert caught.value.filename == str(path)
    assert os.listdir(tmp_path) == ["f"] and path.read_text() == "old"


def test_what_was_sealed_answers_its_own_question_alone():
    data = seal("object", 2, "key", b"payload")
    assert unseal("object", 2, "key", data) == b"payload"
    others = [("object", 2, "other"), ("object", 3, "key"), ("search", 2, "key")]
    for kind, schema, key in others:
        with pytest.raises(SealMismatch):
            unseal(kind, schema, key, data)
    for at in range(len(data)):
        with pytest.raises(SealMismatch):
            unseal("object", 2, "key", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(SealMismatch):
            unseal("object", 2, "key", data[:at])


FORM = {"a": int, "b?": [(str, float)], "c?": {str: Either(bool, None)}, "d?": frozenset({"x", "y"}), "e?": {"f": str, ...: ...}}


def test_a_value_of_the_form_fits():
    assert find_misfit({"a": 1}, FORM) is None
    assert (
        find_misfit({"a": -1, "b": [["x", 1], ["y", 1.5]], "c": {"k": None, "l": True}, "d": "x", "e": {"f": "", "g": 1}}, FORM)
        is None
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "it: expected an object, got an array of 0"),
        ({}, "a is missing"),
        ({"a": True}, "a: expected an integer, got True"),
        ({"a": 1.0}, "a: expected an integer, got 1.0"),
        ({"a": 1 << 63}, "a: expected an integer, got a number beyond 64 bits"),
        ({"a": 1, "z\x1b\n": 1}, "z\\x1b\\n is not known"),
        ({"a": 1, "b": {}}, "b: expected an array, got an object"),
        ({"a": 1, "b": [["x", 1], ["y"]]}, "b[1]: expected an array of 2, got an array of 1"),
        ({"a": 1, "b": [["x", "1"]]}, "b[0][1]: expected a number, got '1'"),
        ({"a": 1, "c": {"k": 0}}, "c.k: expected true or false or null, got 0"),
        ({"a": 1, "d": "z"}, "d: expected one of x, y, got 'z'"),
        ({"a": 1, "d": []}, "d: expected one of x, y, got an array of 0"),
        ({"a": 1, "e": {}}, "e.f is missing"),
    ],
)
def test_a_value_of_another_form_is_said_with_its_place(value, says):
    assert find_misfit(value, FORM) == says


def test_a_link_to_an_open_pipe_is_written_to():
    """As /dev/stdout is where standard output is a pipe; the link names no file."""
    reader, writer = os.pipe()
    try:
        write_bytes(f"/dev/fd/{writer}", b"new", durable=True)
        assert os.read(reader, 9) == b"new"
    finally:
        os.close(reader)
        os.close(writer)


def test_without_following_links_a_file_takes_the_place_of_a_link_or_pipe(tmp_path):
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        write_bytes(tmp_path / name, b"new", follow_links=False)
        assert read_bytes(tmp_path / name, follow_links=False) == b"new"
    assert (tmp_path / "outside").read_text() == "outside"


def test_a_quoted_name_is_one_line_and_says_its_controls() -> None:
    assert escape_to_one_line("a\nb\tc\x07\x1b\ud800") == "a\\nb\\tc\\x07\\x1b\\ud800"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800\0"])
def test_what_is_no_name_of_a_file_is_said(name: str) -> None:
    with pytest.raises(BadFile, match="is not a file name"):
        read_bytes(name)
