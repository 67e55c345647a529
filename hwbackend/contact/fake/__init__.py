"""A fake device for tests of a contact: its truth is drawn, its clock is simulated, and it can have faults."""

from hwbackend.contact.fake.device import FakeDevice
from hwbackend.contact.fake.faults import FAULTS
from hwbackend.contact.fake.truth import FakeTruth

__all__ = ["FAULTS", "FakeDevice", "FakeTruth"]
