"""What all runs of a trial share."""

from dataclasses import dataclass, field

from orchestrator.agents.base import Agent
from orchestrator.config import Price
from orchestrator.gateway.service import GatewayService
from orchestrator.models.reference import ModelReference
from orchestrator.records.schema import TrialSettings
from orchestrator.records.store import TrialStore
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.task import Task
from orchestrator.trial.data import DataSet
from orchestrator.trial.log import TrialLog
from orchestrator.trial.recording import Recordings
from orchestrator.trial.tools import Images
from orchestrator.trial.truncation import Gauge


@dataclass(frozen=True)
class Bench:
    engine: Engine
    images: Images
    task: Task
    data: DataSet
    gateway: GatewayService
    agent: Agent
    models: dict[str, ModelReference]
    prices: dict[str, Price]
    recordings: Recordings
    settings: TrialSettings
    store: TrialStore
    log: TrialLog
    gauges: dict[str, Gauge] = field(default_factory=dict)
    """By model reference; what was learnt of how its server counts."""

    @property
    def owner(self) -> Owner:
        return Owner(trial=self.store.trial_id)
