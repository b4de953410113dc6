"""What the load tests say: memories in invented words, questions that recall them, and conversations that grow.

All of it follows from a seed, and no two memories are about the same thing, so that none replaces or duplicates another.
"""

import json
import uuid
from dataclasses import dataclass, field

from upstream import reply_to

SYLLABLES = "bar bel cor dan dor fel gar hal jor kal lin mar nor pol quen ral sel tam ul ven wes yor zan".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
GOODS = "walnuts lanterns anvils kettles saddles ropes mirrors barrels candles drums".split()

# A catalogued model gets IBEX's text in messages of its own; one that is not known gets it inside the client's first system message and
# its user messages. Both have to be sent again byte for byte.
MODELS = ("gpt-4o-mini", "house-model-7b")

DIRECTIVE = "You answer questions about depots. Say so when you do not know. Answer in one sentence."
SYSTEM = "You are the assistant of a haulage company."


def word(random):
    """An invented name of three syllables."""
    return "".join(random.choice(SYLLABLES) for _ in range(3)).capitalize()


def words(random, count):
    """As many different ones."""
    found = {}
    while len(found) < count:
        found[word(random)] = None
    return list(found)


def facts(random, count):
    """-> [(memory, a question that recalls it)]"""
    told = []
    for place in words(random, count):
        day, goods, leader = random.choice(DAYS), random.choice(GOODS), f"{word(random)} {word(random)}"
        told.append(random.choice([
            (f"The {place} depot ships its {goods} every {day}.", f"On which day does the {place} depot ship its {goods}?"),
            (f"The {place} depot is led by {leader}.", f"Who leads the {place} depot?"),
            (f"The {place} depot keeps its spare keys in the {goods} room.", f"Where does the {place} depot keep its spare keys?"),
        ]))
    return told


@dataclass
class Conversation:
    """A session of one client, which sends its whole history each time."""
    name: str
    model: str
    stream: bool = False
    # Without it IBEX has to recognise the session by its first message.
    named: bool = True
    messages: list = field(default_factory=lambda: [{"role": "system", "content": SYSTEM}])
    turn: int = 0

    def ask(self, question):
        """Begins a turn."""
        self.turn += 1
        self.messages.append({"role": "user", "content": question})

    def take_back(self):
        """The turn that was begun last did not happen."""
        self.turn -= 1
        self.messages.pop()

    def hear(self, trace):
        """Ends a turn with the provider's answer."""
        self.messages.append({"role": "assistant", "content": reply_to(trace)})

    def body(self):
        """The request. The messages stand last, so the body of each turn begins with that of the turn before, up to its last two bytes."""
        head = {"model": self.model, "stream": True} if self.stream else {"model": self.model}
        return json.dumps({**head, "messages": self.messages}, separators=(",", ":")).encode()

    def headers(self, token, trace):
        """Those of its next request."""
        named = {"x-ibex-session-id": self.name} if self.named else {}
        return {**headers(token), "traceparent": f"00-{trace}-{trace[:16]}-01", **named}


def headers(token):
    """What every request of the tests bears. The tokens are bound to the agent."""
    return {"authorization": f"Bearer {token}", "content-type": "application/json"}


def new_trace():
    """A trace id that no other request has."""
    return uuid.uuid4().hex


def extends(earlier, later):
    """Whether the body of a later turn begins with all messages of an earlier one, byte for byte."""
    return later.startswith(earlier[:-2] + b",") and earlier.endswith(b"]}")


def difference(earlier, later):
    """Where two bodies part, with a little of both."""
    at = next((i for i, (a, b) in enumerate(zip(earlier, later)) if a != b), min(len(earlier), len(later)))
    cut = slice(max(at - 40, 0), at + 60)
    return f"at byte {at} of {len(earlier)} and {len(later)}: {earlier[cut]!r} against {later[cut]!r}"
