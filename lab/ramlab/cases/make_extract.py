# SPDX-License-Identifier: GPL-2.0-or-later
"""Generates an OpenStreetMap extract: make_extract.py FILE NODES. The same number gives the same
extract.

A town on a grid: streets that share their crossings, houses with addresses, shops and trees, woods
and lakes as multipolygons, bus routes. Shares of nodes in ways, tagged nodes and kinds of ways are
about those of a real town.
"""

import random
import sys

import osmium
from osmium.osm import mutable

STREETS = [
    ("residential", 50),
    ("service", 20),
    ("footway", 12),
    ("tertiary", 8),
    ("secondary", 6),
    ("primary", 4),
]
PLACES = [
    ("amenity", ["restaurant", "bench", "parking", "cafe", "school"]),
    ("shop", ["bakery", "supermarket", "kiosk"]),
    ("natural", ["tree"]),
    ("highway", ["crossing", "bus_stop"]),
]
SYLLABLES = [
    "al",
    "ber",
    "den",
    "eck",
    "fel",
    "gro",
    "hain",
    "kirch",
    "lin",
    "mühl",
    "ober",
    "rosen",
    "stein",
    "wald",
]


class Town:
    """What has been made so far, in the order that a file has it."""

    def __init__(self, nodes, seed=1):
        self.random = random.Random(seed)
        self.wanted = nodes
        self.nodes, self.ways, self.relations = [], [], []

    def node(self, x, y, tags=None):
        self.nodes.append(
            mutable.Node(
                id=len(self.nodes) + 1,
                location=(9.7 + x * 1e-4, 52.3 + y * 1e-4),
                tags=tags or {},
                version=1,
                timestamp="2024-01-01T00:00:00Z",
            )
        )
        return len(self.nodes)

    def way(self, nodes, tags):
        self.ways.append(mutable.Way(id=len(self.ways) + 1, nodes=nodes, tags=tags, version=1,
                                     timestamp="2024-01-01T00:00:00Z"))
        return len(self.ways)

    def relation(self, members, tags):
        self.relations.append(
            mutable.Relation(
                id=len(self.relations) + 1,
                members=members,
                tags=tags,
                version=1,
                timestamp="2024-01-01T00:00:00Z",
            )
        )

    def name(self):
        return "".join(self.random.choice(SYLLABLES) for _ in range(3)).capitalize()

    def ring(self, x, y, size, corners=4):
        turns = (
            [(0, 0), (size, 0), (size, size), (0, size)]
            if corners == 4
            else [
                (size * (1 + 0.1 * self.random.random()) * c, size * s)
                for c, s in [
                    (1, 0),
                    (0.7, 0.7),
                    (0, 1),
                    (-0.7, 0.7),
                    (-1, 0),
                    (-0.7, -0.7),
                    (0, -1),
                    (0.7, -0.7),
                ]
            ]
        )
        ring = [self.node(x + a, y + b) for a, b in turns]
        return [*ring, ring[0]]

    def make(self):
        side = max(4, int((self.wanted / 9) ** 0.5))
        crossing = {(x, y): self.node(20 * x, 20 * y) for x in range(side) for y in range(side)}
        kinds, weights = zip(*STREETS)
        streets = []
        for n in range(side):
            for along in (0, 1):
                for start in range(0, side - 8, 8):
                    line = [crossing[(start + k, n) if along else (n, start + k)] for k in range(9)]
                    tags = {
                        "highway": self.random.choices(kinds, weights)[0],
                        "name": f"{self.name()}straße",
                    }
                    if self.random.random() < 0.3:
                        tags["maxspeed"] = self.random.choice(["30", "50"])
                    streets.append(self.way(line, tags))
        number = 0
        while len(self.nodes) < self.wanted:
            number += 1
            x, y = self.random.uniform(0, 20 * side), self.random.uniform(0, 20 * side)
            tags = {"building": self.random.choice(["yes", "house", "garage"])}
            if self.random.random() < 0.5:
                tags |= {
                    "addr:street": f"{self.name()}straße",
                    "addr:housenumber": str(1 + number % 200),
                    "addr:city": "Neustadt",
                    "addr:postcode": f"{30000 + number % 999}",
                }
            self.way(self.ring(x, y, 2), tags)
            if number % 6 == 0:
                key, values = self.random.choice(PLACES)
                self.node(x + 5, y + 5, {key: self.random.choice(values), "name": self.name()})
            if number % 60 == 0:
                outer = self.way(self.ring(x, y, 30, 8), {})
                inner = self.way(self.ring(x, y, 6, 8), {})
                self.relation(
                    [("w", outer, "outer"), ("w", inner, "inner")],
                    {
                        "type": "multipolygon",
                        self.random.choice(["natural"]): self.random.choice(["wood", "water"]),
                        "name": self.name(),
                    },
                )
            if number % 200 == 0 and streets:
                self.relation([("w", self.random.choice(streets), "") for _ in range(6)],
                              {"type": "route", "route": "bus", "ref": str(number // 200)})
        return self


def main():
    town = Town(int(sys.argv[2])).make()
    with osmium.SimpleWriter(sys.argv[1]) as writer:
        for things in (town.nodes, town.ways, town.relations):
            for thing in things:
                writer.add(thing)


if __name__ == "__main__":
    main()
