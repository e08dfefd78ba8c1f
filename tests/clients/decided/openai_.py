"""The OpenAI SDK, which repeats what it may: a budget of tokens, by HTTP/1.1 and HTTP/2, streaming and not."""

import os, time

import httpx
from openai import APIStatusError, OpenAI


def ask(client, **more):
    asked = {"model": "gpt-4o-mini", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}
    answer = client.chat.completions.create(**(asked | more))
    if more.get("stream"):
        return "".join(piece.choices[0].delta.content for piece in answer if piece.choices)
    return answer.choices[0].message.content


streams = {"stream": True, "stream_options": {"include_usage": True}}
for http2 in (False, True):
    client = OpenAI(timeout=20, http_client=httpx.Client(http2=http2))
    assert ask(client) == "yes"
    assert ask(client, **streams) == "yes"
went, began = 0, time.monotonic()
try:
    while went < 20:
        assert ask(client, **streams) == "yes"
        went += 1
except APIStatusError as error:
    print(f"openai: {type(error).__name__}: {error}")
    assert error.status_code == 402, error
    assert time.monotonic() - began < 10
assert 1 <= went <= 3, went
# A label that one stream of a connection gives forbids the next.
with httpx.Client(http2=True, headers={"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}) as one:
    answers = [one.get(f"https://api.openai.com/v1/{path}") for path in ("models", "files", "models")]
assert [answer.status_code for answer in answers] == [200, 200, 403], answers
assert {answer.http_version for answer in answers} == {"HTTP/2"} and "sealed" in answers[2].text, answers[2].text
print("ok openai")
