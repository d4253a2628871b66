"""README and docs say what is there: links, commands with their options, specs, sections that the code cites, tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tpuctl.cli.main import app, register_all
from tpuctl.emulator.scenario_yaml import parse_text
from tpuctl.spec.yaml import parse_cluster, parse_run

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
CASES = ROOT / "tests" / "cases.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")), CASES)

FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(?P<line>\S.*)$", re.MULTILINE)
INLINE = re.compile(r"`(?P<line>tpuctl [^`]+)`")
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
SCENARIO = re.compile(r"<!-- scenario -->\n```yaml\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
SPEC = re.compile(r"<!-- spec: (?P<kind>cluster|run) -->\n```yaml\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CITED = re.compile(r"docs/(?P<page>[\w-]+\.md)(?:, \"?(?P<section>[A-Za-z][A-Za-z' ]*))?")
CITED_WHOLE = ("spec.md",)  # what follows a comma there is prose


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def headings_of(text: str) -> list[str]:
    return [match["text"].replace("`", "") for match in HEADING.finditer(FENCE.sub("", text))]


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# Links.


def relative_links() -> list[tuple[Path, str]]:
    found = [
        (page, match["target"])
        for page in PAGES
        for match in LINK.finditer(CODE.sub("", FENCE.sub("", page.read_text())))
    ]
    return [(page, target) for page, target in found if not target.startswith(("http:", "https:"))]


def test_every_relative_link_leads_somewhere() -> None:
    links = relative_links()
    broken = []
    for page, target in links:
        path, _, anchor = target.partition("#")
        led_to = (page.parent / path).resolve() if path else page
        if not led_to.exists():
            broken.append(f"{name_of(page)}: {target}")
        elif anchor and anchor not in map(anchor_of, headings_of(led_to.read_text())):
            broken.append(f"{name_of(page)}: {target} has no such heading")
    assert broken == []
    assert len(links) > 5


def test_what_the_code_cites_of_the_docs_is_there() -> None:
    cited = []
    for source in (*ROOT.glob("tpuctl/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("configs/**/*.py")):
        if source != Path(__file__):
            text = re.sub(r"\s+(?:# )?", " ", source.read_text())
            # A scheme or a host before it: somebody else's docs.
            cited += [(source, match) for match in CITED.finditer(text) if text[match.start() - 1] != "/"]
    missing = []
    for source, match in cited:
        page = ROOT / "docs" / match["page"]
        if not page.exists():
            missing.append(f"{name_of(source)}: {match[0]}")
        elif match["section"] and page.name not in CITED_WHOLE and not _has_section(page, match["section"]):
            missing.append(f"{name_of(source)}: {match[0]} has no such section")
    assert missing == []
    assert len(cited) > 5


def _has_section(page: Path, words: str) -> bool:
    """The cited words may go on beyond the section's name."""
    return any(words.lower().startswith(heading.lower()) for heading in headings_of(page.read_text()))


# Commands.


@cache
def root_command() -> Any:
    register_all()
    return typer.main.get_command(app)


