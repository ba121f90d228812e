"""没有安装平台 SDK 时，在本机运行一个文件的 main，例如：

python run_local.py plugins/weather_rollout.py

ark_sdk 的名字由 arkdev 提供。
"""

import runpy
import sys

from arkdev.plugin import ark_sdk

if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("用法：python run_local.py plugins/weather_rollout.py")
    ark_sdk.install()
    runpy.run_path(sys.argv[1], run_name="__main__")
