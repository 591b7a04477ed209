"""The description on PyPI: README.md, with links that work outside of a clone. All else is in setup.cfg."""

import configparser
import re
from pathlib import Path

from setuptools import setup

config = configparser.ConfigParser()
config.read("setup.cfg", encoding="utf-8")
url = config["metadata"]["url"]
text = Path("README.md").read_text(encoding="utf-8")
text = re.sub(r"(!\[[^]]*\]\()(?!\w+:|#)", rf"\1{url}/raw/main/", text)
text = re.sub(r"(\]\()(?!\w+:|#)", rf"\1{url}/blob/main/", text)
text = text.replace("pip install '.[", "pip install 'npformer[").replace("pip install .", "pip install npformer")
setup(long_description=text, long_description_content_type="text/markdown")
