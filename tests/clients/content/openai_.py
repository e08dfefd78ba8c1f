"""The OpenAI SDK: a model and its tokens, within and beyond what policy allows."""

from openai import OpenAI, PermissionDeniedError

client = OpenAI(max_retries=0, timeout=20)


def ask(**more):
    asked = {"model": "gpt-4o-mini", "max_tokens": 100, "messages": [{"role": "user", "content": "naïve \"max_tokens\": 9"}]}
    return client.chat.completions.create(**(asked | more)).choices[0].message.content


assert ask() == "yes"
assert ask(temperature=0.5, stop=["a", "b"]) == "yes"
for more in ({"model": "o3-pro"}, {"max_tokens": 257}, {"max_tokens": None}, {"extra_body": {"max_tokens": "1"}}):
    try:
        ask(**more)
    except PermissionDeniedError:
        continue
    raise AssertionError(f"{more} was allowed")


# What the provider runs is refused, also where it stands beside tools of one's own.
def respond(*tools, **more):
    asked = {"model": "gpt-5-mini", "max_output_tokens": 100, "input": "web_search", "tools": list(tools)}
    return client.responses.create(**(asked | more)).output_text


own = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"x": {"$ref": "#/$defs/web_search"}}}}
assert respond() == respond(own) == "yes"
for tools, more in (((own, {"type": "web_search"}), {}), (({"type": "mcp", "server_label": "x", "server_url": "https://x.test"},), {}),
                    ((), {"max_output_tokens": 257}), ((), {"prompt": {"id": "pmpt_1"}})):
    try:
        respond(*tools, **more)
    except PermissionDeniedError:
        continue
    raise AssertionError(f"{tools} {more} was allowed")
print("ok openai")
