"""The delivery modes."""

from pubsub.delivery import Delivery

from .at_least_once import AtLeastOnce
from .at_most_once import AtMostOnce
from .mode import Mode
from .transactional import Transactional

MODES: dict[Delivery, type[Mode]] = {
    Delivery.TRANSACTIONAL: Transactional,
    Delivery.AT_LEAST_ONCE: AtLeastOnce,
    Delivery.AT_MOST_ONCE: AtMostOnce,
}
