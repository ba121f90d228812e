"""What vLLM's worker can do besides: runs in vLLM's process, where arkdev is not installed.

Its folder is on that process's path; ``--worker-extension-cls`` mixes the class into the worker.
"""

from typing import Any


class PolicyWorker:
    """Mixed into `vllm.v1.worker.worker_base.WorkerBase`."""

    model_runner: Any
    reload_weights: Any

    def reload_policy(self, weights_path: str) -> None:
        """Load the weights in a folder, all of them.

        On a CPU, layers multiply by copies that were packed for it. vLLM's own reload packs those
        whose weights are loaded, and so leaves out a head that is tied to the embeddings: it would
        go on with the old ones.
        """
        self.reload_weights(weights_path=weights_path)
        for layer in self.model_runner.get_model().modules():
            weight = getattr(layer, "weight", None)
            if hasattr(layer, "cpu_linear") and weight is not None and weight.numel():
                layer.quant_method.process_weights_after_loading(layer)
