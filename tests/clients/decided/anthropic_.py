"""The Anthropic SDK: a budget of money, and a label that another request gave the session."""

import time

from anthropic import Anthropic, APIStatusError, PermissionDeniedError
from openai import OpenAI

client = Anthropic(timeout=20)


def ask(**more):
    asked = {"model": "claude-haiku-4-5", "max_tokens": 1000, "messages": [{"role": "user", "content": "hello"}]}
    if more:
        with client.messages.stream(**asked) as stream:
            return stream.get_final_text()
    return client.messages.create(**asked).content[0].text


assert ask() == ask(stream=True) == "yes"
went, began = 0, time.monotonic()
try:
    while went < 60:
        assert ask(stream=True) == "yes"
        went += 1
except APIStatusError as error:
    print(f"anthropic: {type(error).__name__}: {error}")
    assert error.status_code == 402, error
    assert time.monotonic() - began < 20
assert 5 <= went < 60, went
assert OpenAI(timeout=20).files.list().data == []
try:
    ask()
except PermissionDeniedError as error:
    print(f"anthropic: {type(error).__name__}: {error}")
    assert "sealed" in str(error), error
else:
    raise AssertionError("the label was overlooked")
print("ok anthropic")
