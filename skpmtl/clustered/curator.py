"""The curator of a fit with a budget: the course over structures, published as groups."""

from .billboard import GroupBillboard


def grouped(course):
    """The curator of a fit, from that of a course over structures."""
    return GroupBillboard(**vars((yield from course)))
