"""The neutral request: what one container asks for, whatever back end serves it and however it was written.

Belongs here: the form of a request, and the keys and values of the shorthand. Does not belong here: where a key may
be written (`webhook.core.interpret`), and what a back end makes of it (`webhook.core.backends`).

    request    the neutral form, and how the keys of the shorthand make one
    shorthand  every key, with the parser of its value
    advice     what to write instead of a request that cannot be served
"""