def subcommands(command: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(command, "commands", {})
    return found


def all_commands(command: Any, path: str = "tpuctl") -> Iterator[tuple[str, Any]]:
    for name, sub in subcommands(command).items():
        yield f"{path} {name}", sub
        yield from all_commands(sub, f"{path} {name}")


def command_lines(page: Path) -> list[str]:
    """What readers may copy: lines of unmarked blocks, what follows a prompt in `text` blocks, and inline code."""
    text = page.read_text()
    lines = [match["line"] for match in INLINE.finditer(FENCE.sub("", text))]
    for block in FENCE.finditer(text):
        for line in block["body"].splitlines():
            if block["kind"] in ("", "sh", "console"):
                lines.append(re.sub(r'^\S+ "\$\((.*)\)"', r"\1", line))  # eval "$(...)"
            elif block["kind"] == "text" and "$ tpuctl" in line:
                lines.append(line.partition("$ ")[2])
    lines += [match["line"] for match in INDENTED.finditer(FENCE.sub("", text))]
    return [line for line in lines if re.match(r"tpuctl [a-z]", line) and "tpuctl.yaml" not in line.split()[0]]


def problem_with(line: str) -> str:
    """Why tpuctl would not take this line; "" if it would."""
    words = shlex.split(line.replace("[", "").replace("]", ""), comments=True)[1:]
    command, path = root_command(), "tpuctl"
    while words and subcommands(command):
        name = words.pop(0)
        if name.startswith("-"):
            words.insert(0, name)
            break
        if name not in subcommands(command):
            return f"{path} has no command {name!r}"
        command, path = subcommands(command)[name], f"{path} {name}"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word == "--":
            break
        option = word.partition("=")[0]
        if word.startswith("-") and option not in known | {"--help", "-h"}:
            return f"{path} has no option {option!r}"
    return ""


def test_every_command_in_the_docs_exists_with_its_options() -> None:
    lines = [(page, line) for page in PAGES for line in command_lines(page)]
    wrong = [
        f"{name_of(page)}: {line}: {problem}" for page, line in lines if (problem := problem_with(line.strip("…. ")))
    ]
    assert wrong == []
    assert len(lines) > 40


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("tpuctl up --wait all  # a comment", ""),
        ("tpuctl submit --name a -- python x.py --any", ""),
        ("tpuctl upp", "tpuctl has no command 'upp'"),
        ("tpuctl up --wait-for all", "tpuctl up has no option '--wait-for'"),
        ("tpuctl emulator fault ad", "tpuctl emulator fault has no command 'ad'"),
    ],
)
def test_the_check_of_commands_can_fail(line: str, problem: str) -> None:
    assert problem_with(line) == problem


def test_every_command_has_help_with_examples() -> None:
    commands = dict(all_commands(root_command()))
    lacking = [path for path, command in commands.items() if "Examples:" not in (command.help or "")]
    assert lacking == []
    assert len(commands) > 20


def test_the_guide_or_readme_shows_every_verb() -> None:
    shown = {line.split()[1] for page in PAGES for line in command_lines(page)}
    assert sorted(set(subcommands(root_command())) - shown) == []


def test_readme_names_exactly_the_two_commands() -> None:
    targets = set(re.findall(r"(?:`| {4})make ([a-z-]+)", README.read_text()))
    assert targets == {"demo", "test"}
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


# Specs.


def test_specs_in_the_docs_are_good() -> None:
    blocks = [(page, match) for page in PAGES for match in SPEC.finditer(page.read_text())]
    for page, match in blocks:
        read = parse_cluster if match["kind"] == "cluster" else parse_run
        read(match["body"], name_of(page))  # raises SpecError with all problems
    assert {match["kind"] for _, match in blocks} == {"cluster", "run"}
    marked = {match["body"] for _, match in blocks}
    unmarked = [
        name_of(page)
        for page in PAGES
        for block in FENCE.finditer(page.read_text())
        if block["kind"] == "yaml" and "version: 1" in block["body"] and block["body"] not in marked
    ]
    assert unmarked == []


def test_every_scenario_in_the_docs_is_read() -> None:
    blocks = [(page, match) for page in PAGES for match in SCENARIO.finditer(page.read_text())]
    for page, match in blocks:
        parse_text(match["body"], name_of(page), lambda _: "")  # raises UserError with all problems
    assert len(blocks) == 1


# Field cases.


def test_every_field_case_is_listed_and_its_tests_exist() -> None:
    text = CASES.read_text()
    rows = re.findall(r"^\| (A\d\d) \| .+? \| (held|in part|not yet) \| (.*) \|$", text, re.MULTILINE)
    assert [case for case, _, _ in rows] == [f"A{number:02}" for number in range(1, 55)]
    missing = []
    for case, state, holders in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", holders)
        assert bool(named) == (state != "not yet"), case
        for file, test in named:
            path = ROOT / "tests" / file
            if not path.exists() or f"def {test}(" not in path.read_text():
                missing.append(f"{case}: {file}::{test}")
    assert missing == []
