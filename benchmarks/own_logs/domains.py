"""The made-up domains by name."""

from __future__ import annotations

from crane import Crane
from domain import Domain
from fermenter import Fermenter
from irrigation import Irrigation

DOMAINS: dict[str, Domain] = {domain.name: domain for domain in (Fermenter(), Crane(), Irrigation())}
