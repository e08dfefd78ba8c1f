"""The Anthropic SDK: a model and its tokens, within and beyond what policy allows."""

from anthropic import Anthropic, PermissionDeniedError

client = Anthropic(max_retries=0, timeout=20)


def ask(**more):
    asked = {"model": "claude-haiku-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": "naïve"}]}
    return client.messages.create(**(asked | more)).content[0].text


assert ask() == "yes"
for more in ({"model": "claude-opus-4-6"}, {"max_tokens": 257}, {"extra_body": {"max_tokens": 1.5}}):
    try:
        ask(**more)
    except PermissionDeniedError:
        continue
    raise AssertionError(f"{more} was allowed")
print("ok anthropic")
