"""Every exception of agentgen. A failing kernel is a value (`records.trial.Outcome`); a failing machine raises.

AgentgenError
├── BadInput             what the user gave cannot be used: one line, exit 2
│   ├── UnknownProblem
│   └── BadConfig
├── MachineFailure       this machine, not the candidate, is at fault: retried or reported, exit 2
│   ├── DeviceNotFound
│   ├── DeviceLost
│   ├── SandboxUnavailable
│   ├── JudgeDied
│   │   └── JudgeHangs    it did not answer in time: not tried again at once
│   └── StoreUnavailable  what is to be kept or told cannot be: in the run database, in a file, on stdout
├── ReferenceInvalid     the problem's own reference does not run or contradicts itself, exit 2
├── ProtocolError        a peer on a socket sent what is no message
│   └── PeerClosed       it closed the socket, or died
└── ModelFailure         no answer from a language model
    ├── NothingRecorded  the recording has no reply for this request: the branch ends
    ├── PromptRefused    the server answers others, and will never answer this one: the branch ends
    ├── ReplyPending     the mailbox waits for an answer: exit 75
    └── ModelUnavailable refused or unreachable after the retries

Each message says what happened and what to do.
"""

from __future__ import annotations


class AgentgenError(Exception):
    """Base of all; `exit_code` is what the command line ends with."""

    exit_code = 2


class BadInput(AgentgenError):
    """What the user gave cannot be used."""


class UnknownProblem(BadInput):
    """No problem has that name."""


class BadConfig(BadInput):
    """A setting is unknown or has a value that cannot be used."""


class MachineFailure(AgentgenError):
    """This machine is at fault; never held against a candidate."""


class DeviceNotFound(MachineFailure):
    """The device asked for is not on this machine."""


class DeviceLost(MachineFailure):
    """The device does not answer the judge itself, or others hold the memory that a candidate did not find."""


class SandboxUnavailable(MachineFailure):
    """No guest could be started."""


class JudgeDied(MachineFailure):
    """The judge process ended without an answer."""


class JudgeHangs(JudgeDied):
    """The judge process did not answer in time, and was killed. Whoever asks again may wait as long again: a reference
    may never return."""


class StoreUnavailable(MachineFailure):
    """The run database cannot be opened, read or written; or what is kept or told elsewhere cannot be: a kernel, a
    run's file, an entry, a report, a journal, a dataset, the answer on stdout."""


class ReferenceInvalid(AgentgenError):
    """The problem's reference does not run, or two runs of it differ."""


class ProtocolError(AgentgenError):
    """A peer on a socket closed, stalled or sent something that is no message."""


class PeerClosed(ProtocolError):
    """A peer closed its socket, or died."""


class ModelFailure(AgentgenError):
    """No usable answer from a language model."""


class NothingRecorded(ModelFailure):
    """The recording has no reply for this request."""


class PromptRefused(ModelFailure):
    """The server will never answer this request, for what it asks."""


class ReplyPending(ModelFailure):
    """The request is in the mailbox and nobody has answered it yet."""

    exit_code = 75


class ModelUnavailable(ModelFailure):
    """The model's server refused, could not be reached, or broke off, after all retries."""
