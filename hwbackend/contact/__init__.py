"""A contact: what is measured of a device in the few minutes that one is at hand.

``simsched contact run FOLDER`` measures, ``simsched contact analyse FOLDER`` needs no device and says how well the
simulator predicts what was measured; ``python -m hwbackend.contact`` does the same without typer and rich.
"""
