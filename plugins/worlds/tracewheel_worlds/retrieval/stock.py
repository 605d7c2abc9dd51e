"""Who and what the generated documents are about, in desks that share no name, so that splits by desk share none.

Each name is one word, so that a tiny policy can know it as one token. Years and document ids are no names: desks share them.
"""

from __future__ import annotations

DESKS = 12
_PEOPLE = """
Adam Alice Amir Anna Anton Astrid Aziz Beth Bjorn Boris Bruno Carla Carlos Cecil Chiara Clara Colin Daisy Dario Diana
Dmitri Edgar Edith Elena Elias Elsa Emil Erika Ethan Eva Fabio Felix Fiona Flora Frank Frida Gavin Gemma Georg Gloria
Greta Hanna Harald Hector Heidi Helen Henrik Hilda Igor Ines Ingrid Irene Isaac Ivan Jakob Jana Jasper Joan Jonas Judith
Karim Karin Klara Kofi Lars Laura Lena Leon Linda Lorenz Lucia Magda Malik Marco Maria Martin Meera Milan Mona Nadia
Niels Nina Omar Oscar Otto Paula Pedro Petra Quentin Rahul Rita Robert Rosa Ruben Sofia Stefan
"""
_COMPANIES = """
Altexo Bravora Cindral Dextron Elvanto Fontara Gravix Holvane Intelka Jorvex Kelnor Lumetra Mondex Nextral Orbilon
Praxon Quillex Ravento Solvera Tarvix Umbrion Vexaro Wintrel Xantria Yelvora Zentrix Arcadon Belmora Cortiva Dalvex
Emprix Farnova Gentrix Hexalon Ivantra Junoxa Kandora Lortex Marvion Novelix Optara Pentrix Quorvia Rondex Sartova
Teknion Uventra Vortela
"""
_CITIES = """
Alderby Birchton Calverley Dunmere Eastwick Fernholm Glanford Harwell Inverlea Jarlsby Kirkmoor Larchfield Milbrook
Northam Oakhurst Penrose Quarryton Redcliff Stonebury Thornley Ulverton Valemont Westbury Yarrow Zellwood Ashgrove
Bramley Crowdale Dovecote Elmswell Foxbridge Greendale Hollowell Ironton Juniper Kestrel Lowmarsh Maplewood Nettleby
Otterham Pinecrest Queensford Rosedale Saltmarsh Tidewell Underhill Vinebrook Willowby Yewdale Amberton Bluewater
Cedarville Deepdale Elkhorn Falconer Goldcrest Hawthorn Islington Jasmere Kingsmead
"""
_COUNTRIES = """
Arvonia Belland Corvenia Doraland Estmark Fardonia Gelvia Hestland Ivoria Jutavia Korland Lemuria Morvania Norvia
Ostland Peluria Quendor Rovenia Sylvania Tarland Urdania Velmark Wendland Xelonia Ystria Zamoria Albera Brennia Caldoria
Drovia Elmark Fenland Garvonia Holmia Istrovia Jorland
"""
YEARS = tuple(str(year) for year in range(1930, 1990, 5))
IDS = tuple(f"D{number}" for number in range(1, 25))


def _desk(names: str, desk: int) -> tuple[str, ...]:
    return tuple(names.split()[desk::DESKS])


def people_of(desk: int) -> tuple[str, ...]:
    """The eight people of a desk; desks are numbered from 0."""
    return _desk(_PEOPLE, desk)


def companies_of(desk: int) -> tuple[str, ...]:
    """The four companies of a desk."""
    return _desk(_COMPANIES, desk)


def cities_of(desk: int) -> tuple[str, ...]:
    """The five cities of a desk."""
    return _desk(_CITIES, desk)


def countries_of(desk: int) -> tuple[str, ...]:
    """The three countries of a desk."""
    return _desk(_COUNTRIES, desk)


def names_of(desk: int) -> tuple[str, ...]:
    """All names of a desk."""
    return people_of(desk) + companies_of(desk) + cities_of(desk) + countries_of(desk)


def desk_of(name: str) -> int | None:
    """The desk of a name; None for a name of no desk."""
    return next((desk for desk in range(DESKS) if name in names_of(desk)), None)
