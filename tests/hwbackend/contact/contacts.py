"""Contacts with fake devices, measured in this process or by the command, as `validation.contact` does it."""

from pathlib import Path

from validation.contact import DEVICE_SECTIONS as DEVICE
from validation.contact import command
from validation.contact import measure as measured
from validation.contact import run as ran

__all__ = ["DEVICE", "ROOT", "command", "measured", "ran"]

ROOT = Path(__file__).resolve().parents[3]
