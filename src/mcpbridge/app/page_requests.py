"""What the pages that the bridge serves to browsers have in common: how forms are read, and headers of plain pages.

The console, the pages about accounts and those of a sign-in each decide themselves who is let in.
"""

from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1000

PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none at all browsers send `Origin: null` with forms
    "cross-origin-opener-policy": "same-origin",
}
"""Of a page without scripts, which nobody keeps and no other page shows inside."""


def is_own_form(request: Request, origin: str = "") -> bool:
    """A page of ours sent it. Browsers say with every POST where it comes from.

    `origin`: of our pages; empty: that which the request came to, by whatever scheme a proxy passes it on.
    """
    sender, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        return False
    if sender is None:
        return site == "same-origin"
    return sender == origin if origin else urlsplit(sender).netloc.lower() == request.headers.get("host", "").lower()


def media_type_of(request: Request) -> str:
    """What the body is said to be, in lower case and without parameters; empty: it is not said."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request, of at most so many bytes.

    Raises:
        HTTPException: it is longer, or was cut off.
    """
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise HTTPException(413, f"This form is longer than {most} bytes.")
    except ClientDisconnect:
        raise HTTPException(400, "The form was cut off.") from None
    return bytes(body)


async def read_form(request: Request, most: int) -> FormData:
    """The fields of a form of at most so many bytes. Files are not taken: they would fill the disk.

    Raises:
        HTTPException: it is longer, is no such form, or was cut off.
    """
    kind = media_type_of(request)
    if not kind:
        return FormData()
    if kind != FORM:
        raise HTTPException(415, "Forms are taken as application/x-www-form-urlencoded only.")
    body = await read_body(request, most)
    try:
        fields: list[tuple[str, UploadFile | str]] = [
            *parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        ]
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
    return FormData(fields)
