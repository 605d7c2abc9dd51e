"""Who buys what: customers and items in desks that share neither, so that splits by desk share no name and no item."""

from __future__ import annotations

DESKS = 42
# Desks from here on are not for training. They are many and small, for the tasks of a desk count as one in the gate. They ask
# in more ways than the others.
UNSEEN = 14
PARTS, LARGE_SHARE, SMALL_SHARE = 126, 5, 2  # all words are dealt in so many parts
ITEMS_PER_PART, NAMES_PER_PART = 3, 2
# Everyday words: most are one token of SmolLM2's tokenizer after a space.
ITEMS = """
album anchor apron armchair atlas axe backpack badge bag ball balloon bandage banjo barrel barrow basin basket bathtub
battery beads beanbag bed bell belt bench bicycle bin blanket blazer blender blinds blouse board boat bolt bonnet book
boots bottle bow bowl box bracelet bracket briefcase broom brush bucket buckle bulb bunk button cabinet cable cactus
cage calculator calendar camera candle canoe canvas cap cape car cardigan carpet cart case catalog cello chain chair
chalk charger chess chest chisel clamp clarinet clip clock cloth coat coin colander collar comb compass computer
console cooker cooler cord costume cot couch cradle crate crayon crib crown cube cup cupboard curtain cushion
dartboard desk diary dice dictionary dishwasher doll drawer dress drill drone drum dryer duvet earphones easel
envelope eraser fan faucet fence filter flag flashlight flask flute foil folder football fork fountain frame freezer
fridge funnel gate gauge generator glasses globe glove gloves goggles gown grater griddle grill guitar hairbrush
hammer hammock hamper handbag hanger harness harp hat hatchet headphones heater helmet hinge hoe hoodie hook hoop hose
iron jacket jar jeans jersey jewel jigsaw jug kayak kettle key keyboard kite knife ladder ladle lamp lantern laptop
leash lens lid lighter lock locket loom magnet mallet manual map marble marker mask mast mat mattress medal microphone
microscope microwave mirror mitten mixer monitor mop motor mouse mug nail napkin necklace needle net newspaper
notebook oar organ ornament oven overalls paddle padlock paint painting pan parasol pedal pen pencil pendant perfume
phone piano pillow pin pipe pitcher plank plate pliers plug poster pot pouch printer projector pulley pump puppet
purse puzzle quilt rack racket radio raft rake razor receiver recorder ring robe rocket rod rope router rug ruler
saddle sandals saucer saw saxophone scale scarf scissors scooter screen screw sculpture sensor shampoo shears sheet
shelf shirt shoes shorts shovel shower shutter sieve sink skateboard skates skillet skirt skis sled slippers snorkel
soap socks sofa spade speaker sponge spoon stamp stapler statue stencil sticker stool stove strainer suit suitcase
surfboard sweater swing sword table tablet telescope tent thermometer tie tiles timer toaster tongs toolbox toothbrush
torch towel toy tray tripod trophy trousers trumpet trunk tuner typewriter umbrella uniform vacuum vase veil vest
violin wagon wallet wardrobe watch whisk whistle wig wok wrench xylophone yarn zipper
"""
FIRST_NAMES = """
Mia Ana Tom Ella Max Ivy Leo Zoe Sam Ruth Finn Nora Hugo Lily Omar Jade Noah Rosa Otto Vera Paul Jane Carl Alice Mark
Lucy Adam Beth Cara Dean Emma Fred Gina Hank Iris Jack Kate Luke Mona Neil Olga Pete Rita Seth Tina Umar Vince Wendy
Yuri Anna Bill Cleo Dora Eric Fay Glen Hope Ian June Kurt Lena Mila Nick Aaron Abby Agnes Alan Albert Alex Alma Amber
Amy Andrea Andrew Angela Anton Ava Barbara Ben Bella Bernard Boris Brenda Brian Bruno Carmen Carol Cecil Chris Claire
Clara Colin Connor Cora Craig Daisy Daniel David Deborah Denise Dennis Derek Diana Diego Don Doris Edgar Edith Edward
Elena Eli Elsa Emil Emily Erica Esther Ethan Eva Evan Felix Fiona Flora Frank Gabriel George Gerald Grace Gustav
Hannah Harold Harry Heather Hector Helen Henry Herbert Ida Igor Ingrid Irene Isaac Ivan Jacob Jan Jason Jean Jenny
Jeremy Jill Joan Joel John Jonas Joseph Joyce Judith Julia Karen Karl Keith Kim Kirk Lara Laura Leon Lewis Linda Lisa
Liz Lola Louis Lydia Maggie Marco Maria Martha Martin Matt Maya Megan Miguel Mike Molly Monica Nadia Nancy Naomi
Nathan Nina Oliver Oscar Pablo Pamela Patrick Paula Peter Philip Rachel Ralph Ray Rebecca Robert Robin Roger Roland
Ron Rose Sally Sandra Sarah Sean Sergei Sharon Sheila Simon Sofia Sonia Stan Stella Steve Sue Susan Ted Theo Tim Tony
Ursula Victor Viola Walter Will Xavier Arthur Benjamin Charles Elizabeth Eugene Gary Jerome Josh Katherine Kevin Larry
Marcus Margaret Mary Melissa Michael Norman Olivia Patricia Richard
"""
LAST_NAMES = """
Kent Cole Reed Ford Lane Stone Hart Wood Bell Page Gray West Cross Park Dale Fox Hill Ward Nash Shaw King Moss Rice
Boyd Tate Webb Adams Baker Clark Davis Evans Fisher Grant Hayes Irwin Jones Knight Mason Norris Owen Porter Quinn
Rogers Scott Turner Unger Vance Walsh York Allen Brown Carter Duncan Ellis Foster Gibson Howard Jensen Keller Lopez
Miller Nolan Abbott Archer Armstrong Atkins Austin Ball Banks Barker Barnes Barrett Becker Bennett Berg Bishop Black
Blair Bond Booth Bradley Brooks Bryant Burke Burns Burton Butler Cain Campbell Cannon Carr Carroll Carson Casey
Chambers Chapman Chen Clayton Coleman Collins Conway Cook Cooper Costa Cox Crawford Cruz Cunningham Curtis Dalton
Daniels Dawson Day Diaz Dixon Doyle Drake Dunn Dyer Eaton Edwards Elliott Farrell Ferguson Fields Fischer Fleming
Fletcher Flores Flynn Forbes Franklin Fraser Freeman French Frost Fuller Garcia Gardner Gibbs Gilbert Goodwin Gordon
Graham Green Griffin Gross Hale Hall Hamilton Hansen Hardy Harper Harris Harrison Harvey Hawkins Henderson Hicks
Higgins Hoffman Holland Holmes Hopkins Horton Houston Hudson Huff Hughes Hunt Hunter Jackson James Jenkins Johnson
Johnston Jordan Kane Kelly Kennedy Kerr Klein Lamb Lambert Larson Lawson Lee Leonard Little Lloyd Logan Long Lowe
Lucas Lynch Mann Marsh Marshall May Mayer McCoy McDonald Mendez Meyer Mills Mitchell Moore Morgan Morris Morton Murphy
Murray Myers Nelson Newman Newton Nguyen Novak Parker Parsons Patel Patterson Payne Perez Perkins Perry Peters Pierce
Pope Potter Powell Price Ramos Reid Reyes Reynolds Rhodes Richards Riley Rivera Roberts Robinson Rossi Rowe Russell
Ryan Sanders Schmidt Schwartz Shelton Silva Sims Singh Smith Snyder Sparks Spencer Stevens Stewart Sutton Swanson
Taylor Thomas Thompson Todd Torres Tucker Tyler Vega Wagner Walker Wallace Walters Warren Watson Weber Weiss Wells
Wheeler White Williams Wilson Winter Wolf Wright Young Zimmerman
"""


def items_of(desk: int) -> list[str]:
    """The items that a desk's customers buy; desks are numbered from 0."""
    return _dealt(ITEMS, desk, ITEMS_PER_PART)


def customers_of(desk: int) -> list[str]:
    """The customers of a desk: each first name with each last name."""
    first, last = (_dealt(names, desk, NAMES_PER_PART) for names in (FIRST_NAMES, LAST_NAMES))
    return [f"{one} {other}" for one in first for other in last]


def desk_of(customer: str) -> int | None:
    """The desk of a customer; None for a stranger."""
    return _DESK_OF.get(customer)


def _dealt(words: str, desk: int, per_part: int) -> list[str]:
    begin = desk * LARGE_SHARE - max(0, desk - UNSEEN) * (LARGE_SHARE - SMALL_SHARE)
    parts = range(begin, begin + (LARGE_SHARE if desk < UNSEEN else SMALL_SHARE))
    return [word for part in parts for word in words.split()[part::PARTS][:per_part]]


_DESK_OF = {customer: desk for desk in range(DESKS) for customer in customers_of(desk)}
