"""A browser whose person says yes: follows a page wherever it leads."""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=30) as page:
    page.read()
