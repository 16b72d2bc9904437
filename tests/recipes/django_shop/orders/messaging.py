"""One producer for the whole process, started when the first view needs it.

Made at import and started late, it is right for `runserver`, for threads and for workers that are forked.
"""

import functools

from turbopump import Producer


@functools.cache
def producer() -> Producer:
    made = Producer("django-shop")
    made.start()  # closed when the process ends
    return made
