"""Writes prices.txt and costs.txt from the installed genai-prices (MIT), whose figures they hold.

Run it by hand after `pip install --upgrade genai-prices`, read the difference, and commit it: python3 src/spend/prices.py
"""

import datetime
import os
import re
from decimal import ROUND_UP, Decimal
from fnmatch import fnmatchcase
from importlib import metadata

from genai_prices import Usage, types
from genai_prices.data import providers

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = metadata.distribution("genai-prices")
# Hosts where the price is the one of the list. A region of its own may cost more, and so may a field of the request at
# Google's aiplatform: such hosts have no price here.
HOSTS = {
    "anthropic": "api.anthropic.com",
    "cohere": "api.cohere.com api.cohere.ai",
    "deepseek": "api.deepseek.com",
    "fireworks": "api.fireworks.ai",
    "google": "generativelanguage.googleapis.com",
    "groq": "api.groq.com",
    "mistral": "api.mistral.ai",
    "openai": "api.openai.com",
    "openrouter": "openrouter.ai",
    "together": "api.together.ai api.together.xyz",
    "x-ai": "api.x.ai",
}
INPUT, READ, WRITTEN, LONG, OUTPUT = "input_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok", "output_mtok"
# Dearer kinds of tokens; an answer says that it has them, but not for which part of the rest it does.
OTHER_INPUT = ["input_audio_mtok", "input_image_mtok", "input_video_mtok", "cache_audio_read_mtok", "cache_image_read_mtok"]
OTHER_OUTPUT = ["output_audio_mtok", "output_image_mtok", "output_video_mtok"]
# What only tools of the provider cost, which no budget of money lets through.
TOOLS = {"web_searches_kcount", "storage_searches_kcount"}
KNOWN = {INPUT, READ, WRITTEN, LONG, OUTPUT, "output_reasoning_mtok", *OTHER_INPUT, *OTHER_OUTPUT, *TOOLS}


def patterns(match):
    """A list of texts: `*` at an end is any text, `#` in the middle is a digit."""
    kind = type(match).__name__
    if kind == "ClauseOr":
        return [one for part in match.or_ for one in patterns(part)]
    if kind == "ClauseAnd":
        # What narrows it is left out: where two models match, the dearer one counts.
        return patterns(match.and_[0])
    if kind == "ClauseRegex":
        found = re.fullmatch(r"\^([^$]*)(\$?)", match.regex)
        texts = [found[1].replace("[-@]", mark) for mark in "-@"] if "[-@]" in found[1] else [found[1]]
        plain = [re.sub(r"\\d\{(\d)\}", lambda count: "#" * int(count[1]), text) for text in texts]
        plain = [text.replace(r"\d", "#").replace(r"\.", ".") for text in plain]
        assert not any(set(text) & set("\\()[]{}?+|") for text in plain), match
        return [text + ("" if found[2] else "*") for text in plain]
    text = next(iter(vars(match).values())).lower()
    assert not set(text) & set("*# \n"), match
    return [{"ClauseEquals": text, "ClauseStartsWith": f"{text}*", "ClauseEndsWith": f"*{text}", "ClauseContains": f"*{text}*"}[kind]]


def rate(price, start):
    if isinstance(price, types.TieredPrices):
        reached = [tier.price for tier in price.tiers if tier.start <= start]
        return reached[-1] if reached else price.base
    return price


def rates(prices, start):
    """The figures of one tier, or nothing where tokens are not all that is paid for."""
    own = {name: rate(price, start) for name, price in vars(prices).items() if price is not None}
    if INPUT not in own or set(own) - KNOWN:
        return None
    least = own[INPUT]
    written = own.get(WRITTEN, least)
    main = [least, own.get(READ, least), written, own.get(LONG, written)]
    output = max(own.get(OUTPUT, Decimal(0)), own.get("output_reasoning_mtok", Decimal(0)))
    other = [max([limit, *(own[name] for name in names if name in own)]) for names, limit in ((OTHER_INPUT, max(main)), (OTHER_OUTPUT, output))]
    has_other = any(name in own for name in [*OTHER_INPUT, *OTHER_OUTPUT])
    return [*main, output, *(other if has_other else [])], OUTPUT in own


def starts(prices):
    tiers = [tier.start for price in vars(prices).values() if isinstance(price, types.TieredPrices) for tier in price.tiers]
    return sorted({0, *tiers})


def dated(model):
    """For each day from which other figures hold: those that may hold at some hour of the day."""
    rows = model.prices if isinstance(model.prices, list) else [types.ConditionalPrice(prices=model.prices)]
    days = {row.constraint.start_date for row in rows if isinstance(row.constraint, types.StartDateConstraint)}
    for day in [None, *sorted(days)]:
        found = []
        for row in reversed(rows):
            if isinstance(row.constraint, types.StartDateConstraint) and (day is None or row.constraint.start_date > day):
                continue
            found.append(row.prices)
            if not isinstance(row.constraint, types.TimeOfDateConstraint):
                break
        yield day, found or [rows[0].prices]


