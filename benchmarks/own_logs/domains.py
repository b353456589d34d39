"""The made-up domains by name: the first three are those that the preset `own-logs` was fixed on."""

from __future__ import annotations

from anaesthesia import Anaesthesia
from battery import Battery
from crane import Crane
from domain import Domain
from fermenter import Fermenter
from irrigation import Irrigation
from ventilation import Ventilation

FIXED_ON: dict[str, Domain] = {domain.name: domain for domain in (Fermenter(), Crane(), Irrigation())}
UNSEEN: dict[str, Domain] = {domain.name: domain for domain in (Anaesthesia(), Ventilation(), Battery())}
DOMAINS = {**FIXED_ON, **UNSEEN}
