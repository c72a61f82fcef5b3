"""A headless Chromium that tests drive through a pipe, by the DevTools protocol. It needs no package.

https://chromedevtools.github.io/devtools-protocol/ describes the commands.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0  # seconds for an answer; a busy machine starts a browser slowly


def find_chromium() -> str | None:
    """Returns the program. Where a skipped test would hide a fault, REQUIRE_CHROMIUM makes its absence an error."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None and os.environ.get("REQUIRE_CHROMIUM"):
        raise FileNotFoundError("REQUIRE_CHROMIUM is set, and there is no Chromium; apt-get install chromium")
    return program


@dataclass
class Browser:
    process: subprocess.Popen[bytes]
    commands: int  # file descriptors of the two pipes
    answers: int
    session: str = ""
    last_id: int = 0
    unread: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    @contextmanager
    def start(program: str, folder: Path) -> "Iterator[Browser]":
        """Starts a browser with a profile of its own; it reads commands from descriptor 3 and answers on 4."""
        from_test, commands = os.pipe()
        answers, to_test = os.pipe()
        flags = (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"),
            *("--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={folder}"),
        )
        command = f'exec "$0" "$@" 3<&{from_test} 4>&{to_test}'
        process = subprocess.Popen(
            ["/bin/bash", "-c", command, program, *flags, "about:blank"],
            pass_fds=(from_test, to_test),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_test)
        os.close(to_test)
        browser = Browser(process, commands, answers)
        try:
            browser.open_tab()
            yield browser
        finally:
            process.kill()
            process.wait()
            os.close(commands)
            os.close(answers)

    def open_tab(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Sends a command and returns its result."""
        self.last_id += 1
        message: dict[str, Any] = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def read(self) -> dict[str, Any]:
        """Returns the next message; messages end with a zero byte."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.unread:
            if not select.select([self.answers], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.answers, 1 << 20)
            if not data:
                raise EOFError("the browser has ended")
            self.unread += data
        message, self.unread = self.unread.split(b"\0", 1)
        content: dict[str, Any] = json.loads(message)
        return content

    # --- what a user does ---

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Opens a file at a size of window, and waits until it is loaded."""
        self.events.clear()
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=media)
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **sizes)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait(lambda: self.run("document.readyState === 'complete' && location.protocol === 'file:'"))

    def run(self, script: str) -> Any:
        """Returns the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def choose(self, selector: str, value: str) -> None:
        """Chooses an option or writes a text, as a user would, with the events that follow."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.value = {json.dumps(value)}")
        for event in ("input", "change"):
            self.run(f"{element}.dispatchEvent(new Event('{event}', {{bubbles: true}}))")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def save_downloads(self, folder: Path) -> None:
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def screenshot(self, path: Path) -> None:
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    # --- what a test asks ---

    def problems(self) -> list[str]:
        """Returns the errors and warnings that the page has logged."""
        self.run("0")  # collects the events before it
        texts = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                texts.append(str(event["params"]["exceptionDetails"]))
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                texts.append(str(event["params"]["entry"]))
            if event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                texts.append(str(event["params"]["args"]))
        return texts

    def addresses(self) -> list[str]:
        """Returns what the page has fetched, without what it holds itself."""
        self.run("0")
        requests = (event for event in self.events if event.get("method") == "Network.requestWillBeSent")
        fetched = [str(event["params"]["request"]["url"]) for event in requests]
        return [address for address in fetched if not address.startswith(("data:", "blob:"))]

    def wait(self, is_done: Callable[[], Any]) -> None:
        """Asks until the answer is true."""
        deadline = time.monotonic() + PATIENCE
        while not is_done():
            if time.monotonic() > deadline:
                raise TimeoutError("the page did not get there")
            select.select([], [], [], 0.02)
