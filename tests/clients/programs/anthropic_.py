"""The Anthropic SDK for Python: a message, and one that streams."""

from anthropic import Anthropic

from verdict import API, WORDS, Stream, verdict


def check():
    client = Anthropic(base_url=API, timeout=20, max_retries=0)
    asked = {"model": "claude-lab", "max_tokens": 100, "messages": [{"role": "user", "content": WORDS}]}
    assert client.messages.create(**asked).content[0].text == WORDS
    stream, text = Stream(), ""
    with client.messages.stream(**asked) as answer:
        for part in answer.text_stream:
            stream.part()
            text += part
    assert text == WORDS, text
    stream.check()


verdict("anthropic-python", check)
