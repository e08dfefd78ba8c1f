"""The OpenAI SDK for Python: a chat completion, and one that streams."""

from openai import OpenAI

from verdict import API, WORDS, Stream, verdict


def check():
    client = OpenAI(base_url=API + "/v1", timeout=20, max_retries=0)
    asked = {"model": "gpt-lab", "messages": [{"role": "user", "content": WORDS}]}
    assert client.chat.completions.create(**asked).choices[0].message.content == WORDS
    stream, text = Stream(), ""
    for chunk in client.chat.completions.create(**asked, stream=True):
        stream.part()
        text += chunk.choices[0].delta.content or ""
    assert text == WORDS, text
    stream.check()


verdict("openai-python", check)
