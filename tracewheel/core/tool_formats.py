"""The tool-call formats: a light table, as the config needs the names without the code."""

from __future__ import annotations

from tracewheel.core.kind_table import KindTable

AUTO = "auto"  # the format that the chat template writes
FORMATS = KindTable(
    "tracewheel.tool_formats",
    {
        "deepseek": "tracewheel.chat.formats.deepseek:DeepseekFormat",
        "gpt_oss": "tracewheel.chat.formats.gpt_oss:GptOssFormat",
        "hermes": "tracewheel.chat.formats.hermes:HermesFormat",
        "llama3_json": "tracewheel.chat.formats.llama3_json:Llama3JsonFormat",
        "mistral": "tracewheel.chat.formats.mistral:MistralFormat",
        "pythonic": "tracewheel.chat.formats.pythonic:PythonicFormat",
        "qwen3_coder": "tracewheel.chat.formats.qwen3_coder:Qwen3CoderFormat",
    },
)
