"""Topic names and filters (5.0, 4.7)."""

LONGEST = 65_535


def check_topic(topic: str) -> None:
    """ValueError unless `topic` is a topic name."""
    _check(topic, "topic")
    if "+" in topic or "#" in topic:
        raise ValueError(f"topic {topic!r}: a topic name has no wildcards")


def check_filter(topic_filter: str) -> None:
    """ValueError unless `topic_filter` is a topic filter, shared or not."""
    _check(topic_filter, "filter")
    rest = topic_filter
    if topic_filter.startswith("$share/"):
        _, name, *more = topic_filter.split("/", 2)
        if not name or "+" in name or "#" in name or not more or not more[0]:
            raise ValueError(f"filter {topic_filter!r}: expected $share/NAME/FILTER")
        rest = more[0]
    levels = rest.split("/")
    for number, level in enumerate(levels, 1):
        if "#" in level and (level != "#" or number < len(levels)):
            raise ValueError(f"filter {topic_filter!r}: # stands alone in the last level")
        if "+" in level and level != "+":
            raise ValueError(f"filter {topic_filter!r}: + stands alone in its level")


def _check(text: str, what: str) -> None:
    if text == "":
        raise ValueError(f"{what} '': expected at least one character")
    check_text(text, what)


def check_text(text: object, what: str) -> None:
    """ValueError unless `text` is text that fits into a packet."""
    if not isinstance(text, str):
        raise ValueError(f"{what}: {type(text).__name__}: expected text")
    if "\0" in text or len(text.encode()) > LONGEST:
        raise ValueError(f"{what} {text[:50]!r}: expected at most {LONGEST} bytes, without U+0000")


def is_exact(topic_filter: str) -> bool:
    """Whether there are no wildcards."""
    return "+" not in topic_filter and "#" not in topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a filter, not a shared one, matches a topic."""
    if topic.startswith("$") and topic_filter[:1] in "+#":
        return False
    levels = topic.split("/")
    for number, level in enumerate(topic_filter.split("/")):
        if level == "#":
            return True
        if number >= len(levels) or level not in ("+", levels[number]):
            return False
    return topic_filter.count("/") == len(levels) - 1


def overlap(one: str, other: str) -> bool:
    """Whether a topic can match both. Shared subscriptions overlap with none: each of their messages goes to one session."""
    if one.startswith("$share/") or other.startswith("$share/"):
        return False
    if is_exact(other):
        return matches(one, other)
    if is_exact(one):
        return matches(other, one)
    first, second = one.split("/"), other.split("/")
    for a, b in zip(first, second, strict=False):
        if "#" in (a, b):
            return True
        if a != b and "+" not in (a, b):
            return False
    longer = max(first, second, key=len)
    return len(first) == len(second) or longer[min(len(first), len(second))] == "#"
