"""Predictions files as nobody should write them: each is accepted with a note or refused in words.

Whatever is accepted gives the same labels as the plain file; nothing is graded by a guess.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import zipfile

import pytest

from orchestrator.scoring.predictions import Columns, Read, Refused, read

COLUMNS = Columns(id="id", label="label", positive_words=("spam",), negative_words=("ham",))
IDS = ["h1", "h2", "h3", "h4"]
LABELS = [0, 1, 0, 1]
PLAIN = "id,label\nh1,0\nh2,1\nh3,0\nh4,1\n"


def file(*rows: str, header: str = "id,label") -> bytes:
    return "\n".join((header, *rows, "")).encode()


def with_first(row: str) -> bytes:
    return file(row, "h2,1", "h3,0", "h4,1")


def labelled(zero: str, one: str) -> bytes:
    return file(f"h1,{zero}", f"h2,{one}", f"h3,{zero}", f"h4,{one}")


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("xl/workbook.xml", PLAIN)
    return out.getvalue()


FLOATS, NUMBERS = "labels written as floats (1.0)", "labels written as numbers (1e0)"
SPACES, QUOTED = "spaces around values", "quoted fields"
ACCEPTED: dict[str, tuple[bytes, list[str]]] = {
    "mixed quoting": (file('"h1",0', 'h2,"1"', '"h3","0"', "h4,1"), [QUOTED]),
    "CR alone": (PLAIN.replace("\n", "\r").encode(), ["line ends other than LF"]),
    "line ends mixed": (
        b"id,label\r\nh1,0\nh2,1\r\nh3,0\rh4,1",
        ["line ends other than LF"],
    ),
    "a line end inside the quotes of an id": (with_first('"h1\n",0'), [QUOTED, SPACES]),
    "blank lines at the end": (PLAIN.encode() + b"\n\n", ["blank lines"]),
    "spaces around ids and labels": (with_first("\th1 , 0 "), [SPACES]),
    "spaces that don't break": (with_first("h1\u00a0,0"), [SPACES]),
    "numbers of savetxt": (
        labelled("0.000000000000000000e+00", "1.000000000000000000e+00"),
        [NUMBERS],
    ),
    "1e0": (labelled("0e0", "1e0"), [NUMBERS]),
    "+1": (labelled("-0", "+1"), [NUMBERS]),
    "1.": (labelled("0.", "1."), [NUMBERS]),
    "TRUE": (
        labelled("FALSE", "TRUE"),
        ["labels written as 'FALSE'", "labels written as 'TRUE'"],
    ),
    "words of the task in capitals": (
        labelled("HAM", "Spam"),
        ["labels written as 'HAM'", "labels written as 'Spam'"],
    ),
    "words and numbers": (
        file("h1,ham", "h2,1", "h3,0.0", "h4,True"),
        ["labels written as 'ham'", FLOATS, "labels written as 'True'"],
    ),
    "an index that is quoted": (
        file('"1","h1",0', '"2","h2",1', '"3","h3",0', '"4","h4",1', header='"","id","label"'),
        [QUOTED, "an index column"],
    ),
    "a byte order mark before quotes": (
        codecs.BOM_UTF8 + b'"id","label"\n' + PLAIN.encode().split(b"\n", 1)[1],
        ["byte order mark", QUOTED],
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_and_listed(name: str) -> None:
    content, notes = ACCEPTED[name]
    found = read(content, IDS, COLUMNS)
    assert isinstance(found, Read), found
    assert found.labels == LABELS
    assert found.normalisations == notes


MISSING_1 = "1 of 4 ids missing (h1)"
REFUSED: dict[str, tuple[bytes, list[str]]] = {
    "a very long field": (with_first("h1," + "0" * (1 << 21)), ["field larger than field limit"]),
    "a very long header": (b"x" * (1 << 21), ["the header can't be read: field larger"]),
    "a long id": (with_first("h" * 9999 + ",0"), [f"not asked for ({'h' * 40})", MISSING_1]),
    "a quote that stays open": (with_first('"h1,0'), ["it can't be read beyond row 0: unexpected"]),
    "a quote that closes too late": (
        file('"h1,0', 'h2",1', "h3,0", "h4,1"),
        ["ids that were not asked for (h1,0\\nh2)", "2 of 4 ids missing (h1, h2)"],
    ),
    "text after a quote": (with_first('"h1"x,0'), ["it can't be read beyond row 0"]),
    "the label column twice": (
        file("h1,0,1", "h2,1,0", header="id,label,label"),
        ["the columns are 'id', 'label', 'label'; wanted are 'id', 'label'"],
    ),
    "the id column twice": (file("h1,h1,0", header="id,id,label"), ["'id', 'id', 'label'"]),
    "other case in the header": (
        file("h1,0", header="ID,Label"),
        ["the columns are 'ID', 'Label'"],
    ),
    "a letter that looks the same": (
        with_first("\u04bb1,0"),
        [r"not asked for (\u04bb1)", MISSING_1],
    ),
    "a space of no width": (with_first("h1\u200b,0"), [r"(h1\u200b)", MISSING_1]),
    "a name in the header that looks the same": (
        file("h1,0", header="\u0456d,label"),
        [r"the columns are '\u0456d', 'label'"],
    ),
    "a byte order mark in the middle": (with_first("\ufeffh1,0"), [r"(\ufeffh1)", MISSING_1]),
    "two byte order marks": (codecs.BOM_UTF8 * 2 + PLAIN.encode(), [r"'\ufeffid', 'label'"]),
    "control characters in an id": (with_first("h1\x1b[2J\x07,0"), [r"(h1\x1b[2J\x07)"]),
    "yes and no": (
        labelled("no", "yes"),
        ["4 labels are neither 1 nor 0 ('no' for h1, 'yes' for h2, 'no' for h3, …)"],
    ),
    "full-width digits": (with_first("h1,\uff10"), [r"neither 1 nor 0 ('\uff10' for h1)"]),
    "digits of other scripts": (with_first("h1,\u0660"), [r"neither 1 nor 0 ('\u0660' for h1)"]),
    "a number beyond all": (with_first("h1," + "9" * 400), ["neither 1 nor 0 ('9999999"]),
    "a power beyond all": (with_first("h1,1e999999999999"), ["neither 1 nor 0"]),
    "nearly nothing": (with_first("h1,1e-400"), ["labels are probabilities", "(1e-400 for h1)"]),
    "nearly one": (
        with_first("h1,0.99999999999999999999"),
        ["labels are probabilities", "(0.99999999999999999999 for h1)"],
    ),
    "a zero in front": (with_first("h1,00"), ["neither 1 nor 0 ('00' for h1)"]),
    "other numbers": (with_first("h1,-1"), ["neither 1 nor 0 ('-1' for h1)"]),
    "infinity": (with_first("h1,inf"), ["neither 1 nor 0 ('inf' for h1)"]),
    "hexadecimal": (with_first("h1,0x0"), ["neither 1 nor 0 ('0x0' for h1)"]),
    "percent": (with_first("h1,7%"), ["neither 1 nor 0 ('7%' for h1)"]),
    "a decimal comma": (with_first("h1,0,5"), ["1 rows with another number of fields", MISSING_1]),
    "a quoted decimal comma": (with_first('h1,"0,5"'), ["neither 1 nor 0 ('0,5' for h1)"]),
    "a list as a label": (with_first("h1,[0]"), ["neither 1 nor 0 ('[0]' for h1)"]),
    "empty ids": (with_first(",0"), ["not asked for ((empty))", MISSING_1]),
    "semicolons": (PLAIN.replace(",", ";").encode(), ["'id;label' (separated by ';' instead of"]),
    "tabs": (PLAIN.replace(",", "\t").encode(), [r"'id\tlabel' (separated by '\t' instead of"]),
    "spaces": (PLAIN.replace(",", " ").encode(), ["'id label' (separated by ' ' instead of"]),
    "no header": (
        PLAIN.split("\n", 1)[1].encode(),
        ["the columns are 'h1', '0'", "the first row is one of predictions, no header"],
    ),
    "the header again": (
        file("h1,0", "h2,1", "id,label", "h3,0", "h4,1"),
        ["the header comes again 1 times (line 4)"],
    ),
    "commas at the ends of all lines": (
        PLAIN.replace("\n", ",\n").encode(),
        ["the columns are 'id', 'label', ''; wanted are 'id', 'label'"],
    ),
    "commas at the ends of rows": (
        file("h1,0,", "h2,1,", "h3,0,", "h4,1,"),
        ["4 rows with another number of fields than the header's 2 (line 2 has 3, "],
    ),
    "an index column without a header": (
        file("0,h1,0", "1,h2,1", "2,h3,0", "3,h4,1"),
        ["4 rows with another number of fields than the header's 2 (line 2 has 3, "],
    ),
    "comments before the header": (b"# by model 7\n" + PLAIN.encode(), ["the columns are '# by"]),
    "comments between rows": (
        file("h1,0", "h2,1", "# half of it", "h3,0", "h4,1"),
        ["1 rows with another number of fields than the header's 2 (line 4 has 1)"],
    ),
    "UTF-16": (PLAIN.encode("utf-16"), ["the file is UTF-16; UTF-8 is wanted"]),
    "UTF-16 without its mark": (PLAIN.encode("utf-16-le"), ["NUL bytes; it is no text"]),
    "UTF-32": (PLAIN.encode("utf-32"), ["the file is UTF-32; UTF-8 is wanted"]),
    "Latin-1": (with_first("h1,0").replace(b"h1", "hé".encode("latin-1")), ["not UTF-8 (line 2)"]),
    "gzip": (gzip.compress(PLAIN.encode()), ["the file is gzip; plain CSV is wanted"]),
    "bzip2": (bz2.compress(PLAIN.encode()), ["the file is bzip2; plain CSV is wanted"]),
    "a workbook": (zipped(), ["the file is a zip archive or a workbook; plain CSV is wanted"]),
    "Parquet": (b"PAR1" + bytes(40), ["the file is Parquet; plain CSV is wanted"]),
    "JSON": (
        json.dumps([{"id": one, "label": 0} for one in IDS], indent=1).encode(),
        ["the columns are '['; wanted are 'id', 'label'"],
    ),
    "JSON lines": (b'{"id": "h1", "label": 0}\n', ['the columns are \'{"id": "h1"\'']),
    "a traceback": (b"Traceback (most recent call last):\n", ["the columns are 'Traceback"]),
    "a table of Markdown": (b"| id | label |\n|---|---|\n", ["separated by '|' instead of"]),
    "NUL bytes": (with_first("h1,\0"), ["the file holds 1 NUL bytes; it is no text"]),
    "a byte order mark alone": (codecs.BOM_UTF8, ["the file is empty (3 bytes)"]),
    "a byte order mark and blank lines": (codecs.BOM_UTF8 + b"\n\n", ["the file is empty (5 b"]),
    "only blank lines": (b"\r\n\r\n", ["the file is empty (4 bytes)"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_words(name: str) -> None:
    content, says = REFUSED[name]
    found = read(content, IDS, COLUMNS)
    assert isinstance(found, Refused), found
    for part in says:
        assert part in found.sentence
    # Whatever the file holds, what is said of it is short and can be printed.
    assert found.sentence.isprintable()
    assert len(found.sentence) < 700


@pytest.mark.parametrize("where", ["header", "row"])
def test_ten_million_columns(where: str) -> None:
    wide = b"," * 10_000_000
    content = wide if where == "header" else with_first("h1,0") + wide
    found = read(content, IDS, COLUMNS)
    assert isinstance(found, Refused)
    says = "and 9999993 more" if where == "header" else "(line 6 has 10000001)"
    assert says in found.sentence


def test_ids_with_leading_zeros_are_not_those_without() -> None:
    for ids, written in ((["007"], "7"), (["7"], "007")):
        found = read(f"id,label\n{written},1\n".encode(), ids, COLUMNS)
        assert isinstance(found, Refused)
        assert found.problems == [
            f"1 ids that were not asked for ({written})",
            f"1 of 1 ids missing ({ids[0]})",
        ]


def test_an_id_is_first_of_all_what_the_task_has() -> None:
    ids = [" a", "a", "b ", "1.0"]
    found = read(b"id,label\n a,1\na,0\nb ,1\n1.0,0\n", ids, COLUMNS)
    assert isinstance(found, Read)
    assert (found.labels, found.normalisations) == ([1, 0, 1, 0], [])


def test_two_spellings_of_an_id_are_one_id_twice() -> None:
    found = read(b"id,label\n1,1\n1.0,0\n 1,x\n", ["1"], COLUMNS)
    assert isinstance(found, Refused)
    assert "1 ids more than once (1), 1 with different labels" in found.sentence


def test_a_score_in_digits_of_other_scripts_is_none() -> None:
    columns = Columns(id="id", label="label", score="score")
    found = read("id,label,score\nh1,0,\uff10.\uff15\n".encode(), ["h1"], columns)
    assert isinstance(found, Refused)
    assert found.problems == [r"1 scores are no finite number ('\uff10.\uff15' for h1)"]


def test_labels_of_a_task_may_be_words() -> None:
    words = Columns(id="id", label="label", positive="Spam", negative="ham")
    found = read(b"id,label\na,SPAM\nb,ham\nc,false\n", ["a", "b", "c"], words)
    assert isinstance(found, Read)
    assert found.labels == [1, 0, 0]
    assert found.normalisations == ["labels written as 'SPAM'", "labels written as 'false'"]
    for number in ("1", "1.0", "1e0"):
        assert isinstance(read(f"id,label\na,{number}\n".encode(), ["a"], words), Refused)


def test_spellings_by_the_hundred_are_summed_up() -> None:
    ids = [f"h{number}" for number in range(64)]
    spelt = ["".join(c.upper() if n >> i & 1 else c for i, c in enumerate("false"))
             for n in range(32)]  # fmt: skip
    rows = "\n".join(f"{one},{spelt[number % 32]}" for number, one in enumerate(ids))
    found = read(f"id,label\n{rows}\n".encode(), ids, COLUMNS)
    assert isinstance(found, Read)
    assert len(found.normalisations) == 21
    assert found.normalisations[-1] == "labels written in 12 other ways"
