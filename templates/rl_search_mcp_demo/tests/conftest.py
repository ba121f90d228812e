"""让测试里的 import ark_sdk 由 arkdev 提供。"""

from arkdev.plugin import ark_sdk

ark_sdk.install()
