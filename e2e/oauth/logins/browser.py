"""A browser whose person says yes: follows a page wherever it leads, with its cookies."""

import sys
import urllib.request

browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
with browser.open(sys.argv[1], timeout=30) as page:
    page.read()