def shown(figure):
    text = f"{figure.quantize(Decimal('0.000001'), ROUND_UP):f}"
    return text.rstrip("0").rstrip(".") or "0"


def price_lines(model):
    for day, all_prices in dated(model):
        for start in sorted({start for prices in all_prices for start in starts(prices)}):
            found = [rates(prices, start) for prices in all_prices]
            if not all(found) or not all(has_output or "embed" in model.id for _, has_output in found):
                return None
            widest = max(len(figures) for figures, _ in found)
            padded = [[*figures, max(figures[:4]), figures[4]][:widest] if len(figures) < widest else figures for figures, _ in found]
            yield " ".join(["price", str(day or "-"), str(start), *map(shown, map(max, zip(*padded)))])


def written():
    licence = next(file for file in PACKAGE.files if file.name == "LICENSE").read_text()
    yield f"# From genai-prices {PACKAGE.version} (https://github.com/pydantic/genai-prices) by prices.py; not edited by hand."
    yield f"# Taken on {datetime.date.today()}. Its licence:"
    yield from (f"# {line}".rstrip() for line in licence.strip().splitlines())
    yield "# provider HOST…; model NAME MOST_TOKENS PATTERN…; price FROM_DAY ABOVE_INPUT_TOKENS, and USD for a million tokens of"
    yield "# input, cache read, cache written, cache written for an hour, output, and of dearer kinds (sound, pictures): input, output."
    for provider in providers:
        if provider.id not in HOSTS:
            continue
        yield f"provider {HOSTS[provider.id]}"
        for model in provider.models:
            lines = list(price_lines(model))
            if lines:
                yield f"model {model.id.lower()} {model.context_window or '-'} {' '.join(dict.fromkeys(patterns(model.match)))}"
                yield from lines


def costs():
    """What the package itself reckons: for models with tiers or days on both sides of these, and for some others."""
    yield f"# From genai-prices {PACKAGE.version} by prices.py: HOST MODEL DAY INPUT READ WRITTEN LONG OUTPUT and the cost in nano-dollars."
    for provider in providers:
        if provider.id not in HOSTS:
            continue
        for nth, model in enumerate(provider.models):
            lines = list(price_lines(model))
            rows = model.prices if isinstance(model.prices, list) else []
            days = sorted(row.constraint.start_date for row in rows if isinstance(row.constraint, types.StartDateConstraint))
            by_hour = any(isinstance(row.constraint, types.TimeOfDateConstraint) for row in rows)
            is_told = nth % 64 == 0 or provider.id != "openrouter" and (days or any(line.split()[2] != "0" for line in lines) or nth % 16 == 0)
            names = [text.strip("*").replace("#", "1") for text in patterns(model.match)]
            names = [name for name in names if provider.find_model(name) is model and fits(provider, name) == 1]
            if not lines or by_hour or not is_told or not names:
                continue
            around = [day + datetime.timedelta(days=off) for day in days for off in (-1, 0)] or [datetime.date(2026, 11, 29)]
            for day in around:
                for scale in (1, 1000):
                    yield cost(HOSTS[provider.id].split()[0], provider, model, names[0], day, scale)


def fits(provider, name):
    """How many models have a pattern for the name."""
    globs = [[pattern.replace("#", "[0-9]") for pattern in patterns(model.match)] for model in provider.models]
    return sum(any(fnmatchcase(name, glob) for glob in some) for some in globs)


def cost(host, provider, model, name, day, scale):
    plain, read, written, long, output = (count * scale for count in (311, 97, 53, 19, 211))
    prices = model.get_prices(datetime.datetime(day.year, day.month, day.day, 12, tzinfo=datetime.UTC))
    counted = {"input_tokens": plain + read + written + long, "output_tokens": output}
    if vars(prices).get(READ) is not None:
        counted["cache_read_tokens"] = read
    if vars(prices).get(WRITTEN) is not None:
        counted["cache_write_tokens"] = written + long
    if vars(prices).get(LONG) is not None:
        counted["cache_write_1h_tokens"] = long
    if vars(prices).get(OUTPUT) is None:
        counted["output_tokens"] = output = 0
    total = prices.calc_price(Usage(**counted))["total_price"]
    nano = (total * 10**9).to_integral_value(ROUND_UP)
    return f"{host} {name} {day} {plain} {read} {written} {long} {output} {nano}"


def main():
    for name, lines in (("prices.txt", written()), ("costs.txt", costs())):
        with open(os.path.join(HERE, name), "w") as file:
            file.writelines(f"{line}\n" for line in lines)


main()
