"""The queue: one computation at a time, the newest first; what is replaced is not computed, and never answered."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from page_servers import Echo, serving
from regard.page.newest_first import MOST_KEYS, NewestFirst, ReplacedError


class Work:
    """Computations that are recorded; the first one waits until it is released."""

    def __init__(self):
        self.queue = NewestFirst()
        self.done = []
        self.running = 0
        self.most = 0
        self.release = threading.Event()
        self.started = threading.Event()

    def make(self, name):
        def compute():
            self.running += 1
            self.most = max(self.most, self.running)
            if name == "first":
                self.started.set()
                assert self.release.wait(30)
            self.done.append(name)
            self.running -= 1
            return name

        return compute

    async def first(self):
        task = asyncio.create_task(self.queue.run("other", 1, self.make("first")))
        await asyncio.to_thread(self.started.wait, 30)
        return task


def run_in_thread(run):
    """In a thread of its own, since the tests' browser keeps an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(run())).result()


async def results(tasks):
    found = await asyncio.gather(*tasks, return_exceptions=True)
    return ["replaced" if isinstance(one, ReplacedError) else one for one in found]


def test_the_newest_request_runs_first_and_one_at_a_time():
    async def run():
        work = Work()
        first = await work.first()
        tasks = [asyncio.create_task(work.queue.run(key, 1, work.make(key))) for key in "abc"]
        await asyncio.sleep(0)
        assert work.queue.busy
        work.release.set()
        assert await results([first, *tasks]) == ["first", "a", "b", "c"]
        assert work.done == ["first", "c", "b", "a"]
        assert work.most == 1
        assert not work.queue.busy

    run_in_thread(run)


def test_a_replaced_request_is_not_computed():
    async def run():
        work = Work()
        first = await work.first()
        tasks = [asyncio.create_task(work.queue.run("a", n, work.make(f"a{n}"))) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        work.release.set()
        assert await results([first, *tasks]) == ["first", "replaced", "replaced", "a3"]
        assert work.done == ["first", "a3"]

    run_in_thread(run)


def test_a_result_that_comes_too_late_is_not_answered():
    async def run():
        work = Work()
        first = await work.first()
        newer = asyncio.create_task(work.queue.run("other", 2, work.make("newer")))
        await asyncio.sleep(0)
        work.release.set()
        assert await results([first, newer]) == ["replaced", "newer"]

    run_in_thread(run)


@pytest.mark.parametrize("number", [2, 1, 0])
def test_a_request_that_arrives_after_a_newer_one_is_refused(number):
    async def run():
        queue = NewestFirst()
        assert await queue.run("a", 2, lambda: "a") == "a"
        with pytest.raises(ReplacedError):
            await queue.run("a", number, lambda: "late")

    run_in_thread(run)


def test_errors_are_those_of_the_computation():
    def leave():
        raise SystemExit(3)

    async def run():
        queue = NewestFirst()
        with pytest.raises(ZeroDivisionError):
            await queue.run("a", 1, lambda: 1 // 0)
        with pytest.raises(RuntimeError, match="SystemExit: 3"):
            await queue.run("a", 2, leave)
        assert await queue.run("a", 3, lambda: "after") == "after"

    run_in_thread(run)


def test_a_request_that_is_given_up_is_not_computed():
    async def run():
        work = Work()
        first = await work.first()
        task = asyncio.create_task(work.queue.run("a", 1, work.make("a")))
        await asyncio.sleep(0)
        task.cancel()
        await results([task])
        work.release.set()
        assert await results([first]) == ["first"]
        assert await work.queue.run("b", 1, work.make("b")) == "b"
        assert work.done == ["first", "b"]

    run_in_thread(run)


def test_one_thread_computes_everything():
    async def run():
        queue = NewestFirst()
        names = {await queue.run("a", n, lambda: threading.get_ident()) for n in range(1, 6)}
        assert len(names) == 1
        assert threading.get_ident() not in names

    run_in_thread(run)


def test_the_memory_of_keys_is_bounded():
    async def run():
        queue = NewestFirst()
        for place in range(MOST_KEYS + 7):
            await queue.run(str(place), 1, lambda: None)
        assert len(queue._numbers) == MOST_KEYS

    run_in_thread(run)


def test_quick_edits_compute_the_first_and_the_last_text():
    """While one text is read, later ones replace each other; the server answers the others without computing."""
    model = Echo()
    with serving(model) as client:
        replies = {}

        def ask(text, number):
            replies[text] = client.read(text, number=number)

        threads = [threading.Thread(target=ask, args=("wait", 1))]
        threads[0].start()
        assert model.started.wait(30)
        for number, text in enumerate(("wo", "wor", "word"), start=2):
            threads.append(threading.Thread(target=ask, args=(text, number)))
            threads[-1].start()
            deadline = time.monotonic() + 30
            while len(replies) < number - 2 and time.monotonic() < deadline:  # the text before is answered: replaced
                time.sleep(0.01)
        time.sleep(0.1)
        model.release.set()
        for thread in threads:
            thread.join(30)
        statuses = {text: reply.status for text, reply in replies.items()}
        assert statuses == {"wait": 409, "wo": 409, "wor": 409, "word": 200}
        assert replies["word"].json["answer"]["text"] == "word"
        assert model.texts == ["wait", "word"]


def test_a_model_error_is_a_message_and_the_server_lives_on(capfd):
    with serving(Echo()) as client:
        failed = client.read("fail now")
        assert failed.status == 500
        assert failed.json == {"error": "the model failed (RuntimeError: no weights for fail now)"}
        assert client.read("Hello", number=2).json["answer"]["text"] == "Hello"
    error = capfd.readouterr().err
    assert error == "regard: echo: the model failed (RuntimeError: no weights for fail now)\n"


def test_a_text_that_is_too_long_is_a_message():
    model = Echo()
    with serving(model) as client:
        reply = client.read("a" * 10_001)
        assert reply.status == 422
        assert "10,001 characters" in reply.json["error"]
        assert not model.texts
        assert client.read("a" * 10_000, number=2).status == 200


def test_hostile_text_comes_back_unchanged():
    with serving(Echo("</script><b>name")) as client:
        hostile = "</script><img src=x onerror=alert(1)>\x00\u202e\U0001f98a'\"\ud800"
        for number, text in enumerate([hostile, "", " ", "\n"], start=1):
            reply = client.read(text, number=number)
            assert reply.status == 200, reply.body
            assert reply.json["answer"]["text"] == text
            assert reply.headers["content-type"] == "application/json"
