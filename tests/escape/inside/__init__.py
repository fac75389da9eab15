"""What runs inside a sandbox to attempt an escape: the standard library only, no import of the product or of tests.

`tests.kit.box` ships these files into the sandbox; each public function is one attempt and returns plain JSON values.
"""
