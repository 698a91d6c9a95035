"""The task side of the loop: every kind of query says how it is answered."""

from ..exchange.protocol import TaskSide
from .personal import TaskModels


class HierarchicalTaskSide(TaskSide):
    """Answers of the tasks of one table.

    They follow from the rows and the query, which brings the model that was released before.
    """

    remembers = False

    def __init__(self, table):
        self.models = TaskModels(table)

    def contributions(self, query):
        question, model = query.public["question"], query.public["model"]
        sent = question.bounded(question.answer(self.models, model))
        return {question.name: sent if query.pick is None else sent[query.pick]}
