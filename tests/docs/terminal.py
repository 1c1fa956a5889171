"""What a command shows on a terminal, as a picture that needs no font and no file beside it."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


def on_terminal(command: list[str], folder: Path, environment: Mapping[str, str], width: int) -> str:
    """What it writes to a terminal so many columns wide, until it ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # the terminal's end
        while part := os.read(ours, 1 << 16):
            said += part
    os.close(ours)
    process.wait()
    return said.decode("utf-8", errors="replace").replace("\r\n", "\n")


def picture(command: str, said: str, width: int, lines: int) -> str:
    """An SVG of a window with the command and the first lines of what it wrote."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor")
    shown = said.rstrip("\n").split("\n")
    console.print(Text.from_ansi(f"$ {command}", style="bold"))
    console.print(Text.from_ansi("\n".join(shown[:lines])), overflow="crop", no_wrap=True, crop=True)
    if len(shown) > lines:
        console.print(Text("...", style="dim"))
    svg = console.export_svg(title="", theme=MONOKAI, unique_id="terminal")
    without_fonts = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)
    return re.sub(r"Fira Code(, monospace)?", lambda _: _FONT, without_fonts).rstrip() + "\n"
