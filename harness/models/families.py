"""The language models that VLM and expert are made of, as transformers has them."""

from __future__ import annotations

from transformers import GemmaConfig, Qwen3Config
from transformers.models.gemma.modeling_gemma import GemmaDecoderLayer, GemmaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from harness.models.flow import Family

GEMMA = Family(GemmaConfig, GemmaDecoderLayer, GemmaRMSNorm, rope_base=10_000.0, scales_text=True)
"""Gemma (arXiv 2403.08295), as in PaliGemma."""
QWEN3 = Family(Qwen3Config, Qwen3DecoderLayer, Qwen3RMSNorm, rope_base=1_000_000.0, scales_text=False)
"""Qwen3 (arXiv 2505.09388)."""
