"""Who buys what: customers and items in desks that share neither, so that splits by desk share no name and no item."""

from __future__ import annotations

DESKS = 21
PARAPHRASING = 14  # desks from here on ask in more ways than the others
ITEMS_PER_DESK, NAMES_PER_DESK = 6, 3
# Everyday words: most are one token of SmolLM2's tokenizer after a space.
ITEMS = """
kettle lamp chair radio clock mirror blanket basket jacket helmet printer camera candle hammer pillow wallet guitar
puzzle carpet ladder bottle brush drill globe kite vase tent stool shelf bowl plate spoon knife fork towel rug couch
desk bench piano drum flute violin bicycle heater fan oven mixer blender grill monitor keyboard mouse laptop tablet
charger speaker headphones microphone table bed mattress curtain boots gloves hat belt tie shirt socks watch ring
necklace backpack umbrella notebook pen pencil marker ruler scissors calendar map telescope microscope compass whistle
toaster scarf teapot mug sofa sweater suitcase stapler scooter dress apron bucket broom mop jar pot pan tray cradle hose
rake shovel saw wrench tripod lantern cushion drawer cabinet wardrobe fridge freezer dishwasher dryer iron sink pump
flag poster
"""
FIRST_NAMES = """
Mia Ana Tom Ella Max Ivy Leo Zoe Sam Ruth Finn Nora Hugo Lily Omar Jade Noah Rosa Otto Vera Paul Jane Carl Alice Mark
Lucy Adam Beth Cara Dean Emma Fred Gina Hank Iris Jack Kate Luke Mona Neil Olga Pete Rita Seth Tina Umar Vince Wendy
Yuri Anna Bill Cleo Dora Eric Fay Glen Hope Ian June Kurt Lena Mila Nick
"""
LAST_NAMES = """
Kent Cole Reed Ford Lane Stone Hart Wood Bell Page Gray West Cross Park Dale Fox Hill Ward Nash Shaw King Moss Rice Boyd
Tate Webb Adams Baker Clark Davis Evans Fisher Grant Hayes Irwin Jones Knight Lewis Mason Norris Owen Porter Quinn
Rogers Scott Turner Unger Vance Walsh York Allen Brown Carter Duncan Ellis Foster Gibson Howard Jensen Keller Lopez
Miller Nolan
"""


def items_of(desk: int) -> list[str]:
    """The items that a desk's customers buy; desks are numbered from 0."""
    return ITEMS.split()[desk::DESKS][:ITEMS_PER_DESK]


def customers_of(desk: int) -> list[str]:
    """The customers of a desk: each first name with each last name."""
    first, last = (names.split()[desk::DESKS][:NAMES_PER_DESK] for names in (FIRST_NAMES, LAST_NAMES))
    return [f"{one} {other}" for one in first for other in last]


def desk_of(customer: str) -> int | None:
    """The desk of a customer; None for a stranger."""
    return next((desk for desk in range(DESKS) if customer in customers_of(desk)), None)
