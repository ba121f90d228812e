"""在函数环境里跑一次 rollout。

本机的模拟环境：arkdev run test_faas.py --endpoint scripted
平台的在线环境：需要平台的 SDK 和账号，python test_faas.py
"""

from ark_sdk.core.plugin.rollout.proxy import InferenceProxy, Mode
from ark_sdk.resources.pipeline_plugin.test_instance import (
    get_or_create_pipeline_plugin_test_instance,
)

from plugins.rollout import demo_rollout
from plugins.test_utils import load_samples, local_endpoint

if __name__ == "__main__":
    base_url, api_key = local_endpoint()
    (sample,) = load_samples("./data/search_dataset_dev_100.jsonl", limit=1)
    instance = get_or_create_pipeline_plugin_test_instance(demo_rollout)
    response = instance.request(
        {
            "context": {},
            "proxy": InferenceProxy(sample, url=base_url, jwt_token=api_key, mode=Mode.Inference),
            "sample": sample,
        },
        sync=True,  # 先同步本地代码；代码没有变化时可以用 False
    )
    print(response)
