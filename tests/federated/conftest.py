"""No test here cuts the power, so that nothing has to wait for the disk."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
