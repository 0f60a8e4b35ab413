"""A plug-in that forgets `problem`."""

from gpu_magic.frameworks.base import Framework


class Forgetful(Framework):
    name, module = "Forgetful", "forgetful"

    def statement_for(self, ordinal):
        return ""

    def name_of(self, device):
        return ""

    def scope(self, device, is_used):
        return None

    def narrow(self, ordinals):
        return "", None


FRAMEWORK = Forgetful()
