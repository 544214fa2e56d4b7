"""The events that the generated articles are about: sentences that report them, and the sentence that sums each up.

In a template a slot is a name in braces. Slots in capitals have invented values, which only copying can produce:
PERSON, SECOND and WITNESS (two names), PLACE, ELSEWHERE, FIRM and OTHER (one name), NUMBER, COUNT and PAST (numbers).
PERSON:last is the last name alone. The other slots have values of `CHOICES`.
"""

from dataclasses import dataclass

CHOICES = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "building": ("bakery", "cinema", "school", "warehouse", "library", "hotel", "garage", "theatre"),
    "product": ("bicycles", "batteries", "tractors", "pianos", "windows", "shoes", "engines", "lamps"),
    "sport": ("chess", "tennis", "rowing", "fencing", "judo", "handball"),
    "find": ("coins", "bones", "letters", "maps", "tools", "statues"),
    "job": ("teacher", "farmer", "nurse", "baker", "judge", "painter", "engineer", "pilot"),
    "vehicle": ("train", "bus", "ferry", "tram"),
    "work": ("novel", "opera", "film", "symphony", "play"),
}
"""Slot → its values."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """One kind of event.

    Attributes:
        first: versions of the sentence that begins the report.
        facts: versions of each further sentence that the summary needs; the order of the sentences is free.
        asides: sentences that the summary does not need; names and numbers in them are distractors.
        summary: the summary.
    """

    first: tuple[str, ...]
    facts: tuple[tuple[str, ...], ...]
    asides: tuple[str, ...]
    summary: str


KINDS = (
    EventKind(
        first=(
            "A fire destroyed a {building} in {PLACE} on {day}.",
            "On {day}, a {building} in {PLACE} burned down.",
            "In {PLACE}, nothing is left of a {building} after a fire on {day}.",
        ),
        facts=(
            (
                "The smoke drove {COUNT} people out of their homes.",
                "Because of the smoke, {COUNT} people had to leave their homes.",
            ),
            (
                "The owner, {PERSON}, speaks of a loss of {NUMBER} crowns.",
                "According to {PERSON}, who owns it, {NUMBER} crowns are lost.",
            ),
        ),
        asides=(
            "{WITNESS}, who lives next door, heard a loud noise.",
            "A fire in {ELSEWHERE} cost {PAST} crowns last year.",
            "The cause is not known yet.",
        ),
        summary="Fire destroys {building} in {PLACE}, {COUNT} people leave their homes. Owner {PERSON} loses {NUMBER} "
        "crowns.",
    ),
    EventKind(
        first=(
            "The people of {PLACE} elected {PERSON} as their new mayor on {day}.",
            "{PERSON}, a {job}, is the new mayor of {PLACE}.",
            "On {day}, the {job} {PERSON} won the election in {PLACE}.",
        ),
        facts=(
            ("{PERSON:last} got {NUMBER} votes.", "As many as {NUMBER} people voted for {PERSON:last}."),
            (
                "{SECOND} came second with {COUNT} votes.",
                "With {COUNT} votes, {SECOND} came second.",
            ),
        ),
        asides=(
            "The mayor before, {WITNESS}, did not take part.",
            "In {ELSEWHERE}, only {PAST} people went to vote.",
            "It rained during the whole day.",
        ),
        summary="{PERSON} becomes mayor of {PLACE} with {NUMBER} votes, ahead of {SECOND} with {COUNT}.",
    ),
    EventKind(
        first=(
            "{FIRM}, which makes {product}, buys its rival {OTHER}.",
            "The {product} company {FIRM} takes over {OTHER}, it said on {day}.",
            "On {day}, {OTHER} was sold to {FIRM}, a maker of {product}.",
        ),
        facts=(
            ("The price is {NUMBER} crowns.", "The company pays {NUMBER} crowns."),
            (
                "{PERSON}, who leads the buyer, promised to keep {COUNT} workers.",
                "There will be work for {COUNT} people, said {PERSON}, the head of the buyer.",
            ),
        ),
        asides=(
            "The plant in {ELSEWHERE} is not part of the sale.",
            "{WITNESS} of the union was surprised.",
            "Ten years ago the company was worth {PAST} crowns.",
        ),
        summary="{FIRM} buys {OTHER} for {NUMBER} crowns. Head {PERSON} promises to keep {COUNT} workers.",
    ),
    EventKind(
        first=(
            "{PERSON} won the {sport} final in {PLACE} on {day}.",
            "On {day}, {PERSON} became the {sport} champion in {PLACE}.",
            "The {sport} champion is called {PERSON} since the final in {PLACE}.",
        ),
        facts=(
            ("{SECOND} lost the final.", "In the final, {SECOND} had no chance."),
            ("There were {COUNT} people in the hall.", "A crowd of {COUNT} saw it."),
        ),
        asides=(
            "The trainer, {WITNESS}, was in tears.",
            "In {ELSEWHERE}, {PAST} people followed it on a screen.",
            "The next final is in two years.",
        ),
        summary="{PERSON} beats {SECOND} in the {sport} final in {PLACE} before {COUNT} people.",
    ),
    EventKind(
        first=(
            "Workers found old {find} under a street in {PLACE} on {day}.",
            "Old {find} came to light in {PLACE} on {day}.",
            "On {day}, a digger in {PLACE} hit a box of old {find}.",
        ),
        facts=(
            (
                "{PERSON} of the museum said they are worth {NUMBER} crowns.",
                "They are worth {NUMBER} crowns, said {PERSON} of the museum.",
            ),
            ("They belonged to {SECOND}.", "Their owner was once {SECOND}."),
        ),
        asides=(
            "The museum of {ELSEWHERE} has {PAST} such things.",
            "{WITNESS} drove the digger.",
            "The street stays closed.",
        ),
        summary="Old {find} of {SECOND} found in {PLACE}. They are worth {NUMBER} crowns, says {PERSON}.",
    ),
    EventKind(
        first=(
            "A storm hit {PLACE} in the night to {day}.",
            "In the night to {day}, a storm raged over {PLACE}.",
            "{PLACE} was hit by a storm before {day}.",
        ),
        facts=(
            ("There is no power in {COUNT} homes.", "The power failed in {COUNT} homes."),
            (
                "A tree fell on the car of {PERSON}, a {job}.",
                "The car of a {job}, {PERSON}, was crushed by a tree.",
            ),
        ),
        asides=(
            "In {ELSEWHERE} there was only rain.",
            "{WITNESS} of the weather service had warned of it.",
            "The storm of last year did damage of {PAST} crowns.",
        ),
        summary="Storm in {PLACE}: {COUNT} homes without power, tree crushes car of {job} {PERSON}.",
    ),
    EventKind(
        first=(
            "The {vehicle} from {PLACE} to {OTHER} will run again on {day}.",
            "From {day} on, there is a {vehicle} between {PLACE} and {OTHER} again.",
            "On {day}, the {vehicle} line from {PLACE} to {OTHER} opens.",
        ),
        facts=(
            ("The repair cost {NUMBER} crowns.", "For the repair {NUMBER} crowns were spent."),
            ("{PERSON} will drive first.", "The first driver will be {PERSON}."),
        ),
        asides=(
            "People from {ELSEWHERE} must still walk.",
            "{WITNESS} planned the line.",
            "Before, {PAST} people used it in a year.",
        ),
        summary="{vehicle:upper} from {PLACE} to {OTHER} runs again after repair for {NUMBER} crowns. {PERSON} drives "
        "first.",
    ),
    EventKind(
        first=(
            "{PERSON} of {PLACE} received a prize for a new {work} on {day}.",
            "A {work} by {PERSON} of {PLACE} won a prize on {day}.",
            "On {day}, a prize went to {PERSON} of {PLACE}, who wrote a {work}.",
        ),
        facts=(
            ("The prize is {NUMBER} crowns.", "With it come {NUMBER} crowns."),
            ("{SECOND} gave the speech.", "The speech was given by {SECOND}."),
        ),
        asides=(
            "It will be shown in {ELSEWHERE} as well.",
            "{WITNESS} had won it the year before.",
            "Last time it was {PAST} crowns.",
        ),
        summary="{PERSON} of {PLACE} wins {NUMBER} crowns for {work}, {SECOND} gives speech.",
    ),
)
"""All kinds of events."""
