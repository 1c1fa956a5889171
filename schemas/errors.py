"""Errors that a user of rollbook can meet: each says what was wrong, where, and what to do, on one line."""


class RollbookError(Exception):
    """Base of every error raised on purpose. `exit_code` is what the `rollbook` command exits with."""

    exit_code = 2


class AnswerNo(RollbookError):
    """The question was understood and the answer is no (a bundle diverges, a reservation is refused)."""

    exit_code = 1


class BadInput(RollbookError):
    """The call or its input is wrong: fix it and call again."""

    exit_code = 2


class EnvironmentFault(RollbookError):
    """The input is fine but something around us is not: broker down, files missing, no free port."""

    exit_code = 3
